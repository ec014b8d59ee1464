"""oomcast itself: whether it sees everything, fresh, and what that costs."""

from boards import probes
from boards.board import Board, Row
from boards.meanings import count_steps
from boards.panels import BAD, WARN, Panel, lines, mapping, tile
from boards.query import ENGINE, GPU, Query, by, gpu, increase, of, on, per_second, rate, short
from boards.tables import Column, table
from oomcast.rules.thresholds import Limits

_LOW = 6
"""Width and height of what is empty as long as all is well."""


def board(limit: Limits) -> Board:
    return Board(
        "itself",
        "Whether oomcast sees everything, how fresh that is, and what it costs.",
        (
            Row("Is it watching", (*_tiles(limit), _collectors(limit))),
            Row("What is missing", (*_missing(), _unlabelled())),
            Row("How fresh", _fresh(limit)),
            Row("What it costs", _cost(limit)),
            Row("What comes in", _input(), collapsed=True),
            Row("eBPF", probes.panels(), collapsed=True),
        ),
        ("engine", "gpu"),
    )


def _tiles(limit: Limits) -> tuple[Panel, ...]:
    up = f"max {by()} ({of('up')})"
    watchdog = "count(" + 'ALERTS{alertname="OomcastWatchdog", alertstate="firing"}' + ") or vector(0)"
    return (
        tile(
            "Unreachable", "Nodes whose oomcast does not answer.",
            Query(f"count({up} == 0) or vector(0)"), unit="short", steps=count_steps(), alerts=("OomcastDown",),
        ),
        tile(
            "Collectors that fail", "Collectors whose last run failed or was given up.",
            Query(f"count({of('oomcast_collector_up')} == 0) or vector(0)"), unit="short", steps=count_steps(WARN),
            alerts=("OomcastCollectorDown",),
        ),
        tile(
            "Most memory", "Resident memory of the largest daemon; the budget is 64 MB, the alert is above.",
            Query(f"max({of('process_resident_memory_bytes')})"), unit="bytes", steps=((limit["own_memory"], WARN),),
            alerts=("OomcastOverMemoryBudget",),
        ),
        tile(
            "Most CPU", "Of one core, over five minutes, of the busiest daemon.",
            Query(f"max(rate({of('process_cpu_seconds_total')}[$__rate_interval]))"), unit="percentunit",
            steps=((limit["own_cpu"], WARN),), alerts=("OomcastOverCpuBudget",), decimals=1,
        ),
        tile(
            "Rules run", "Whether the alert that always fires does: without rules some lines are missing.",
            Query(watchdog), unit="short", places=mapping(("no", "yes"), (WARN, "transparent")),
            alerts=("OomcastAbsent",),
        ),
        tile(
            "Uncovered nodes", "Nodes with GPUs that have no oomcast, by kube-state-metrics.",
            Query(
                'count(max by (node) (kube_node_status_capacity{resource=~"nvidia_com_gpu|nvidia_com_mig.*"}) > 0'
                f" unless on (node) max by (node) ({of('up')})) or vector(0)"
            ),
            unit="short", steps=count_steps(WARN), alerts=("OomcastNodeUncovered",),
        ),
    )  # fmt: skip


def _collectors(limit: Limits) -> Panel:
    up = f"min {by('collector')} ({of('oomcast_collector_up')})"

    def each(name: str) -> str:
        return f"max {by('collector')} ({of(f'oomcast_collector_{name}')})"

    def here(expr: str) -> Query:
        return Query(f"{expr} and {on('collector')} {up}")

    return table(
        "Collectors", "How each fares on each node: whether its last run succeeded, how old that is, how long it took.",
        Query(up), here(f"time() - {each('last_success_timestamp_seconds')}"), here(each("duration_seconds")),
        here(each("period_seconds")), here(each("largest_gap_seconds")),
        columns=(
            Column("node", "Node"), Column("collector", "Collector", width=120),
            Column("#A", "Works", mapping=mapping(("no", "yes"), (BAD, "transparent")), width=85),
            Column("#B", "Last success ago", "s", ((limit["stale"], WARN),), decimals=1, width=145),
            Column("#C", "Run takes", "s", width=100), Column("#D", "Runs every", "s", width=105),
            Column("#E", "Largest gap", "s", width=105), Column("cluster", "Cluster"),
        ),
        sort=("Works", "-Last success ago"), alerts=("OomcastCollectorDown", "OomcastStale"),
    )  # fmt: skip


