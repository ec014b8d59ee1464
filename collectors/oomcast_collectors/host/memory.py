"""/proc/meminfo and the zones' watermarks: what the host has, and what of it can still be given out."""

import re
from dataclasses import dataclass

from oomcast.contract import Level
from oomcast.metric import Metric, Sample, Series
from oomcast_collectors.host.files import Parsed, kibibytes, line_pattern, number, whole_lines

_PAGES = frozenset({"HugePages_Total", "HugePages_Free"})
_LOW = re.compile(rb"^ +low +(\d{1,15})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Row:
    """One gauge: the sum of `fields` of /proc/meminfo, absent when one of them is."""

    metric: Metric
    fields: tuple[str, ...]


def _row(name: str, meaning: str, *fields: str, absent: str = "") -> Row:
    source = " + ".join(fields)
    return Row(
        Metric(
            f"oomcast_host_{name}_bytes",
            "gauge",
            f"{meaning}, in bytes ({source} of /proc/meminfo).",
            absent=absent or f"the kernel's /proc/meminfo has no {source}, or the line is malformed",
        ),
        fields,
    )


_OLD = "the kernel is older than {} or its /proc/meminfo line is malformed"

ROWS: tuple[Row, ...] = (
    _row("memory_total", "Memory that the kernel manages, huge page pools included", "MemTotal"),
    _row("memory_available", "The kernel's estimate of what can be given out without swapping", "MemAvailable"),
    _row("memory_free", "Memory that is used for nothing", "MemFree"),
    _row("memory_anon", "Anonymous memory mapped by processes", "AnonPages"),
    _row("memory_shmem", "tmpfs, /dev/shm and shared anonymous memory; without swap not reclaimable", "Shmem"),
    _row("memory_file_cache", "Page cache of files, without shared memory", "Active(file)", "Inactive(file)"),
    _row("memory_mlocked", "Memory that processes locked", "Mlocked"),
    _row("memory_unevictable", "Memory that reclaim cannot take: locked, ramfs, secret memory", "Unevictable"),
    _row("memory_dirty", "Page cache that waits to be written back", "Dirty"),
    _row("memory_slab_reclaimable", "Kernel objects that reclaim can free", "SReclaimable"),
    _row("memory_slab_unreclaimable", "Kernel objects that reclaim cannot free", "SUnreclaim"),
    _row("memory_committed", "Memory that processes were promised, touched or not", "Committed_AS"),
    _row("memory_commit_limit", "What may be promised; binding only with vm.overcommit_memory=2", "CommitLimit"),
    _row("memory_hugetlb", "Memory set aside in huge page pools of all sizes", "Hugetlb", absent=_OLD.format("4.17")),
    _row("hugepages_total", "The pool of huge pages of the default size", "HugePages_Total"),
    _row("hugepages_free", "What is free in the pool of huge pages of the default size", "HugePages_Free"),
    _row("swap_total", "Swap space", "SwapTotal"),
    _row("swap_free", "Swap space that is free", "SwapFree"),
)

_FIELDS = {f.encode(): f for row in ROWS for f in row.fields} | {b"Hugepagesize": "Hugepagesize"}
_LINE = line_pattern(_FIELDS, rb":.*")


class MemorySamples:
    """The rows with their series, made once."""

    def __init__(self) -> None:
        self._rows: list[tuple[Series, tuple[str, ...]]] = [(row.metric.series(), row.fields) for row in ROWS]

    def __call__(self, memory: dict[str, int]) -> list[Sample]:
        out = []
        for series, fields in self._rows:
            if len(fields) == 1:
                if (value := memory.get(fields[0])) is not None:
                    out.append(Sample(series, value))
            elif all(field in memory for field in fields):
                out.append(Sample(series, sum(memory[field] for field in fields)))
        return out


def parse_meminfo(data: bytes) -> Parsed:
    """The fields that oomcast uses, in bytes. A field that comes twice counts as malformed from its second line on."""
    lines, malformed = whole_lines(data)
    values: dict[str, int] = {}
    for name, text in _LINE.findall(lines):
        field = _FIELDS[name]
        value = number(text[1:].strip()) if field in _PAGES else kibibytes(text[1:])
        if value is None or field in values:
            malformed.add(field)
        else:
            values[field] = value
    return Parsed(_page_counts_in_bytes(values), frozenset(malformed))


def _page_counts_in_bytes(values: dict[str, int]) -> dict[str, int]:
    size = values.pop("Hugepagesize", None)
    for field in _PAGES & values.keys():
        pages = values.pop(field)
        if size is not None:
            values[field] = pages * size
    return values


def parse_low_watermark(data: bytes) -> int | None:
    """The sum of the zones' low watermarks in /proc/zoneinfo, in pages; None when it names none."""
    found = _LOW.findall(data)
    return sum(map(int, found)) if found else None


def host_level(memory: dict[str, int], low: int, noise_floor: int) -> Level | None:
    """What of the host's memory and swap cannot be reclaimed, against what there is.

    low: bytes that the kernel keeps back. noise_floor: bytes below which a rise is none. None when a field is
    missing or the fields contradict each other.
    """
    total, available = memory.get("MemTotal"), memory.get("MemAvailable")
    if total is None or available is None:
        return None
    # A huge page pool can serve nobody else, and MemAvailable does not have it either.
    total -= memory.get("Hugetlb", memory.get("HugePages_Total", 0))
    used, capacity = total - available, total - low
    swap_total, swap_free = memory.get("SwapTotal"), memory.get("SwapFree")
    if swap_total is not None and swap_free is not None:
        if swap_free > swap_total:
            return None
        used += swap_total - swap_free
        capacity += swap_total
    if available > total or capacity <= 0:
        return None
    return Level("host_memory", (), used, capacity, noise=max(noise_floor, capacity / 1000))
