"""What eBPF probes tell of allocations and CUDA."""

from boards.panels import WARN, Panel, lines
from boards.query import Query, by, of, per_second
from oomcast.rules.thresholds import Limits

_OFF = "no eBPF, or the probe is off"
_NO_CUDA = "no eBPF, or no CUDA"
_LEGEND = "{{node}} {{process}} {{kind}}"


def panels(limit: Limits) -> tuple[Panel, ...]:
    def flow(metric: str) -> str:
        return per_second(f"oomcast_alloc_{metric}_total", "process", "kind")

    outstanding = of("oomcast_alloc_outstanding_bytes")
    growth = f"sum {by('process', 'kind')} ({of('oomcast_alloc_growth_bytes_per_second')})"
    return (
        lines(
            "Outstanding by age", "Bytes given and not given back, by how old they are at least, in seconds.",
            Query(f"sum {by('process', 'older_than')} ({outstanding})", "{{node}} {{process}} > {{older_than}} s"),
            unit="bytes", stacked=True, none=_OFF, alerts=("OomcastAllocationGrowth",),
        ),
        lines(
            "Outstanding by kind", "Bytes given and not given back, of all ages.",
            Query(f"sum {by('process', 'kind')} ({outstanding})", _LEGEND), unit="bytes", none=_OFF,
            alerts=("OomcastAllocationGrowth",),
        ),
        lines(
            "Growth", "How fast outstanding bytes rose over the last minute; below zero they fell.",
            Query(growth, _LEGEND), unit="Bps", none=_OFF, minimum=None, limits=((limit["allocation_growth"], WARN),),
            alerts=("OomcastAllocationGrowth",),
        ),
        lines(
            "Bytes given and given back", "By kind: libc, mmap, brk, CUDA, arenas.",
            Query(flow("bytes"), f"{_LEGEND} given"), Query(flow("freed_bytes"), f"{_LEGEND} given back"),
            unit="Bps", none=_OFF, alerts=("OomcastAllocationGrowth",),
        ),
        lines(
            "Calls", "Calls that gave memory, gave it back, or gave back what was not known.",
            Query(flow("calls"), f"{_LEGEND} given"), Query(flow("frees"), f"{_LEGEND} given back"),
            Query(flow("unknown_frees"), f"{_LEGEND} not known"), unit="ops", none=_OFF,
        ),
        lines(
            "Allocations that failed", "Calls that gave no memory.",
            Query(flow("failures"), _LEGEND), unit="ops", none=_OFF, alerts=("OomcastLogOutOfMemory",),
        ),
        lines(
            "Blocks outstanding", "The number of blocks that were not given back.",
            Query(f"sum {by('process', 'kind')} ({of('oomcast_alloc_outstanding_blocks')})", _LEGEND),
            unit="short", none=_OFF, width=12, alerts=("OomcastAllocationGrowth",),
        ),
        lines(
            "Major faults by file", "Page faults that read a disk: weights, libraries, swap.",
            Query(per_second("oomcast_major_faults_total", "process", "file"), "{{node}} {{process}} {{file}}"),
            unit="ops", none=_OFF, width=12, alerts=("OomcastMajorFaults",),
        ),
    )  # fmt: skip


def cuda() -> tuple[Panel, ...]:
    def per_gpu(metric: str, label: str) -> str:
        return per_second(metric, "gpu_uuid", label)

    def per_process(metric: str, name: str) -> Query:
        return Query(per_second(metric, "process"), f"{{{{node}}}} {{{{process}}}} {name}")

    return (
        lines(
            "Faults on unified memory", "Of each GPU, and pages that moved for them.",
            Query(per_gpu("oomcast_uvm_faults_total", "access"), "{{node}} {{gpu_uuid}} {{access}}"),
            Query(per_gpu("oomcast_uvm_migrated_pages_total", "direction"),
                  "{{node}} {{gpu_uuid}} pages {{direction}}"),
            unit="ops", none="the driver does not tell", width=6,
        ),
        lines(
            "Unified memory", "Bytes that processes allocated, and asked to move ahead.",
            per_process("oomcast_uvm_managed_bytes_total", "allocated"),
            per_process("oomcast_uvm_prefetched_bytes_total", "prefetched"), unit="Bps", none=_NO_CUDA, width=6,
        ),
        lines(
            "Prefetches and conflicts", "Prefetch calls, and writes of two streams that nothing orders.",
            per_process("oomcast_uvm_prefetches_total", "prefetches"),
            per_process("oomcast_cuda_stream_conflicts_total", "conflicts"), unit="ops", none=_NO_CUDA, width=6,
        ),
        lines(
            "CUDA contexts and streams", "Contexts that processes made or retained, and streams in them.",
            Query(f"sum {by('process')} ({of('oomcast_cuda_contexts')})", "{{node}} {{process}} contexts"),
            Query(f"sum {by('process')} ({of('oomcast_cuda_streams')})", "{{node}} {{process}} streams"),
            unit="short", decimals=0, none=_NO_CUDA, width=6,
        ),
    )  # fmt: skip