def _fresh(limit: Limits) -> tuple[Panel, ...]:
    age = f"time() - max {by('collector')} ({of('oomcast_collector_last_success_timestamp_seconds')})"
    loop = f"max {by()} ({of('oomcast_scheduler_loop_age_seconds')})"
    return (
        lines(
            "Age of what collectors tell", "Time since the last success of each, and since the scheduler came by.",
            Query(age, "{{node}} {{collector}}"), Query(loop, "{{node}} scheduler"), unit="s",
            limits=((limit["stale"], WARN),), alerts=("OomcastStale",),
        ),
        lines(
            "How long runs take", "The last finished run of each collector.",
            Query(f"max {by('collector')} ({of('oomcast_collector_duration_seconds')})", "{{node}} {{collector}}"),
            unit="s", alerts=("OomcastStale", "OomcastOverCpuBudget"),
        ),
        lines(
            "Time between GPU readings", "Mean and largest distance: a burst that is shorter may be missed.",
            Query(short(gpu("oomcast_gpu_sampling_period_seconds"), "gpu"), "{{node}} {{short}} mean"),
            Query(short(gpu("oomcast_gpu_sampling_largest_gap_seconds"), "gpu"), "{{node}} {{short}} largest"),
            unit="s", none="no GPU here", alerts=("OomcastStale",),
        ),
    )  # fmt: skip


def _cost(limit: Limits) -> tuple[Panel, ...]:
    driver = short(f"max {by('gpu')} ({rate(of('oomcast_gpu_memory_call_seconds_total', GPU))})", "gpu")
    return (
        lines(
            "Memory", "Resident memory of each daemon. The line is the alert, half above the budget of 64 MB.",
            Query(f"max {by()} ({of('process_resident_memory_bytes')})", "{{node}}"), unit="bytes",
            limits=((limit["own_memory"], WARN),), alerts=("OomcastOverMemoryBudget",),
        ),
        lines(
            "CPU", "Of one core. The line is the alert, twice the budget.",
            Query(f"max {by()} ({rate(of('process_cpu_seconds_total'))})", "{{node}}"), unit="percentunit",
            limits=((limit["own_cpu"], WARN),), alerts=("OomcastOverCpuBudget",),
        ),
        lines(
            "Time in the GPU driver", "Of one core, reading GPU memory.",
            Query(driver, "{{node}} {{short}}"), unit="percentunit", none="no GPU here",
            alerts=("OomcastOverCpuBudget",),
        ),
        lines(
            "Open files", "Of each daemon, and how many it may have.",
            Query(f"max {by()} ({of('process_open_fds')})", "{{node}} open"),
            Query(f"max {by()} ({of('process_max_fds')})", "{{node}} may be open"), unit="short", decimals=0,
        ),
        lines(
            "Looks at engines", "How long the last look at each engine took.",
            Query(f"max {by('engine')} ({of('oomcast_engine_scrape_duration_seconds', ENGINE)})",
                  "{{node}} {{engine}}"),
            unit="s", none="no engine here", alerts=("OomcastEngineDown",),
        ),
        table(
            "Versions", "What runs where.",
            Query(f"count {by('version', 'python')} ({of('oomcast_build_info')})"),
            columns=(Column("node", "Node"), Column("version", "Version"), Column("python", "Python")),
            width=8, alerts=("OomcastDown",),
        ),
    )  # fmt: skip


def _unlabelled() -> Panel:
    targets = of("up", 'node=""')
    return table(
        "Targets without a node", "Rules and boards take all targets without the label node for one node.",
        Query(f"count by (job, instance) ({targets})"),
        columns=(Column("job", "Job"), Column("instance", "Instance")),
        width=_LOW, height=_LOW, alerts=("OomcastTargetUnlabelled",),
    )  # fmt: skip


