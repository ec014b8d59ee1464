"""A Prometheus over many nodes, watched: what it and its rules cost."""

import contextlib
import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from fleet_pages import trouble
from fleet_prometheus import Own, Prometheus
from fleet_serve import address
from machine import HERE, Child, child, cpu, free_port

MOST = 12e9
"""Bytes of resident memory above which a Prometheus is ended: other people are on the machine."""

ALERTS = {"gpu": "OomcastGpuExhaustion", "cgroup": "OomcastCgroupExhaustion", "silent": "OomcastDown"}
"""What has to fire, by what is wrong with a node."""

SCRAPED = 15.0
"""Seconds between two scrapes, as shipped."""

_LOOK = 5.0
_UP = 180.0


class TooMuch(Exception):
    """It does not fit this machine; the text says what did not."""


class Fleet:
    """Nodes that are served. targets: all of them. numbers: of nodes by what is wrong with them, "" for nothing."""

    def __init__(self, server: Child, nodes: int, port: int, known: Mapping[str, float]) -> None:
        self._server = server
        self.pid = server.pid
        self.targets = [f"{address(node)}:{port}" for node in range(nodes)]
        self.series = int(known["series"])
        self.changing = known["changing"]
        troubles = [trouble(node) for node in range(nodes)]
        self.numbers = {what: troubles.count(what) for what in ("", "gpu", "cgroup", "silent")}

    def served(self) -> Mapping[str, float]:
        told: dict[str, float] = json.loads(self._server.ask())
        return told


@contextmanager
def serving(recorded: Path, nodes: int) -> Iterator[Fleet]:
    """recorded: a directory as fleet_record writes it."""
    port = free_port()
    program: list[str | Path] = [sys.executable, HERE / "fleet_serve.py", recorded, str(port), str(nodes)]
    with child(program) as server:
        yield Fleet(server, nodes, port, json.loads(server.answer()))


class Group(NamedTuple):
    """A rule group over a watch. seconds: of each evaluation that was seen. missed: evaluations that did not begin."""

    seconds: Sequence[float]
    missed: float
    interval: float


class Watched(NamedTuple):
    """cpu, server: of a core, by Prometheus and by what plays the nodes. Bytes, and all else a second but for made: the
    share of the scrapes that were due."""

    seconds: float
    cpu: float
    server: float
    rss: float
    series: float
    samples: float
    text: float
    wire: float
    wal: float
    made: float
    remote: float
    remote_samples: float
    groups: Mapping[str, Group]


def wait_until_up(prometheus: Prometheus, fleet: Fleet) -> None:
    """All that answer have been scraped. Raises TooMuch."""
    until = time.monotonic() + _UP
    asked = len(fleet.targets) - fleet.numbers["silent"]
    while prometheus.number('count(up{job="oomcast"} == 1)') < asked:
        _within(prometheus.own())
        if time.monotonic() > until:
            raise TooMuch(f"after {_UP:.0f} s not all of {asked} nodes have been scraped")
        time.sleep(1)


def watch(prometheus: Prometheus, fleet: Fleet, seconds: float) -> Watched:
    """Raises TooMuch."""
    first, served, wal = prometheus.own(), fleet.served(), _size(prometheus.directory / "data" / "wal")
    used, server_used, began = cpu(prometheus.pid), cpu(fleet.pid), time.monotonic()
    seen: dict[str, dict[float, float]] = {}
    last, rss = first, first.rss
    while (left := began + seconds - time.monotonic()) > 0:
        time.sleep(min(_LOOK, left))
        last = prometheus.own()
        _within(last)
        rss = max(rss, last.rss)
        ended = last.by("prometheus_rule_group_last_evaluation_timestamp_seconds", "rule_group")
        for group, took in last.by("prometheus_rule_group_last_duration_seconds", "rule_group").items():
            seen.setdefault(group, {})[ended[group]] = took
    # What it costs to be asked about itself, some ms each time, is in it.
    passed = time.monotonic() - began
    after = fleet.served()
    per_second = {name: (after[name] - served[name]) / passed for name in ("text", "sent")}
    return Watched(
        seconds=passed,
        cpu=(cpu(prometheus.pid) - used) / passed,
        server=(cpu(fleet.pid) - server_used) / passed,
        rss=rss,
        series=last.one("prometheus_tsdb_head_series"),
        samples=_rate(first, last, "prometheus_tsdb_head_samples_appended_total"),
        text=per_second["text"],
        wire=per_second["sent"],
        wal=(_size(prometheus.directory / "data" / "wal") - wal) / passed,
        made=(after["requests"] - served["requests"])
        / passed
        * SCRAPED
        / (len(fleet.targets) - fleet.numbers["silent"]),
        remote=_rate(first, last, "prometheus_remote_storage_bytes_total"),
        remote_samples=_rate(first, last, "prometheus_remote_storage_samples_total"),
        groups=_groups(first, last, seen),
    )


def told(prometheus: Prometheus) -> Mapping[str, float]:
    """The nodes for which each alert fires, but for the one that always does."""
    firing = 'ALERTS{alertstate="firing",alertname!="OomcastWatchdog"}'
    return prometheus.numbers(f"count by (alertname) (group by (alertname, node) ({firing}))", "alertname")


def _groups(first: Own, last: Own, seen: Mapping[str, Mapping[float, float]]) -> Mapping[str, Group]:
    """By name."""
    found = {}
    for group, durations in seen.items():
        missed = last.one(_MISSED, rule_group=group) - first.one(_MISSED, rule_group=group)
        interval = last.one("prometheus_rule_group_interval_seconds", rule_group=group)
        # 0 is that of a group that has not been evaluated yet.
        took = [took for ended, took in sorted(durations.items()) if ended > 0]
        found[group.rpartition(";")[2]] = Group(took, missed, interval)
    return found


_MISSED = "prometheus_rule_group_iterations_missed_total"


def _rate(first: Own, last: Own, name: str) -> float:
    return (last.one(name) - first.one(name)) / (last.at - first.at)


def _within(own: Own) -> None:
    if own.rss > MOST:
        raise TooMuch(f"Prometheus takes more than {MOST / 1e9:.0f} GB")


def _size(directory: Path) -> float:
    total = 0
    for file in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a segment that has just gone
            total += file.stat().st_size if file.is_file() else 0
    return float(total)


class _Receiver(BaseHTTPRequestHandler):
    """Takes what is written remotely, and forgets it."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def receiver() -> Iterator[str]:
    """A URL for remote_write."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Receiver)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="receiver")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/api/v1/write"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
