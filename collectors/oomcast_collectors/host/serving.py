"""Since when inference engines run, and in which cgroups: what tells an engine's OOM kill from another tenant's."""

import os
import re
from collections.abc import Iterable
from heapq import nsmallest
from itertools import accumulate

from oomcast.contract import Context
from oomcast.metric import Metric, Sample, Series
from oomcast_collectors.cgroup_names import CgroupNames
from oomcast_collectors.host.files import READ_LIMIT, read_once
from oomcast_collectors.host.processes import Found

START = Metric(
    "oomcast_serving_start_timestamp_seconds",
    "gauge",
    "When the inference engine in the cgroup or below it started: of one cgroup its oldest serving process, of an"
    " ancestor the youngest of those below it; UTC seconds since the epoch (/proc/PID/stat, btime of /proc/stat).",
    ("cgroup", "owner"),
    max_series=300,
    absent="no serving process runs in the cgroup or below it, it is the root of the hierarchy, or processes cannot be"
    " listed",
)

_MOST_LEVELS = 64
"""As deep as cgroups are watched and kills are told apart."""

_MOST_CGROUPS = 2 * START.max_series
"""Those above the cap are counted as dropped, as far as naming them costs milliseconds."""

_STEP = 0.5
"""Seconds by which the clock must have been set for the boot to be another time."""

_BTIME = re.compile(rb"^btime ([0-9]{1,15})\n", re.MULTILINE)


class ServingStarts:
    """Not thread-safe."""

    def __init__(self, context: Context) -> None:
        self._names = CgroupNames(context)
        self._boot = BootTime(context)
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._series: dict[tuple[str, str], Series] = {}

    def samples(self, running: Iterable[Found]) -> list[Sample] | None:
        """Of the serving processes of this moment, the topmost cgroups first: what a cap leaves out is the deepest.

        None where the time of boot is not known.
        """
        starts = self._starts(running)
        boot = self._boot.time() if starts else 0.0
        if boot is None:
            return None
        before, self._series = self._series, {}
        out = []
        for cgroup in nsmallest(_MOST_CGROUPS, starts, key=lambda one: (one.count("/"), one)):
            key = cgroup, self._names.owner(cgroup)
            series = self._series[key] = before.get(key) or START.series_of(key)
            out.append(Sample(series, boot + starts[cgroup] / self._ticks))
        return out

    def _starts(self, running: Iterable[Found]) -> dict[str, int]:
        """Clock ticks since boot by the name of the cgroup."""
        oldest: dict[str, int] = {}
        for found in running:
            path = found.cgroup_path
            oldest[path] = min(found.start_time, oldest.get(path, found.start_time))
        starts: dict[str, int] = {}
        for path, start in oldest.items():
            for cgroup in self._with_ancestors(self._names.name(path)):
                starts[cgroup] = max(start, starts.get(cgroup, start))
        return starts

    def _with_ancestors(self, name: str) -> set[str]:
        parts = name.split("/", _MOST_LEVELS + 1)[1 : _MOST_LEVELS + 1]
        cgroups = set(accumulate(f"/{part}" for part in parts))
        # The root of all has neither a limit nor kills of its own; that of a container has.
        return cgroups | {"/"} if name and self._names.partial else cgroups - {"/"}


class BootTime:
    """The kernel's own idea of it, in whole seconds: the clock less the uptime is another value every time."""

    def __init__(self, context: Context) -> None:
        self._file = os.fspath(context.roots.proc / "stat")
        self._clock = context.clock
        self._known: float | None = None
        self._offset = 0.0

    def time(self) -> float | None:
        """UTC seconds since the epoch, None where /proc/stat does not tell. Read again once the clock was set."""
        offset = self._clock.time() - self._clock.monotonic()
        if self._known is None or abs(offset - self._offset) > _STEP:
            # Of hundreds of CPUs and thousands of interrupts the file is long, and the kernel slow to write it.
            self._known, self._offset = self._read(), offset
        return self._known

    def _read(self) -> float | None:
        try:
            found = _BTIME.search(read_once(self._file, READ_LIMIT))
        except OSError:
            return None
        return float(found[1]) if found else None