def _missing() -> tuple[Panel, ...]:
    runs = of("oomcast_collector_runs_total", 'outcome!="success"')

    def rises(metric: str, name: str, *labels: str) -> Query:
        return Query(f"sum {by(*labels)} ({increase(of(metric))}) > 0", f"{{{{node}}}} {name}")

    return (
        lines(
            "Series left out", "Series above a metric's cap, and names of processes above theirs.",
            Query(f"sum {by('metric')} ({of('oomcast_series_dropped')})", "{{node}} {{metric}}"),
            Query(f"max {by()} ({of('oomcast_process_names_dropped')}) > 0", "{{node}} process names"),
            unit="short", decimals=0, alerts=("OomcastSeriesDropped",), width=_LOW, height=_LOW,
        ),
        lines(
            "Input that was lost", "What came faster than it could be read.",
            rises("oomcast_kernel_log_lost_records_total", "kernel log records"),
            rises("oomcast_kernel_log_overruns_total", "kernel log overwritten"),
            rises("oomcast_request_messages_lost_total", "request messages"),
            rises("oomcast_log_bytes_skipped_total", "bytes of {{engine}}'s log", "engine"),
            rises("oomcast_log_cut_lines_total", "cut lines of {{engine}}'s log", "engine"),
            rises("oomcast_ebpf_probe_lost_total", "events of probe {{probe}}", "probe"),
            unit="short", decimals=0, alerts=("OomcastInputLost",), width=_LOW, height=_LOW,
        ),
        lines(
            "Errors of reading", "By what was read.",
            rises("oomcast_host_read_errors_total", "cannot read {{file}}", "file"),
            rises("oomcast_host_parse_errors_total", "cannot understand {{file}}", "file"),
            rises("oomcast_cgroup_read_errors_total", "cgroups"),
            rises("oomcast_gpu_read_errors_total", "GPU {{field}}", "field"),
            rises("oomcast_gpu_invalid_readings_total", "GPU {{field}} invalid", "field"),
            rises("oomcast_gpu_handovers_total", "slow calls into the GPU driver"),
            rises("oomcast_engine_scrape_errors_total", "engine {{engine}} {{reason}}", "engine", "reason"),
            rises("oomcast_engine_scrape_malformed_lines_total", "malformed lines of {{engine}}", "engine"),
            rises("oomcast_log_read_errors_total", "log of {{engine}}", "engine"),
            rises("oomcast_kernel_log_malformed_records_total", "kernel log malformed"),
            unit="short", decimals=0, alerts=("OomcastCollectorDown",), width=_LOW, height=_LOW,
        ),
        lines(
            "Defects", "Failures of the daemon's own work, rules for logs that took too long; neither should be seen.",
            rises("oomcast_chore_failures_total", "{{chore}}", "chore"),
            Query(f"max {by()} ({of('oomcast_log_rules_disabled')}) > 0", "{{node}} rules for logs"),
            unit="short", decimals=0, alerts=("OomcastChoreFails",), width=_LOW, height=_LOW,
        ),
        lines(
            "Runs that failed or were left out", "By outcome; absent: what the collector reads is not on this machine.",
            Query(f"sum {by('collector', 'outcome')} ({increase(runs)}) > 0", "{{node}} {{collector}} {{outcome}}"),
            Query(f"sum {by('collector')} ({increase(of('oomcast_collector_overruns_total'))}) > 0",
                  "{{node}} {{collector}} left out"),
            unit="short", decimals=0, alerts=("OomcastCollectorDown",), width=_LOW, height=_LOW,
        ),
        lines(
            "Daemon restarts", "How often each daemon began anew.",
            Query(f"max {by()} (changes({of('process_start_time_seconds')}[$__rate_interval])) > 0", "{{node}}"),
            unit="short", bars=True, decimals=0, alerts=("OomcastRestarting",), width=_LOW, height=_LOW,
        ),
        lines(
            "Cgroups watched", "Cgroups that have series, and those above max_cgroups that have none.",
            Query(f"max {by()} ({of('oomcast_cgroups')})", "{{node}} watched"),
            Query(f"max {by()} ({of('oomcast_cgroup_truncated')})", "{{node}} left out"),
            unit="short", decimals=0, none="no cgroup here", alerts=("OomcastCgroupsLeftOut",),
            width=_LOW, height=_LOW,
        ),
    )  # fmt: skip


def _input() -> tuple[Panel, ...]:
    return (
        lines(
            "Messages about requests", "By what became of them; all but the accepted are in no series.",
            Query(per_second("oomcast_request_messages_total", "outcome"), "{{node}} {{outcome}}"),
            Query(per_second("oomcast_request_malformed_trace_ids_total"), "{{node}} malformed trace ids"),
            unit="ops", none="no socket for messages", alerts=("OomcastInputLost",),
        ),
        lines(
            "Records read", "From the kernel's log and from engines' logs.",
            Query(per_second("oomcast_kernel_log_records_total"), "{{node}} kernel log"),
            Query(per_second("oomcast_kernel_log_ignored_records_total"), "{{node}} not the kernel's"),
            Query(per_second("oomcast_log_lines_total", "engine"), "{{node}} lines of {{engine}}"),
            unit="ops", alerts=("OomcastInputLost",),
        ),
    )  # fmt: skip
