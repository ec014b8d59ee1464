"""Memory and CPU of the running daemon, scraped every 15 seconds, beside an idle interpreter and peers."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

from machine import MB, background, cpu, daemon, free_port, get, memory, series, table, verdict, wait_for
from owned import Owned, owned
from peers import Missing, cgroups_exporter, node_exporter

_SCRAPE_EVERY = 15.0
_MANY = 2760
"""Cgroups with a limit, which make twenty thousand series."""

_SETTLING = 12.0
"""Seconds before the watch: imports, first runs, the first forecasts and the first look at the processes are over."""

_GZIP = {"Accept-Encoding": "gzip"}


class Watched(NamedTuple):
    """A process under watch. port: of its /metrics, None without one."""

    name: str
    pid: int
    port: int | None


class Use(NamedTuple):
    """What it took. Bytes, and the share of one core."""

    rss: float
    pss: float
    cpu: float
    series: int


def run(seconds: float = 60) -> None:
    """Prints the tables. seconds: how long the processes are watched, at once."""
    columns = ("process", "cgroups", "series", "RSS MB", "PSS MB", "CPU % of a core", "target MB", "target %")
    rows: list[list[object]] = []
    with owned(100) as cgroups, contextlib.ExitStack() as stack:
        watched = [Watched("oomcast, defaults", *stack.enter_context(daemon()))]
        for name, peer in _peers(cgroups).items():
            try:
                watched.append(Watched(name, *stack.enter_context(peer())))
            except Missing as reason:
                rows.append([name, 100, f"not installed: {reason}", "", "", "", "", ""])
        for one, use in zip(watched, _watch(watched, seconds), strict=True):
            rows.append(_row(one.name, 100, use, *((64.0, 1.5) if one is watched[0] else ())))
    # 2,500 cgroups of eight series each, of which the kernel tells a bit fewer on some machines.
    with owned(_MANY) as cgroups, daemon({"OOMCAST_COLLECTORS__CGROUP__MAX_CGROUPS": "4000"}) as (pid, port):
        use = _watch([Watched("oomcast, max_cgroups 4000", pid, port)], seconds)[0]
        rows.append(_row("oomcast, max_cgroups 4000", _MANY, use, 72.0))
    table(f"resident: watched for {seconds:.0f} s at once, scraped every {_SCRAPE_EVERY:.0f} s", columns, rows)


def _watch(watched: list[Watched], seconds: float) -> list[Use]:
    time.sleep(_SETTLING)
    began, before = time.monotonic(), [cpu(one.pid) for one in watched]
    while (passed := time.monotonic() - began) < seconds:
        for one in watched:
            if one.port is not None:
                get(one.port, headers=_GZIP)
        time.sleep(max(min(_SCRAPE_EVERY, seconds - passed), 0))
    used = [(cpu(one.pid) - start) / (time.monotonic() - began) for one, start in zip(watched, before, strict=True)]
    uses = []
    for one, share in zip(watched, used, strict=True):
        rss, pss = memory(one.pid)
        count = series(get(one.port)[1]) if one.port is not None else 0
        uses.append(Use(rss, pss, share, count))
    return uses


def _peers(cgroups: Owned) -> Mapping[str, Callable[[], AbstractContextManager[tuple[int, int | None]]]]:
    return {
        "python -c signal.pause()": _idle,
        "node_exporter": _node_exporter,
        "cgroups-exporter, every 15 s": lambda: _cgroups_exporter(cgroups.parent),
    }


@contextmanager
def _idle() -> Iterator[tuple[int, int | None]]:
    with background([sys.executable, "-c", "import signal; signal.pause()"]) as pid:
        yield pid, None


@contextmanager
def _node_exporter() -> Iterator[tuple[int, int | None]]:
    port = free_port()
    with background([node_exporter(), f"--web.listen-address=127.0.0.1:{port}"]) as pid:
        wait_for(port)
        yield pid, port


@contextmanager
def _cgroups_exporter(parent: Path) -> Iterator[tuple[int, int | None]]:
    port = free_port()
    program = cgroups_exporter().with_name("cgroups-exporter")
    arguments = ["--metrics-address=127.0.0.1", f"--metrics-port={port}", "--cgroups-path", f"{parent}/*"]
    with background([program, *arguments]) as pid:
        wait_for(port)
        yield pid, port


def _row(name: str, cgroups: int, use: Use, megabytes: float = 0, percent: float = 0) -> list[object]:
    memory_target = f"< {megabytes:.0f}: {verdict(use.rss / MB, megabytes)}" if megabytes else ""
    cpu_target = f"< {percent}: {verdict(use.cpu * 100, percent)}" if percent else ""
    return [
        name, cgroups, f"{use.series:,}", f"{use.rss / MB:.1f}", f"{use.pss / MB:.1f}", f"{use.cpu * 100:.2f}",
        memory_target, cpu_target,
    ]  # fmt: skip
