"""GPUs of a node: memory between peaks and plateau, who has it, and the hardware."""

from boards.meanings import LEFT, RECOVERY, gpu_timeline
from boards.panels import BAD, GOOD, LIMITS, Panel, lines, never, states
from boards.query import GPU, Query, by, gpu, increase, of, on, per_second, ranked, rate, short, usable
from boards.tables import Column, table
from oomcast.rules.thresholds import Limits

_NONE = "no GPU here"
_LEGEND = "{{node}} {{short}}"


def memory(limit: Limits) -> tuple[Panel, ...]:
    peak, plateau = _peak_and_plateau()
    return (
        peaks(limit),
        lines(
            "GPU memory",
            "Used now, at its peak of the last minute, the plateau, and what can be allocated.",
            Query(short(usable(), "gpu"), f"{_LEGEND} usable"),
            Query(short(peak, "gpu"), f"{_LEGEND} peak"),
            Query(short(gpu("oomcast_gpu_memory_used_bytes"), "gpu"), f"{_LEGEND} used"),
            Query(short(plateau, "gpu"), f"{_LEGEND} plateau"),
            unit="bytes", width=12, height=9, none=_NONE,
            colours={
                **LIMITS, ".*peak": "orange", ".*used": "blue", ".*plateau": "purple",
            },
            alerts=("OomcastGpuMemoryFull", "OomcastGpuMemoryShrunk"),
        ),
        lines(
            "GPU memory left",
            "Free at the peak of the last minute, and above the plateau: the largest allocation that can succeed.",
            Query(short(gpu("oomcast_gpu_memory_free_min_bytes"), "gpu"), f"{_LEGEND} free at the peak"),
            Query(short(gpu("oomcast_gpu_memory_plateau_headroom_bytes"), "gpu"), f"{_LEGEND} above the plateau"),
            Query(short(gpu("oomcast_gpu_memory_largest_step_bytes"), "gpu"), f"{_LEGEND} largest step"),
            unit="bytes", none=_NONE, alerts=("OomcastGpuMemoryFull", "OomcastGpuExhaustion"),
        ),
        holders(),
        gpu_timeline(8),
    )  # fmt: skip


def peaks(limit: Limits, width: int = 12, height: int = 9) -> Panel:
    peak, plateau = _peak_and_plateau()
    return lines(
        "GPU memory at its peak, share of usable",
        "Largest reading of each minute, as a share of what can be allocated, and what memory returns to (plateau)."
        " The green line is an engine that is well (18.2 of 80 GB), the red one its crash. A pool that is reserved"
        " may stand near the red line all day: then only a peak above the plateau is one.",
        Query(short(f"{peak} / ({usable()} > 0)", "gpu"), f"{_LEGEND} peak"),
        Query(short(f"{plateau} / ({usable()} > 0)", "gpu"), f"{_LEGEND} plateau"),
        unit="percentunit", maximum=1, width=width, height=height, none=_NONE,
        limits=((limit["healthy_memory"], GOOD), (limit["crash_memory"], BAD)), alerts=("OomcastGpuMemoryFull",),
    )  # fmt: skip


def holders() -> Panel:
    return lines(
        "Who has GPU memory",
        "The largest and fastest growing processes, the rest of them, and what no process on the driver's list"
        " holds.",
        Query(
            f"topk(10, max {by('process', 'pid', 'cgroup', 'gpu')}"
            f" ({of('oomcast_gpu_process_memory_bytes', GPU)}))",
            "{{node}} {{process}} {{pid}}",
        ),
        Query(f"sum {by()} ({of('oomcast_gpu_process_memory_other_bytes', GPU)})", "{{node}} others"),
        Query(f"sum {by()} ({of('oomcast_gpu_memory_unattributed_bytes', GPU)})", "{{node}} of nobody"),
        unit="bytes", none="no process on a GPU", alerts=("OomcastGpuExhaustion",),
    )  # fmt: skip


def _peak_and_plateau() -> tuple[str, str]:
    return gpu("oomcast_gpu_memory_used_peak_bytes"), gpu("oomcast_gpu_memory_plateau_bytes")


