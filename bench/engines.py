"""CPU and memory of watching ten engines once a second, beside prometheus_client's parser on the same pages."""

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from machine import HERE, MB, background, child, cpu, free_port, get, median, memory, series, table, verdict, wait_for
from oomcast_collectors.all import ALL

ENGINES = 10
TARGET = 3.9
"""Per cent of a core: 1.5 on a machine that is 2.6 times as fast."""

_SETTLING = 12.0
_SCRAPE_EVERY = 15.0
_REPEATS = 20
_GZIP = {"Accept-Encoding": "gzip"}


class _Daemon(NamedTuple):
    name: str
    pid: int
    port: int


@dataclass
class _Use:
    """percent: of a core. by_thread: the same by the beginning of the thread's name. Bytes."""

    percent: float
    by_thread: dict[str, float]
    rss: float
    pss: float
    series: int


def run(seconds: float = 60) -> None:
    """Prints the tables. seconds: how long the daemons are watched, both at once."""
    with child([sys.executable, HERE / "serve_engines.py", str(ENGINES)]) as server, contextlib.ExitStack() as stack:
        ports = json.loads(server.answer())
        page = get(ports[0])[1]
        daemons = [
            stack.enter_context(_daemon("oomcast, engine only", ports)),
            stack.enter_context(_daemon("oomcast, no collector", ())),
        ]
        time.sleep(_SETTLING)
        watched, bare = _watch(daemons, seconds)
        peer = _peer(page)
    cost = watched.percent - bare.percent
    rows: list[Sequence[object]] = [_row(one.name, use) for one, use in zip(daemons, (watched, bare), strict=True)]
    rows.append(
        (
            f"engine collector, {ENGINES} engines", f"{cost:.2f}", f"{watched.series - bare.series}",
            f"{(watched.rss - bare.rss) / MB:.1f}", f"{(watched.pss - bare.pss) / MB:.1f}",
            f"<= {TARGET}: {verdict(cost, TARGET)}",
        )
    )  # fmt: skip
    # One look a second at each engine.
    percent = peer * ENGINES * 100
    rows.append(("prometheus_client's parser alone", f"{percent:.2f}", "", "", "", f"x {percent / cost:.1f}"))
    columns = ("process", "CPU % of a core", "series", "RSS MB", "PSS MB", "")
    table(f"engines: {ENGINES} pages of {len(page) / 1e3:.0f} kB each second, for {seconds:.0f} s", columns, rows)
    threads = sorted(watched.by_thread.items(), key=lambda item: -item[1])
    by_thread = [(name, f"{percent:.2f}") for name, percent in threads if percent >= 0.01]
    table("engines: threads of oomcast, engine only", ("thread", "CPU % of a core"), by_thread)


@contextmanager
def _daemon(name: str, engines: Sequence[int]) -> Iterator[_Daemon]:
    port = free_port()
    settings = {"OOMCAST_HTTP__LISTEN": f"127.0.0.1:{port}", "OOMCAST_LOG__LEVEL": "error"}
    for spec in ALL:
        if spec.name != "engine" or not engines:
            settings[f"OOMCAST_COLLECTORS__{spec.name.upper()}__ENABLED"] = "false"
    endpoints = [{"url": f"http://127.0.0.1:{engine}", "name": f"engine-{engine}"} for engine in engines]
    settings["OOMCAST_COLLECTORS__ENGINE__ENDPOINTS"] = json.dumps(endpoints)
    with background([sys.executable, HERE / "named_threads.py", "run"], settings) as pid:
        wait_for(port, "/-/ready")
        yield _Daemon(name, pid, port)


def _watch(daemons: Sequence[_Daemon], seconds: float) -> list[_Use]:
    began, before = time.monotonic(), [(cpu(one.pid), _by_thread(one.pid)) for one in daemons]
    while (passed := time.monotonic() - began) < seconds:
        for one in daemons:
            get(one.port, headers=_GZIP)
        time.sleep(max(min(_SCRAPE_EVERY, seconds - passed), 0))
    passed = time.monotonic() - began
    return [_use(one, *start, passed) for one, start in zip(daemons, before, strict=True)]


def _use(one: _Daemon, before: float, threads: dict[str, float], passed: float) -> _Use:
    percent = (cpu(one.pid) - before) / passed * 100
    by_thread = {name: (taken - threads.get(name, 0.0)) / passed * 100 for name, taken in _by_thread(one.pid).items()}
    return _Use(percent, by_thread, *memory(one.pid), series(get(one.port)[1]))


def _by_thread(pid: int) -> dict[str, float]:
    """CPU seconds so far of the threads that are there now, by name, all engines' together."""
    taken: dict[str, float] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            name = (task / "comm").read_text().strip().partition(" ")[0]
            taken[name] = taken.get(name, 0.0) + int((task / "schedstat").read_text().split()[0]) / 1e9
    return taken


def _peer(page: bytes) -> float:
    """CPU seconds of reading the page once."""
    text, taken = page.decode(), []
    for _ in range(_REPEATS):
        began = time.process_time()
        for family in text_string_to_metric_families(text):
            list(family.samples)
        taken.append(time.process_time() - began)
    return median(taken)


def _row(name: str, use: _Use) -> Sequence[object]:
    return name, f"{use.percent:.2f}", use.series, f"{use.rss / MB:.1f}", f"{use.pss / MB:.1f}", ""
