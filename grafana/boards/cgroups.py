"""Cgroups of a node: what cannot be reclaimed against the limit, and what shows that reclaim cannot keep up."""

from boards.meanings import LEFT, time_steps
from boards.panels import BAD, LIMITS, USUAL, WARN, Panel, lines, never
from boards.query import CGROUP, Query, by, increase, of, on, per_second, rate, recorded, short
from boards.tables import Column, table
from oomcast.rules.config import duration
from oomcast.rules.reclaim import FAULTS
from oomcast.rules.thresholds import Limits

_LEGEND = "{{node}} {{short}}"
_TOP = 8
_KINDS = "anon|file|shmem|slab_reclaimable|slab_unreclaimable|sock|pagetables|percpu"


def gauge(metric: str) -> str:
    return f"max {by('cgroup')} ({of(metric, CGROUP)})"


def top(expr: str) -> str:
    """The largest, with a short name: a node has hundreds of cgroups."""
    return short(f"topk({_TOP}, {expr})", "cgroup")


def panels(limit: Limits) -> tuple[Panel, ...]:
    unreclaimable, bound = (gauge(f"oomcast_cgroup_memory_{one}_bytes") for one in ("unreclaimable", "effective_limit"))
    share = f"{unreclaimable} / ({bound} > 0)"
    stalled = of("oomcast_cgroup_pressure_seconds_total", CGROUP, 'resource="memory"', 'kind="full"')
    return (
        _list(limit, unreclaimable, bound, share),
        lines(
            "Unreclaimable memory, share of the limit",
            f"The {_TOP} fullest at each moment. What no reclaim can free, of the lowest limit of the cgroup and of"
            " what encloses it: at 100 % the OOM killer comes.",
            Query(top(share), _LEGEND), unit="percentunit", maximum=1, none="no cgroup with a limit",
            limits=((1, BAD),), alerts=("OomcastCgroupExhaustion", "OomcastTenantExhaustion"),
        ),
        lines(
            "Memory of cgroups",
            f"The {_TOP} largest by what cannot be reclaimed, and the limits of cgroups that have one of their own.",
            Query(top(unreclaimable), f"{_LEGEND} unreclaimable"),
            Query(top(gauge("oomcast_cgroup_memory_max_bytes")), f"{_LEGEND} limit"),
            Query(top(gauge("oomcast_cgroup_memory_high_bytes")), f"{_LEGEND} throttled above"),
            Query(top(gauge("oomcast_cgroup_swap_used_bytes")), f"{_LEGEND} swap"),
            unit="bytes", none="no cgroup here", colours=LIMITS,
            alerts=("OomcastCgroupExhaustion",),
        ),
        lines(
            "Memory pressure",
            "Share of the time in which nobody in the cgroup could go on for want of memory.",
            Query(top(f"max {by('cgroup')} ({rate(stalled)})"), _LEGEND),
            unit="percentunit", maximum=1, none="no PSI here", limits=((limit["pressure"], WARN),),
            alerts=("OomcastMemoryThrash",),
        ),
    )  # fmt: skip


def tight(limit: Limits) -> tuple[Panel, ...]:
    """What shows that reclaim cannot keep up."""
    refaults = per_second("oomcast_cgroup_workingset_refaults_total", "cgroup", where=(CGROUP,))
    faults = recorded(FAULTS, CGROUP)
    usual = f"quantile_over_time(0.5, {faults}[{duration(limit['faults_window'])}])"
    return (
        lines(
            "Limit met", "Charges that met the limit and had to reclaim first, and slow-downs above memory.high.",
            Query(top(per_second("oomcast_cgroup_memory_limit_hits_total", "cgroup", where=(CGROUP,))),
                  f"{_LEGEND} limit"),
            Query(top(per_second("oomcast_cgroup_memory_high_hits_total", "cgroup", where=(CGROUP,))),
                  f"{_LEGEND} high"),
            unit="ops", none="no cgroup with a limit", alerts=("OomcastCgroupExhaustion",),
        ),
        lines(
            "Pages read back into cgroups",
            "Evicted pages that were needed again soon: with pressure, the working set does not fit.",
            Query(top(refaults), _LEGEND), unit="ops", none="no cgroup here", limits=((limit["refaults"], WARN),),
            alerts=("OomcastMemoryThrash",),
        ),
        lines(
            "Major faults, and their usual",
            "Page faults that read a disk, and the median of the cgroup's own day. Above the line and ten times its"
            " usual they are an alert.",
            Query(top(faults), _LEGEND), Query(top(usual), f"{_LEGEND} usual"), unit="ops", none="no rules are loaded",
            colours=USUAL, limits=((limit["faults_least"], WARN),),
            alerts=("OomcastMajorFaults",),
        ),
    )  # fmt: skip


