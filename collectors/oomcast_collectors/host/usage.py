"""The memory of serving processes, by the name they were found under."""

import os
from dataclasses import dataclass, field
from typing import NamedTuple

from oomcast.clock import Clock
from oomcast.contract import Roots
from oomcast.metric import Metric, Sample, Series
from oomcast_collectors.host.files import READ_LIMIT, Parsed, kibibytes, line_pattern, read_once, whole_lines
from oomcast_collectors.host.processes import Found, ProcessFinder, parse_stat
from oomcast_collectors.host.serving import ServingStarts

_ABSENT = "no process matches, processes cannot be listed, or a line of one of them is malformed"

RESIDENT = Metric(
    "oomcast_process_resident_bytes",
    "gauge",
    "Resident memory of the serving processes of this name, in bytes, by kind: anon, file (mapped files, such as"
    " weights) and shmem; pages that processes share count once for each (RssAnon, RssFile, RssShmem of"
    " /proc/PID/status).",
    ("process", "kind"),
    absent=_ABSENT,
)
SWAP = Metric(
    "oomcast_process_swap_bytes",
    "gauge",
    "Swapped-out anonymous memory of the serving processes of this name, in bytes (VmSwap of /proc/PID/status).",
    ("process",),
    absent=_ABSENT,
)
LOCKED = Metric(
    "oomcast_process_locked_bytes",
    "gauge",
    "Memory that the serving processes of this name locked, in bytes (VmLck of /proc/PID/status).",
    ("process",),
    absent=_ABSENT,
)
FAULTS = Metric(
    "oomcast_process_major_faults_total",
    "counter",
    "Page faults of the serving processes of this name that had to read from a device, since the daemon's first look;"
    " of a process that came later, since its start (majflt of /proc/PID/stat).",
    ("process",),
    absent="serving processes are not looked for, or cannot be listed; a configured name starts at 0",
)
COUNT = Metric(
    "oomcast_processes",
    "gauge",
    "Serving processes of this name that run (/proc).",
    ("process",),
    absent="no process of this name was seen since the daemon started, or processes cannot be listed",
)
LEFT_OUT = Metric(
    "oomcast_process_names_dropped",
    "gauge",
    "Names of serving processes above the configured number of names, which have no series: those with the least"
    " resident memory.",
    absent="serving processes are not looked for, or cannot be listed",
)
METRICS = (RESIDENT, SWAP, LOCKED, FAULTS, COUNT, LEFT_OUT)

_KINDS = {"RssAnon": "anon", "RssFile": "file", "RssShmem": "shmem"}
_FIELDS = {f.encode(): f for f in (*_KINDS, "VmSwap", "VmLck", "VmSize")}
_LINE = line_pattern(_FIELDS, rb":.*")


class Scan(NamedTuple):
    """One scan's samples. malformed: fields of /proc/PID/status that were so in any process, or btime of /proc/stat."""

    samples: list[Sample]
    malformed: frozenset[str]


@dataclass(slots=True)
class _Sum:
    """Bytes by field over the processes of one name. incomplete: fields that one of them lacks."""

    count: int = 0
    bytes: dict[str, int] = field(default_factory=dict)
    incomplete: set[str] = field(default_factory=set)

    def add(self, status: dict[str, int]) -> None:
        self.count += 1
        for name in (*_KINDS, "VmSwap", "VmLck"):
            if name in status:
                self.bytes[name] = self.bytes.get(name, 0) + status[name]
            else:
                self.incomplete.add(name)

    def get(self, name: str) -> int | None:
        # A sum that lacks a process would read as a fall.
        return None if name in self.incomplete else self.bytes.get(name)

    @property
    def resident(self) -> int:
        return sum(self.bytes.get(f, 0) for f in _KINDS)


