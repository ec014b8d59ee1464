"""The rows of the metric table that the cgroup collector fills."""

from oomcast.metric import Metric

_EACH = 20_000

USED = Metric(
    "oomcast_cgroup_memory_used_bytes",
    "gauge",
    "Memory charged to the cgroup and its descendants, page cache included (memory.current, memory.usage_in_bytes).",
    ("cgroup",),
    _EACH,
    absent="on the root cgroup of v2, which does not count it",
)
LIMIT = Metric(
    "oomcast_cgroup_memory_effective_limit_bytes",
    "gauge",
    "The lowest memory limit among the cgroup and its ancestors.",
    ("cgroup",),
    _EACH,
    absent="where neither the cgroup nor an ancestor has a limit",
)
UNRECLAIMABLE = Metric(
    "oomcast_cgroup_memory_unreclaimable_bytes",
    "gauge",
    "What no reclaim can free: memory charged, less evictable file pages and reclaimable slab (on v1, which does not"
    " tell slab apart, 1/32 of the file pages instead), and at least anonymous plus shared memory. Reaching the limit"
    " with it is an OOM kill; dirty or busily mapped file pages are freed slowly and not part of it.",
    ("cgroup",),
    _EACH,
)
OOM_KILLS = Metric(
    "oomcast_cgroup_oom_kills_total",
    "counter",
    "Processes that the kernel's OOM killer killed, from memory.events or memory.oom_control. scope hierarchical (v2):"
    " in the cgroup and its descendants, so parents repeat their children; own (v1): in the cgroup itself. Goes on over"
    " a cgroup made anew at the same path, and stays for ten minutes after the cgroup went. Alerts read"
    " oomcast_oom_kills_total, which counts each kill once.",
    ("cgroup", "scope"),
    _EACH,
    absent="before Linux 4.13",
)
PGMAJFAULT = Metric(
    "oomcast_cgroup_pgmajfault_total",
    "counter",
    "Page faults that had to read from disk, in the cgroup and its descendants. Lives on as the OOM kills do.",
    ("cgroup",),
    _EACH,
)
INFO = Metric(
    "oomcast_cgroup_info",
    "info",
    "What the cgroup belongs to, from its path and from the names under /var/log/pods; join on cgroup. version: of the"
    " hierarchy that accounts its memory. tier: core or full, the set of series it has.",
    (
        "cgroup", "version", "tier", "unit", "runtime", "container_id", "pod_uid", "k8s_namespace", "k8s_pod",
        "k8s_container", "slurm_job", "slurm_step", "lxc",
    ),
    _EACH,
    absent="labels are left out where they do not apply or are not known",
)  # fmt: skip
COUNT = Metric("oomcast_cgroups", "gauge", "Cgroups that are watched.")
TRUNCATED = Metric(
    "oomcast_cgroup_truncated",
    "gauge",
    "Cgroups that are selected but not watched, since there are more than max_cgroups; the deepest are left out.",
)
READ_ERRORS = Metric(
    "oomcast_cgroup_read_errors_total",
    "counter",
    "Readings of a cgroup given up over an unreadable or malformed file; a cgroup that vanished is none.",
)
CORE = (USED, LIMIT, UNRECLAIMABLE, OOM_KILLS, PGMAJFAULT, INFO, COUNT, TRUNCATED, READ_ERRORS)

STAT = Metric(
    "oomcast_cgroup_memory_stat_bytes",
    "gauge",
    "Memory by kind, under the names of v2's memory.stat (v1's rss reads anon, cache reads file). file includes shmem.",
    ("cgroup", "kind"),
    _EACH,
    absent="for kinds that the kernel does not tell",
)
MAX = Metric(
    "oomcast_cgroup_memory_max_bytes",
    "gauge",
    "The cgroup's own limit (memory.max, memory.limit_in_bytes).",
    ("cgroup",),
    _EACH,
    absent="without a limit of its own",
)
HIGH = Metric(
    "oomcast_cgroup_memory_high_bytes",
    "gauge",
    "Usage above which the cgroup is slowed down and reclaimed (memory.high).",
    ("cgroup",),
    _EACH,
    absent="on v1, and where it is not set",
)
SWAP = Metric(
    "oomcast_cgroup_swap_used_bytes",
    "gauge",
    "Swap used by the cgroup and its descendants.",
    ("cgroup",),
    _EACH,
    absent="where the kernel does not account swap",
)
LIMIT_HITS = Metric(
    "oomcast_cgroup_memory_limit_hits_total",
    "counter",
    "Times that a charge met the limit and had to reclaim first (max of memory.events, memory.failcnt).",
    ("cgroup",),
    _EACH,
)
HIGH_HITS = Metric(
    "oomcast_cgroup_memory_high_hits_total",
    "counter",
    "Times that processes were slowed down for being above memory.high.",
    ("cgroup",),
    _EACH,
    absent="on v1",
)
REFAULTS = Metric(
    "oomcast_cgroup_workingset_refaults_total",
    "counter",
    "Evicted pages that were needed again soon, by kind (anon, file; all before Linux 5.9).",
    ("cgroup", "kind"),
    _EACH,
)
PAGES = Metric(
    "oomcast_cgroup_reclaim_pages_total",
    "counter",
    "Pages that reclaim looked at (scan) and freed (steal).",
    ("cgroup", "kind"),
    _EACH,
    absent="on v1",
)
CHARGES = Metric(
    "oomcast_cgroup_page_charges_total",
    "counter",
    "Pages charged (in: pgpgin) and uncharged (out: pgpgout) in the subtree; no disk traffic despite the name.",
    ("cgroup", "direction"),
    _EACH,
    absent="on v2, which dropped them",
)
PRESSURE = Metric(
    "oomcast_cgroup_pressure_seconds_total",
    "counter",
    "Time that some or all (full) processes of the cgroup were stalled for want of cpu, memory or io (PSI).",
    ("cgroup", "resource", "kind"),
    _EACH,
    absent="without PSI, and on v1 without a cgroup2 mount of the same path",
)
DYING = Metric(
    "oomcast_cgroup_dying_descendants",
    "gauge",
    "Descendants that were removed but still hold memory (nr_dying_descendants of cgroup.stat).",
    ("cgroup",),
    _EACH,
    absent="on v1",
)
FULL = (STAT, MAX, HIGH, SWAP, LIMIT_HITS, HIGH_HITS, REFAULTS, PAGES, CHARGES, PRESSURE, DYING)

METRICS = CORE + FULL
