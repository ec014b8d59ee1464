"""What shows that reclaim cannot keep up, and who takes memory without giving it back."""

from oomcast.rules.config import Config
from oomcast.rules.rule import Alert, Recording

SERVING = "cgroup:oomcast_serving_start_timestamp_seconds:max"
"""Recorded with the forecasts."""

FAULTS = "cgroup:oomcast_cgroup_pgmajfault:rate5m"


def rules(c: Config) -> tuple[Recording | Alert, ...]:
    stalled = c.of("oomcast_cgroup_pressure_seconds_total", 'resource="memory", kind="full"')
    waits = c.of("oomcast_cgroup_pressure_seconds_total", 'resource=~"memory|io", kind="some"')
    refaults = f"max {c.by('cgroup', 'kind')} (rate({c.of('oomcast_cgroup_workingset_refaults_total')}[{c.ago(300)}]))"
    faults = f"max {c.by('cgroup')} (rate({c.of('oomcast_cgroup_pgmajfault_total')}[{c.ago(300)}]))"
    usual = f"quantile_over_time(0.5, {FAULTS}[{c.span('faults_window')}:{c.ago(300)}])"
    growth = f"avg_over_time({c.of('oomcast_alloc_growth_bytes_per_second')}[{c.ago(300)}])"
    return (
        Recording(
            FAULTS,
            f"{faults}\nand {c.on('cgroup')} {SERVING}",
            "Major faults of engines' cgroups, to be compared with their own past: a day of every cgroup there is would"
            " be more samples than Prometheus lets one query read.",
        ),
        Alert(
            "OomcastMemoryThrash", "warning", "memory", "symptom",
            f"max {c.by('cgroup')} (rate({stalled}[{c.ago(300)}])) > {c.value('pressure')}\n"
            f"and {c.on('cgroup')} sum {c.by('cgroup')} ({refaults}) > {c.value('refaults')}\n"
            f"and {c.on('cgroup')} {SERVING}",
            "{{ $labels.cgroup }} on <node> reads back what it just gave up",
            "All processes of {{ $labels.cgroup }} on <node> stood still for want of memory for"
            " {{ $value | humanizePercentage }} of the last five minutes, while pages that were reclaimed were read"
            " back. Next: raise its limit, or take load off it, before it is killed.",
            "Pressure alone may be one burst of reclaim; with refaults the working set does not fit.",
            hold=c.limits["kv_hold"], keep=c.limits["keep_warning"],
        ),
        Alert(
            "OomcastMajorFaults", "warning", "memory", "symptom",
            f"{FAULTS} > {c.value('faults_least')}\n"
            f"and {FAULTS} > {c.value('faults_factor')} * {usual}\n"
            f"and {c.on('cgroup')} max {c.by('cgroup')} (rate({waits}[{c.ago(300)}])) > {c.value('faults_pressure')}\n"
            f"and {c.on('cgroup')} (time() - {SERVING} > {c.value('load_grace')})",
            "{{ $labels.cgroup }} on <node> has {{ $value | humanize }} major page faults a second",
            "Major page faults of {{ $labels.cgroup }} on <node> are {{ $value | humanize }} a second, more than"
            f" {c.limits['faults_factor']:g} times its usual, and somebody waits for them: mapped weights or caches do"
            " not fit any more. Next: see on the board what took the memory.",
            "Compared with its own day, as an absolute limit is noise on nodes that map weights; not while a model is"
            " being mapped in.",
            hold=c.limits["exhaustion_hold"], keep=c.limits["keep_warning"],
        ),
        Alert(
            "OomcastAllocationGrowth", "warning", "memory", "forecast",
            f"max {c.by('process')} ({growth}) > {c.value('allocation_growth')}",
            "{{ $labels.process }} on <node> takes {{ $value | humanize1024 }}B a second and does not give it back",
            "Memory that {{ $labels.process }} on <node> allocated and did not free has grown by"
            f" {{{{ $value | humanize1024 }}}}B a second for {c.said('allocation_hold')}. Next: oomcast stacks on"
            " the node names the code.",
            "The kinds are layers, of which the fastest counts: what malloc takes it asks of the kernel. Five minutes"
            " on average, as requests come and go. A cache that warms up grows too, and ends within half an hour.",
            hold=c.limits["allocation_hold"], keep=c.limits["keep_warning"], board="forensics",
        ),
    )  # fmt: skip