def hardware() -> tuple[Panel, ...]:
    def each(title: str, text: str, unit: str, *metrics: tuple[str, str], alerts: tuple[str, ...] = ()) -> Panel:
        queries = (Query(short(gpu(metric), "gpu"), f"{_LEGEND} {name}".rstrip()) for metric, name in metrics)
        top = 1 if unit == "percentunit" else None
        return lines(title, text, *queries, unit=unit, maximum=top, none=_NONE, alerts=alerts)

    def moved(title: str, text: str, metric: str) -> Panel:
        expr = short(per_second(metric, "gpu", "direction", where=(GPU,)), "gpu")
        return lines(title, text, Query(expr, f"{_LEGEND} {{{{direction}}}}"), unit="Bps", none=_NONE)

    full = f"round(sum {by('gpu')} ({increase(of('oomcast_gpu_memory_exhaustions_total', GPU))})) > 0"
    recovery = short(ranked("oomcast_gpu_recovery_action", tuple(RECOVERY), by("gpu"), GPU), "gpu")
    ecc = short(f"sum {by('gpu', 'kind')} ({increase(of('oomcast_gpu_ecc_errors_total', GPU))}) > 0", "gpu")
    clock = short(f"max {by('gpu', 'clock')} ({of('oomcast_gpu_clock_hertz', GPU)})", "gpu")
    warmth = short(f"max {by('gpu', 'sensor')} ({of('oomcast_gpu_temperature_celsius', GPU)})", "gpu")
    rows = short(f"max {by('gpu', 'kind')} ({of('oomcast_gpu_remapped_rows', GPU)})", "gpu")
    return (
        table(
            "GPUs", "What each GPU is, and where its readings come from.",
            Query(f"group {by('gpu', 'index', 'name', 'driver', 'source', 'memory_kind', 'mig', 'pci_bus_id')}"
                  f" ({of('oomcast_gpu_info', GPU)})"),
            columns=(
                Column("node", "Node"), Column("index", "Index", width=70), Column("gpu", "GPU", width=320),
                Column("name", "Name"), Column("driver", "Driver", width=110), Column("source", "Source", width=90),
                Column("memory_kind", "Memory", width=100), Column("mig", "MIG", width=70),
                Column("pci_bus_id", "PCI bus", width=120),
            ),
            none=_NONE, height=6,
        ),
        lines(
            "Xids",
            "Errors of the NVIDIA driver by code, each counted once; docs/xid.md says what the codes mean.",
            Query(f"sum {by('xid')} ({increase(of('oomcast_xid_errors_total'))}) > 0", "{{node}} Xid {{xid}}"),
            unit="short", bars=True, decimals=0, alerts=("OomcastXid",),
        ),
        lines(
            "GPUs that are here",
            "GPUs that the driver's source counts, those that should be here, and those that answer.",
            Query(f"max {by()} ({of('oomcast_gpus')})", "{{node}} here"),
            Query(f"max {by()} ({of('oomcast_gpus_expected')})", "{{node}} expected"),
            Query(f"sum {by()} ({of('oomcast_gpu_up')})", "{{node}} answer"),
            unit="short", decimals=0, none=_NONE, alerts=("OomcastGpusMissing",),
        ),
        states(
            "What the driver asks for", "What must be done to make a GPU healthy again.",
            Query(recovery, _LEGEND), names=tuple(RECOVERY), colours=tuple(RECOVERY.values()), none=_NONE,
            alerts=("OomcastGpuNeedsRecovery",), width=8, height=8,
        ),
        lines(
            "Memory rows and errors",
            "Errors of GPU memory, rows that were replaced, and replacements that wait or failed.",
            Query(ecc, f"{_LEGEND} {{{{kind}}}} errors"), Query(rows, f"{_LEGEND} {{{{kind}}}} rows"),
            Query(short(gpu("oomcast_gpu_row_remap_pending"), "gpu"), f"{_LEGEND} pending"),
            Query(short(gpu("oomcast_gpu_row_remap_failed"), "gpu"), f"{_LEGEND} failed"),
            unit="short", none=_NONE, alerts=("OomcastGpuNeedsRecovery", "OomcastXid"),
        ),
        each("Utilisation",
             "Share of the time in which a kernel ran, or memory was read or written; not how full it is.",
             "percentunit", ("oomcast_gpu_utilization_ratio", "busy"),
             ("oomcast_gpu_memory_copy_utilization_ratio", "memory traffic")),
        each("Power", "Power that is drawn, and that may be drawn.", "watt",
             ("oomcast_gpu_power_watts", "drawn"), ("oomcast_gpu_power_limit_watts", "limit")),
        lines("Temperature", "Of the chip and of its memory, where it is told.",
              Query(warmth, f"{_LEGEND} {{{{sensor}}}}"), unit="celsius", none=_NONE),
        lines("Clocks", "Present clock frequencies.", Query(clock, f"{_LEGEND} {{{{clock}}}}"), unit="hertz",
              none=_NONE),
        moved("PCIe", "Bytes over PCIe; a lower bound where the driver's counter wraps.",
              "oomcast_gpu_pcie_bytes_total"),
        moved("NVLink", "Bytes over all NVLinks.", "oomcast_gpu_nvlink_bytes_total"),
        each("Processes on the GPU", "Processes on the driver's list, and those that have no name here.", "short",
             ("oomcast_gpu_processes", "all"), ("oomcast_gpu_processes_unresolved", "unresolved")),
        lines(
            "Most that processes ever held", "By the driver's accounting, where that is on.",
            Query(short(gpu("oomcast_gpu_process_memory_peak_bytes"), "gpu"), _LEGEND),
            unit="bytes", none="accounting is off",
        ),
        lines(
            "Time exhausted",
            "Share of the time at or above 98 % of what can be allocated. Of a pool that is reserved this is normal.",
            Query(short(f"max {by('gpu')} ({rate(of('oomcast_gpu_memory_exhausted_seconds_total', GPU))})", "gpu"),
                  _LEGEND),
            unit="percentunit", maximum=1, none=_NONE, alerts=("OomcastGpuMemoryFull",),
        ),
        lines(
            "Exhaustions", "Times that memory was full for half a second or longer.",
            Query(short(full, "gpu"), _LEGEND), unit="short", bars=True, alerts=("OomcastGpuMemoryFull",), decimals=0,
        ),
    )  # fmt: skip


