"""eBPF probes: what they see, and what they cost."""

from boards.panels import Panel, lines
from boards.query import Query, by, increase, of, per_second


def panels() -> tuple[Panel, ...]:
    off = "no eBPF here"
    return (
        lines(
            "Probes attached", "1 while the programs of a probe are in the kernel.",
            Query(f"min {by('probe')} ({of('oomcast_ebpf_probe_attached')})", "{{node}} {{probe}}"),
            unit="short", maximum=1, decimals=0, none=off, alerts=("OomcastProbeDetached",),
        ),
        lines(
            "What probes cost", "Time that they take from the processes they are attached to, of one core; estimated.",
            Query(f"max {by('probe', 'kind')} ({of('oomcast_ebpf_cost_ratio')})", "{{node}} {{probe}} {{kind}}"),
            unit="percentunit", none=off, alerts=("OomcastOverCpuBudget",),
        ),
        lines(
            "Share of the time that is followed", "Below 1 counters are estimates; at 0 the budget detached the kind.",
            Query(f"min {by('kind')} ({of('oomcast_alloc_followed_ratio')})", "{{node}} {{kind}}"),
            unit="percentunit", maximum=1, none=off, alerts=("OomcastProbeDetached",),
        ),
        lines(
            "Cost of one call", "Measured on the machine when the child starts.",
            Query(f"max {by('probe', 'kind')} ({of('oomcast_ebpf_cost_per_call_seconds')})",
                  "{{node}} {{probe}} {{kind}}"),
            unit="s", none=off,
        ),
        lines(
            "Memory of the child", "Of the process that holds the programs.",
            Query(f"max {by()} ({of('oomcast_ebpf_child_resident_bytes')})", "{{node}}"), unit="bytes", none=off,
            alerts=("OomcastOverMemoryBudget",),
        ),
        lines(
            "CPU of the child", "Of one core.",
            Query(per_second("oomcast_ebpf_child_cpu_seconds_total"), "{{node}}"), unit="percentunit", none=off,
            alerts=("OomcastOverCpuBudget",),
        ),
        lines(
            "Places and processes", "Where probes are attached, and how many processes are followed.",
            Query(f"sum {by('probe')} ({of('oomcast_ebpf_probe_points')})", "{{node}} {{probe}} places"),
            Query(f"sum {by('process')} ({of('oomcast_ebpf_targets')})", "{{node}} {{process}} processes"),
            unit="short", decimals=0, none=off, alerts=("OomcastProbeDetached",),
        ),
        lines(
            "Starts and failures", "Children started, and probes that could not be loaded or attached.",
            Query(f"sum {by()} ({increase(of('oomcast_ebpf_child_starts_total'))}) > 0", "{{node}} child started"),
            Query(f"sum {by('probe')} ({increase(of('oomcast_ebpf_probe_failures_total'))}) > 0",
                  "{{node}} {{probe}} failed"),
            unit="short", decimals=0, alerts=("OomcastProbeDetached",),
        ),
    )  # fmt: skip
