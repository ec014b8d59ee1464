"""The host's own memory, reclaim and pressure, and the serving processes on it."""

from boards.meanings import LIMIT
from boards.panels import WARN, Panel, lines
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


def panels(limit: Limits) -> tuple[Panel, ...]:
    def memory(name: str) -> str:
        return f"sum {by()} ({of(f'oomcast_host_memory_{name}_bytes')})"

    def each(*names: tuple[str, str]) -> tuple[Query, ...]:
        return tuple(Query(f"sum {by()} ({of(f'oomcast_host_{metric}_bytes')})", f"{{{{node}}}} {name}")
                     for metric, name in names)  # fmt: skip

    stalled = of("oomcast_host_pressure_seconds_total", 'resource=~"memory|io"')
    faults = "oomcast_process_major_faults_total"
    resident = f"sum {by('process', 'kind')} ({of('oomcast_process_resident_bytes')})"
    return (
        lines(
            "Host memory",
            "What it is used for, one on another; of several nodes one on another too. What reclaim can free is on"
            " top.",
            *(Query(memory(name), f"{{{{node}}}} {text}") for name, text in _KINDS.items()),
            unit="bytes", stacked=True, alerts=("OomcastHostExhaustion",),
            colours={".*anonymous": "blue", ".*free": "#6e7681", ".*page cache": "green"},
        ),
        lines(
            "Host memory available", "What can be given out without swapping, of all there is.",
            Query(memory("available"), "{{node}} available"), Query(memory("total"), "{{node}} limit"),
            unit="bytes", colours={".*(limit|usual|usable|median)": LIMIT}, alerts=("OomcastHostExhaustion",),
        ),
        lines(
            "Pressure", "Share of the time in which some, or all (full), waited for memory or a device.",
            Query(f"max {by('resource', 'kind')} ({rate(stalled)})", "{{node}} {{resource}} {{kind}}"),
            unit="percentunit", maximum=1, none="no PSI in this kernel", limits=((limit["pressure"], WARN),),
            alerts=("OomcastMemoryThrash",),
        ),
        lines(
            "Reclaim", "Pages that reclaim looked at and freed, in the background (kswapd) and by whoever allocates.",
            Query(per_second("oomcast_host_pages_scanned_total", "by"), "{{node}} scanned by {{by}}"),
            Query(per_second("oomcast_host_pages_reclaimed_total", "by"), "{{node}} freed by {{by}}"),
            Query(per_second("oomcast_host_allocstall_total"), "{{node}} allocations that waited"),
            unit="ops", alerts=("OomcastMemoryThrash",),
        ),
        lines(
            "Pages read back", "Pages that reclaim took and that were needed again, and all faults that read a disk.",
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
            "Memory of serving processes", "By kind: anonymous, mapped files such as weights, shared.",
            Query(resident, "{{node}} {{process}} {{kind}}"),
            Query(f"sum {by('process')} ({of('oomcast_process_swap_bytes')})", "{{node}} {{process}} swapped"),
            Query(f"sum {by('process')} ({of('oomcast_process_locked_bytes')})", "{{node}} {{process}} locked"),
            unit="bytes", width=12, none="no serving process here", alerts=("OomcastHostExhaustion",),
        ),
        lines(
            "Major faults of serving processes", "Page faults that read a disk: weights or caches that do not fit.",
            Query(per_second(faults, "process"), "{{node}} {{process}}"),
            unit="ops", width=12, none="no serving process here", alerts=("OomcastMajorFaults",),
        ),
    )  # fmt: skip
