"""Cgroups that come and go under the running daemon: does its memory, or the number of its descriptors, grow?"""

import contextlib
import itertools
import json
import statistics
import sys
import time

from machine import HERE, child, cpu, daemon, descriptors, get, memory, series, table
from owned import parent

RATE = 50.0
LIFETIME = 2.0
_SAMPLE_EVERY = 2.0
_FLAT_STEP = 0.5e6
_CRITERION = (
    "flat: from the middle of the run on, the median RSS of the last quarter of the run is at most 0.5 MB above that of"
    " the third, and the lowest count of descriptors is no higher"
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
            count = series(get(port)[1])
    _report(samples, made, share, count)


def _report(samples: list[tuple[float, float, int]], made: int, share: float, count: int) -> None:
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
    third, last = quarters[2:]
    step = statistics.median(rss for _, rss, _ in last) - statistics.median(rss for _, rss, _ in third)
    flat = step <= _FLAT_STEP and min(f for *_, f in last) <= min(f for *_, f in third)
    print(f"\nCPU {share:.2%} of a core, {count} series at the end; RSS of the last quarter {step / 1e6:+.2f} MB.")
    print(f"\nflat: {'yes' if flat else 'no'} ({_CRITERION.removeprefix('flat: ')})", flush=True)


def _slope(samples: list[tuple[float, float, int]]) -> float:
    """Bytes per second, least squares."""
    return statistics.linear_regression([at for at, *_ in samples], [rss for _, rss, _ in samples]).slope