def _list(limit: Limits, unreclaimable: str, bound: str, share: str) -> Panel:
    left = of("oomcast_time_to_exhaustion_seconds", 'resource="cgroup_memory"', CGROUP)
    info = of("oomcast_cgroup_info", CGROUP)
    names = by("cgroup", "unit", "k8s_namespace", "k8s_pod", "k8s_container", "slurm_job")
    steps = time_steps(limit)
    link = (
        "/d/oomcast-forensics?var-cgroup=${__data.fields.Cgroup}&${node:queryparam}&${cluster:queryparam}"
        "&${job:queryparam}&${datasource:queryparam}&${__url_time_range}"
    )
    return table(
        "Cgroups with a limit",
        "The fullest, by what cannot be reclaimed. Click one for its memory by kind.",
        Query(f"topk(50, {share})"), Query(f"{unreclaimable} and {bound}"), Query(bound),
        Query(f"min {by('cgroup')} ({left})"),
        Query(f"group {names} ({info}) and {on('cgroup')} {bound}"),
        columns=(
            Column("node", "Node"), Column("cgroup", "Cgroup", link=link),
            Column("#D", "Runs out in", LEFT, steps, mapping=never(), width=115),
            Column("#A", "Of its limit", "percentunit", ((1, BAD),), decimals=1, width=105),
            Column("#B", "Unreclaimable", "bytes", width=115), Column("#C", "Limit", "bytes", width=100),
            Column("unit", "Unit"), Column("k8s_namespace", "Namespace"), Column("k8s_pod", "Pod"),
            Column("k8s_container", "Container"), Column("slurm_job", "Slurm job"),
        ),
        sort=("-Of its limit",), alerts=("OomcastCgroupExhaustion",), height=7,
    )  # fmt: skip


def memory_by_kind() -> Panel:
    kinds = of("oomcast_cgroup_memory_stat_bytes", CGROUP, f'kind=~"{_KINDS}"')
    return lines(
        "Memory by kind",
        "memory.stat of the chosen cgroups: anon grows in a leak, file is page cache and mapped weights (shmem, which"
        " is shared memory, is part of it), the rest is the kernel's. Choose one cgroup: of several the largest are"
        " drawn.",
        Query(short(f"topk(16, max {by('cgroup', 'kind')} ({kinds}))", "cgroup"), f"{_LEGEND} {{{{kind}}}}"),
        unit="bytes", width=12, height=9, none="no cgroup watched in full", alerts=("OomcastOomKill",),
    )  # fmt: skip


def reclaim() -> tuple[Panel, ...]:
    def pages(metric: str, label: str) -> str:
        return short(f"topk({_TOP}, {per_second(metric, 'cgroup', label, where=(CGROUP,))})", "cgroup")

    used = f"max {by('cgroup')} ({of('oomcast_cgroup_memory_used_bytes', CGROUP)})"
    kills = f"sum {by('cgroup', 'scope')} ({increase(of('oomcast_cgroup_oom_kills_total', CGROUP))}) > 0"
    return (
        lines(
            "Memory charged", "All memory of the cgroup, page cache included: what `docker stats` and the like show.",
            Query(top(used), _LEGEND), unit="bytes", none="no cgroup here", alerts=("OomcastCgroupExhaustion",),
        ),
        lines(
            "Reclaim in cgroups", "Pages that reclaim looked at and freed; of v1 pages charged and uncharged.",
            Query(pages("oomcast_cgroup_reclaim_pages_total", "kind"), f"{_LEGEND} {{{{kind}}}}"),
            Query(pages("oomcast_cgroup_page_charges_total", "direction"), f"{_LEGEND} charged {{{{direction}}}}"),
            unit="ops", none="no cgroup watched in full", alerts=("OomcastMemoryThrash",),
        ),
        lines(
            "Major faults of cgroups", "Page faults that read a disk.",
            Query(top(per_second("oomcast_cgroup_pgmajfault_total", "cgroup", where=(CGROUP,))), _LEGEND),
            unit="ops", none="no cgroup here", alerts=("OomcastMajorFaults",),
        ),
        lines(
            "Kills as cgroups count them",
            "From the cgroups' own counters, which parents repeat (scope hierarchical). Each kill is counted once"
            " above.",
            Query(short(kills, "cgroup"), f"{_LEGEND} {{{{scope}}}}"),
            unit="short", bars=True, decimals=0, alerts=("OomcastOomKill",),
        ),
        lines(
            "Removed cgroups that hold memory", "Descendants that are gone and still hold memory.",
            Query(top(gauge("oomcast_cgroup_dying_descendants")), _LEGEND),
            unit="short", decimals=0, none="no cgroup v2 here",
        ),
    )  # fmt: skip
