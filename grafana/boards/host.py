"""The host's own memory, reclaim and pressure, and the serving processes on it."""

from boards.panels import LIMITS, WARN, Panel, lines
from boards.query import Query, by, of, per_second, rate
from oomcast.rules.thresholds import Limits

_KINDS = {
    "anon": "anonymous",
    "shmem": "shared and tmpfs",
    "slab_unreclaimable": "kernel",
    "hugetlb": "huge page pools",
    "slab_reclaimable": "kernel, reclaimable",
    "file_cache": "page cache",
    "free": "free",
}
_COLOURS = {
    ".*anonymous": "blue",
    ".*shared and tmpfs": "purple",
    ".*kernel": "semi-dark-yellow",
    ".*huge page pools": "#8f3bb8",
    ".*kernel, reclaimable": "light-green",
    ".*page cache": "green",
    ".* free": "#6e7681",
}
"""Green is what reclaim can free."""


def _memory(name: str) -> str:
    return f"sum {by()} ({of(f'oomcast_host_memory_{name}_bytes')})"


def panels(limit: Limits) -> tuple[Panel, ...]:
    stalled = of("oomcast_host_pressure_seconds_total", 'resource=~"memory|io"')
    return (
        lines(
            "Host memory",
            "What it is used for, one on another; of several nodes one on another too. What reclaim can free is on"
            " top.",
            *(Query(_memory(name), f"{{{{node}}}} {text}") for name, text in _KINDS.items()),
            unit="bytes", stacked=True, alerts=("OomcastHostExhaustion",),
            colours=_COLOURS,
        ),
        lines(
            "Host memory available", "What can be given out without swapping, of all there is.",
            Query(_memory("available"), "{{node}} available"), Query(_memory("total"), "{{node}} limit"),
            unit="bytes", colours=LIMITS, alerts=("OomcastHostExhaustion",),
        ),
        lines(
            "Pressure", "Share of the time in which some, or all (full), waited for memory or a device.",
            Query(f"max {by('resource', 'kind')} ({rate(stalled)})", "{{node}} {{resource}} {{kind}}"),
            unit="percentunit", maximum=1, none="no PSI in this kernel", limits=((limit["pressure"], WARN),),
            alerts=("OomcastMemoryThrash",),
        ),
    )  # fmt: skip


def tight() -> tuple[Panel, ...]:
    """What shows that reclaim cannot keep up, and memory of which there is little."""

    def each(*names: tuple[str, str]) -> tuple[Query, ...]:
        return tuple(Query(f"sum {by()} ({of(f'oomcast_host_{metric}_bytes')})", f"{{{{node}}}} {name}")
                     for metric, name in names)  # fmt: skip

    return (
        lines(
            "Reclaim of the host",
            "Pages that reclaim looked at and freed, in the background (kswapd) and by whoever allocates.",
            Query(per_second("oomcast_host_pages_scanned_total", "by"), "{{node}} scanned by {{by}}"),
            Query(per_second("oomcast_host_pages_reclaimed_total", "by"), "{{node}} freed by {{by}}"),
            Query(per_second("oomcast_host_allocstall_total"), "{{node}} allocations that waited"),
            unit="ops", alerts=("OomcastMemoryThrash",),
        ),
        lines(
            "Pages read back by the host",
            "Pages that reclaim took and that were needed again, and all faults that read a disk.",
            Query(per_second("oomcast_host_refaults_total", "kind"), "{{node}} refaults {{kind}}"),
            Query(per_second("oomcast_host_pgmajfault_total"), "{{node}} major faults"),
            Query(per_second("oomcast_host_swap_pages_total", "direction"), "{{node}} swap {{direction}}"),
            Query(per_second("oomcast_host_numa_pages_migrated_total"), "{{node}} moved between NUMA nodes"),
            unit="ops", alerts=("OomcastMajorFaults",),
        ),
        lines(
            "Swap, locked and promised memory",
            "Promised memory beyond the limit matters with vm.overcommit_memory=2 only.",
            *each(
                ("swap_total", "swap"), ("swap_free", "swap free"), ("memory_mlocked", "locked"),
                ("memory_unevictable", "unevictable"), ("memory_dirty", "dirty"), ("memory_committed", "promised"),
                ("memory_commit_limit", "may be promised"), ("hugepages_total", "huge pages"),
                ("hugepages_free", "huge pages free"),
            ),
            unit="bytes", alerts=("OomcastHostExhaustion",),
        ),
        lines(
            "Major faults of serving processes", "Page faults that read a disk: weights or caches that do not fit.",
            Query(per_second("oomcast_process_major_faults_total", "process"), "{{node}} {{process}}"),
            unit="ops", none="no serving process here", alerts=("OomcastMajorFaults",),
        ),
    )  # fmt: skip


def processes() -> Panel:
    resident = f"sum {by('process', 'kind')} ({of('oomcast_process_resident_bytes')})"
    return lines(
        "Memory of serving processes", "By kind: anonymous, mapped files such as weights, shared.",
        Query(resident, "{{node}} {{process}} {{kind}}"),
        Query(f"sum {by('process')} ({of('oomcast_process_swap_bytes')})", "{{node}} {{process}} swapped"),
        Query(f"sum {by('process')} ({of('oomcast_process_locked_bytes')})", "{{node}} {{process}} locked"),
        unit="bytes", none="no serving process here", alerts=("OomcastHostExhaustion",),
    )  # fmt: skip