class ProcessUsage:
    """Sums up what the processes that `finder` finds hold. max_names: the names with the most memory that are shown."""

    def __init__(
        self, roots: Roots, finder: ProcessFinder, starts: ServingStarts, clock: Clock, max_names: int
    ) -> None:
        self._proc = os.fspath(roots.proc)
        self._finder = finder
        self._starts = starts
        self._clock = clock
        self._max_names = max_names
        self._created: float | None = None
        self._seen: set[str] = set()
        self._faults: dict[str, int] = dict.fromkeys(finder.names, 0)
        self._last: dict[tuple[int, int], int] = {}
        self._series: dict[tuple[Metric, tuple[str, ...]], Series] = {}

    def scan(self) -> Scan:
        """One look at all processes. Raises OSError when /proc cannot be listed."""
        sums: dict[str, _Sum] = {}
        malformed: set[str] = set()
        faults: dict[tuple[int, int], int] = {}
        running: list[Found] = []
        for found in self._finder.find():
            try:
                status = self._measure(found, faults)
            except OSError:  # it ended
                continue
            if status is not None:
                malformed |= status.malformed
                sums.setdefault(found.name, _Sum()).add(status.values)
                running.append(found)
        self._last = faults
        if self._created is None:
            self._created = self._clock.time()
        starts = self._starts.samples(running)
        if starts is None:
            malformed.add("btime")
        return Scan(self._samples(sums) + (starts or []), frozenset(malformed))

    def _measure(self, found: Found, faults: dict[tuple[int, int], int]) -> Parsed | None:
        """The memory of one process; None when it is another one by now, or has given its memory back."""
        status = parse_status(read_once(f"{self._proc}/{found.pid}/status", READ_LIMIT))
        # After status: as long as the start time is the same, status was of this process too.
        stat = parse_stat(read_once(f"{self._proc}/{found.pid}/stat", 4096))
        if stat is None or stat.start_time != found.start_time or "VmSize" not in status.values:
            return None
        identity = (found.pid, found.start_time)
        # What ran before the first look would be counted at a moment in which it did not happen.
        before = self._last.get(identity, stat.major_faults if self._created is None else 0)
        faults[identity] = stat.major_faults
        self._faults[found.name] = self._faults.get(found.name, 0) + max(0, stat.major_faults - before)
        return status

    def _samples(self, sums: dict[str, _Sum]) -> list[Sample]:
        self._forget(sums)
        shown = sorted(sums, key=lambda n: (-sums[n].resident, n))[: self._max_names]
        dropped = sums.keys() - set(shown)
        out = [Sample(self._of(LEFT_OUT), len(dropped))]
        for name in sorted(shown):
            out += self._gauges(name, sums[name])
        out += [Sample(self._of(COUNT, name), 0) for name in sorted(self._seen - sums.keys())]
        self._seen.update(shown)
        created = self._created
        out += [Sample(self._of(FAULTS, n), f, created) for n, f in sorted(self._faults.items()) if n not in dropped]
        # The exposition has a family in one piece; the sort is stable, so names stay in order within it.
        return sorted(out, key=lambda sample: METRICS.index(sample.series.metric))

    def _gauges(self, name: str, total: _Sum) -> list[Sample]:
        out = [Sample(self._of(COUNT, name), total.count)]
        rows = [(self._of(RESIDENT, name, kind), f) for f, kind in _KINDS.items()]
        rows += [(self._of(SWAP, name), "VmSwap"), (self._of(LOCKED, name), "VmLck")]
        out += [Sample(series, value) for series, f in rows if (value := total.get(f)) is not None]
        return out

    def _forget(self, sums: dict[str, _Sum]) -> None:
        """Lets go of names that ended once there are too many: names that processes choose are without number."""
        configured = self._finder.names
        gone = [n for n in self._faults if n not in sums and n not in configured]
        for name in gone[: max(0, len(self._faults) - len(configured) - self._max_names)]:
            del self._faults[name]
            self._seen.discard(name)
        self._series = {k: s for k, s in self._series.items() if not k[1] or k[1][0] in self._faults}

    def _of(self, metric: Metric, *values: str) -> Series:
        key = (metric, values)
        if key not in self._series:
            self._series[key] = metric.series(*values)
        return self._series[key]


def parse_status(data: bytes) -> Parsed:
    """The memory fields of /proc/PID/status in bytes; a process without an address space has none of them."""
    lines, malformed = whole_lines(data)
    values: dict[str, int] = {}
    for name, text in _LINE.findall(lines):
        known = _FIELDS[name]
        value = kibibytes(text[1:])
        if value is None or known in values:
            malformed.add(known)
        else:
            values[known] = value
    return Parsed(values, frozenset(malformed))
