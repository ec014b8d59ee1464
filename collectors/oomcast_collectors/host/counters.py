"""/proc/vmstat and /proc/pressure: what the kernel counts since boot."""

import logging
from dataclasses import dataclass

from oomcast.metric import Metric, Sample, Series
from oomcast_collectors.host.files import Parsed, line_pattern, number, whole_lines

RESOURCES = ("cpu", "memory", "io", "irq")

_SINCE = "from the host's boot on"


def _vmstat(name: str, meaning: str, source: str, labels: tuple[str, ...] = (), absent: str = "") -> Metric:
    return Metric(
        f"oomcast_host_{name}_total",
        "counter",
        f"{meaning}, {_SINCE} ({source} of /proc/vmstat).",
        labels,
        absent=absent or f"the kernel's /proc/vmstat has no {source}, or the line is malformed",
    )


OOM_KILLS = _vmstat("oom_kills", "Processes that the OOM killer killed, host-wide and in cgroups", "oom_kill")
_MAJOR = _vmstat("pgmajfault", "Page faults that had to read from a device", "pgmajfault")
_REFAULTS = _vmstat(
    "refaults",
    "Pages read back soon after reclaim took them, by kind (anon, file)",
    "workingset_refault_anon, workingset_refault_file, before Linux 5.9 workingset_refault as file",
    ("kind",),
    "the line is missing or malformed; kind=anon before Linux 5.9",
)
_SCANNED = _vmstat("pages_scanned", "Pages that reclaim looked at, by who reclaims", "pgscan_direct, kswapd", ("by",))
_STOLEN = _vmstat("pages_reclaimed", "Pages that reclaim freed, by who reclaims", "pgsteal_direct, _kswapd", ("by",))
_STALLS = _vmstat("allocstall", "Allocations that had to reclaim memory themselves first", "the sum of allocstall_ZONE")
_SWAPPED = _vmstat(
    "swap_pages", "Pages moved from and to swap, by direction (in, out)", "pswpin, pswpout", ("direction",)
)
_MIGRATED = _vmstat("numa_pages_migrated", "Pages that NUMA balancing moved between nodes", "numa_pages_migrated")

PRESSURE = Metric(
    "oomcast_host_pressure_seconds_total",
    "counter",
    "Seconds in which some or all (full) tasks waited for the resource, from the host's boot on"
    " (total= of /proc/pressure/cpu, memory, io, irq).",
    ("resource", "kind"),
    absent="the kernel has no PSI (CONFIG_PSI, psi=0); resource=irq before Linux 6.1 and kind=some of it always;"
    " kind=full of cpu before Linux 5.13",
)

METRICS = (OOM_KILLS, _MAJOR, _REFAULTS, _SCANNED, _STOLEN, _STALLS, _SWAPPED, _MIGRATED, PRESSURE)

ALLOCSTALL = "allocstall"


@dataclass(frozen=True, slots=True)
class _Row:
    series: Series
    field: str


_ROWS: tuple[tuple[Metric, tuple[str, ...], str], ...] = (
    (OOM_KILLS, (), "oom_kill"),
    (_MAJOR, (), "pgmajfault"),
    (_REFAULTS, ("anon",), "workingset_refault_anon"),
    (_REFAULTS, ("file",), "workingset_refault_file"),
    (_SCANNED, ("direct",), "pgscan_direct"),
    (_SCANNED, ("kswapd",), "pgscan_kswapd"),
    (_STOLEN, ("direct",), "pgsteal_direct"),
    (_STOLEN, ("kswapd",), "pgsteal_kswapd"),
    (_STALLS, (), ALLOCSTALL),
    (_SWAPPED, ("in",), "pswpin"),
    (_SWAPPED, ("out",), "pswpout"),
    (_MIGRATED, (), "numa_pages_migrated"),
)

# Anonymous pages had no workingset before 5.9, so the one counter of then is the file counter of now.
_FIELDS = {row[2].encode(): row[2] for row in _ROWS} | {b"workingset_refault": "workingset_refault_file"}
_ZONES = tuple(b"allocstall_" + zone for zone in (b"dma", b"dma32", b"normal", b"high", b"movable", b"device"))
_LINE = line_pattern((*_FIELDS, *_ZONES), rb"(?: .*)?")


def parse_vmstat(data: bytes) -> Parsed:
    """The counters that oomcast uses; the zones of allocstall summed up, and left out if one of them is malformed."""
    lines, malformed = whole_lines(data)
    values: dict[str, int] = {}
    for name, text in _LINE.findall(lines):
        field = _FIELDS.get(name, ALLOCSTALL)
        value = number(text[1:])
        if value is None or (field in values and field != ALLOCSTALL):
            malformed.add(field)
        else:
            values[field] = values.get(field, 0) + value
    if ALLOCSTALL in malformed:
        values.pop(ALLOCSTALL, None)
    return Parsed(values, frozenset(malformed))


def parse_pressure(data: bytes) -> Parsed:
    """The microseconds in `total=` by kind, "some" or "full"."""
    lines, malformed = whole_lines(data)
    values: dict[str, int] = {}
    for line in lines.splitlines():
        words = line.split()
        kind = words[0].decode("ascii", "replace") if words else ""
        if kind not in ("some", "full"):
            continue
        last = words[-1]
        value = number(last[6:]) if last.startswith(b"total=") else None
        if value is None or kind in values:
            malformed.add(kind)
        else:
            values[kind] = value
    return Parsed(values, frozenset(malformed))


class Counters:
    """Turns raw counts into samples, and notices when one of them started again.

    created: UTC seconds of the host's boot, where all of them began at 0, or None.
    """

    def __init__(self, log: logging.Logger) -> None:
        self.created: float | None = None
        self._log = log
        self._last: dict[Series, float] = {}
        self._reset: set[Series] = set()
        self._vmstat = [_Row(metric.series(*labels), field) for metric, labels, field in _ROWS]
        self._pressure = {(r, k): PRESSURE.series(r, k) for r in RESOURCES for k in ("some", "full")}

    def vmstat(self, values: dict[str, int]) -> list[Sample]:
        return [self._sample(row.series, values[row.field]) for row in self._vmstat if row.field in values]

    def pressure(self, resource: str, values: dict[str, int]) -> list[Sample]:
        return [self._sample(self._pressure[resource, kind], us / 1e6) for kind, us in values.items()]

    def _sample(self, series: Series, value: float) -> Sample:
        if value < self._last.get(series, 0.0) and series not in self._reset:
            # Since when it counts is not known any more; once, since a counter that is broken does this for ever.
            self._reset.add(series)
            self._log.warning("%s went back from %s to %s: a reset", series.head.strip(), self._last[series], value)
        self._last[series] = value
        return Sample(series, value, None if series in self._reset else self.created)