def instances() -> tuple[Panel, ...]:
    def of_instance(name: str) -> str:
        metric = of(f"oomcast_gpu_mig_memory_{name}_bytes", GPU)
        return f"max {by('gpu', 'gpu_instance')} ({metric})"

    total = of_instance("total")
    usable = f"({total} - {of_instance('reserved')} or {total})"
    legend = "{{node}} {{short}}/{{gpu_instance}}"
    info = f"group {by('gpu', 'gpu_instance', 'mig', 'profile')} ({of('oomcast_gpu_mig_info', GPU)})"
    left = of("oomcast_time_to_exhaustion_seconds", 'resource="gpu_mig_memory"')
    mig = f'label_replace(min {by("gpu")} ({left}), "mig", "$1", "gpu", "(.+)")'
    return (
        table(
            "MIG instances", "Instances of now, how full each is, and in how long it runs out.",
            Query(info), Query(f"{of_instance('used')} / ({usable} > 0)"),
            Query(f"{info} * {on('mig')} group_left max {by('mig')} ({mig})"),
            columns=(
                Column("node", "Node"), Column("gpu", "GPU"), Column("gpu_instance", "Instance"),
                Column("profile", "Profile"), Column("mig", "MIG device"), Column("#B", "Used", "percentunit"),
                Column("#C", "Runs out in", LEFT, mapping=never()),
            ),
            none="no MIG here", alerts=("OomcastGpuExhaustion",), height=6,
        ),
        lines(
            "Memory of MIG instances, at the peak",
            "Largest reading of the last minute, as a share of what can be had.",
            Query(short(f"{of_instance('used_peak')} / ({usable} > 0)", "gpu"), legend),
            unit="percentunit", maximum=1, width=12, none="no MIG here", alerts=("OomcastGpuExhaustion",),
        ),
        lines(
            "Memory left in MIG instances", "What can still be allocated in each.",
            Query(short(of_instance("free"), "gpu"), legend),
            unit="bytes", width=12, none="no MIG here", alerts=("OomcastGpuExhaustion",),
        ),
    )  # fmt: skip
