"""Cgroups that come and go under the running daemon: does its memory, or the number of its descriptors, grow?"""

import contextlib
import itertools
import json
import re
import statistics
import sys
import time

from machine import HERE, child, cpu, daemon, descriptors, get, memory, series, table
from owned import parent

RATE = 50.0
LIFETIME = 2.0
_SAMPLE_EVERY = 2.0
_BYTES_PER_CGROUP = 32.0
"""What is kept of each cgroup that came and went would be larger than this."""

_DESCRIPTORS = 1.1
_CRITERION = (
    f"over the last quarter RSS rises by at most {_BYTES_PER_CGROUP:.0f} bytes for each cgroup made and removed, and"
    f" the median of the descriptors is at most {_DESCRIPTORS:g} times that of the quarter before"
)


def run(seconds: float = 600) -> None:
    """Prints the table, the samples of RSS, and whether they are flat. seconds: how long it goes on."""
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(parent())
        # Only these, so that what else goes on on the machine does not show.
        only = {"OOMCAST_COLLECTORS__CGROUP__INCLUDE": json.dumps([f"{place.path}/*"]), "OOMCAST_LOG__LEVEL": "error"}
        pid, port = stack.enter_context(daemon(only))
        argv = [sys.executable, HERE / "make_and_remove.py", place.parent, place.version, RATE, LIFETIME]
        with child([str(word) for word in argv]) as maker:
            began, before = time.monotonic(), cpu(pid)
            samples: list[tuple[float, float, int]] = []
            for i in itertools.count(1):
                time.sleep(max(began + i * _SAMPLE_EVERY - time.monotonic(), 0))
                passed = time.monotonic() - began
                samples.append((passed, memory(pid)[0], descriptors(pid)))
                if i % 7 == 0:
                    get(port, headers={"Accept-Encoding": "gzip"})
                if passed >= seconds:
                    break
            made = int(maker.ask())
            share = (cpu(pid) - before) / (time.monotonic() - began)
            body = get(port)[1]
    _report(samples, made, share, body)


def _report(samples: list[tuple[float, float, int]], made: int, share: float, body: bytes) -> None:
    quarters = [samples[len(samples) * i // 4 : len(samples) * (i + 1) // 4] for i in range(4)]
    rows = [
        (
            f"{quarter[0][0]:.0f} to {quarter[-1][0]:.0f}",
            f"{statistics.median(rss for _, rss, _ in quarter) / 1e6:.2f}",
            f"{_slope(quarter) * 60 / 1e3:+.0f}",
            f"{min(fds for *_, fds in quarter)} to {max(fds for *_, fds in quarter)}",
        )
        for quarter in quarters
    ]
    passed = samples[-1][0]
    title = (
        f"churn: {made} cgroups made and removed in {passed:.0f} s ({made / passed:.0f}/s, each lives {LIFETIME:g} s)"
    )
    table(title, ("seconds", "RSS MB", "kB per minute", "descriptors"), rows)
    third, last = (statistics.median(fds for *_, fds in quarter) for quarter in quarters[2:])
    kept = _slope(quarters[3]) / RATE
    flat = kept <= _BYTES_PER_CGROUP and last <= third * _DESCRIPTORS
    print(f"\nCPU {share:.2%} of a core; {series(body)} series at the end; runs of the collector: {_outcomes(body)}.")
    print(f"RSS over the last quarter: {kept:+.1f} bytes for each cgroup made and removed.")
    print(f"\nflat: {'yes' if flat else 'no'} ({_CRITERION})", flush=True)


def _outcomes(body: bytes) -> str:
    found = re.findall(rb'oomcast_collector_runs_total\{collector="cgroup",outcome="(\w+)"\} (\S+)', body)
    return ", ".join(f"{float(count):.0f} {outcome.decode()}" for outcome, count in found)


def _slope(samples: list[tuple[float, float, int]]) -> float:
    """Bytes per second, least squares."""
    return statistics.linear_regression([at for at, *_ in samples], [rss for _, rss, _ in samples]).slope
