"""After an OOM kill or a crash: who, under whose limit, and what memory was before it."""

from boards import allocations, cgroups
from boards.board import Board, Row
from boards.meanings import count_steps
from boards.panels import LIMITS, WARN, Panel, lines, tile
from boards.query import CGROUP, ENGINE, GPU, Query, by, gpu, increase, kills, of, on, rate, risen, short
from boards.tables import Column, table
from oomcast.rules.thresholds import Limits

_OUT_OF_MEMORY = 'rule=~".*out_of_memory|cublas_alloc_failed|no_memory_for_cache"'


def board(limit: Limits) -> Board:
    return Board(
        "forensics",
        "Who was killed or crashed, under whose limit, and what memory did before it.",
        (
            Row("Who", (*_tiles(), *_who())),
            Row("What engines said", _said()),
            Row("Memory up to it", _memory(limit)),
            Row("What it came back to", _back()),
            Row("More of cgroups", cgroups.reclaim(), collapsed=True),
            Row("Allocations (eBPF)", allocations.panels(limit), collapsed=True),
            Row("Unified memory and CUDA (eBPF)", allocations.cuda(), collapsed=True),
        ),
        ("cgroup", "engine", "gpu"),
        since="now-1h",
    )


def _tiles() -> tuple[Panel, ...]:
    def count(title: str, text: str, expr: str, *alerts: str, none: str = "none") -> Panel:
        return tile(
            title, text, Query(expr), unit="short", steps=count_steps(), none=none, alerts=alerts, width=4, decimals=0
        )

    def total(metric: str) -> str:
        return f"round(sum(increase({of(metric)}[$__range])))"

    last = f"time() - max({of('oomcast_oom_kill_last_timestamp_seconds')})"
    return (
        tile(
            "Last OOM kill", "How long ago the last kernel OOM kill happened.",
            Query(last), unit="s", none="none", alerts=("OomcastOomKill",), decimals=0,
        ),
        count(
            "Kills nobody owns", "Kernel OOM kills in the time shown for which no cgroup became known.",
            total("oomcast_oom_kills_unattributed_total"), "OomcastOomKillUnattributed",
        ),
        count(
            "Kills in user space", "Kills of earlyoom, systemd-oomd and the like in the time shown.",
            f"sum({risen('oomcast_userspace_oom_kills_total', '$__range')})", "OomcastUserspaceOomKill",
        ),
        count(
            "Crashes", "Fatal signals in the time shown, of every process; seen with eBPF only.",
            f"sum({risen('oomcast_crashes_total', '$__range')})", "OomcastCrash", none="no eBPF, or none",
        ),
        count(
            "OOM in logs", "Lines of engines' logs that say that memory ran out, in the time shown.",
            f"round(sum(increase({of('oomcast_log_events_total', ENGINE, _OUT_OF_MEMORY)}[$__range])))",
            "OomcastLogOutOfMemory", none="no logs to follow",
        ),
        count(
            "Engine restarts", "In the time shown.", total("oomcast_engine_restarts_total"), "OomcastEngineRestarting",
            none="no engine here",
        ),
    )  # fmt: skip


def _who() -> tuple[Panel, ...]:
    owners = by("owner", "limit_owner")
    last = f"1000 * max {owners} ({of('oomcast_oom_kill_last_timestamp_seconds')})"
    crashes = by("process", "signal", "module")
    return (
        table(
            "Who was killed, and whose limit it was",
            "OOM kills by the owner of the victim, since oomcast began. Limit of: whose memory limit was hit; host when"
            " the machine ran out.",
            Query(f"sum {owners} ({of('oomcast_oom_kills_total')}) > 0"), Query(last),
            columns=(
                Column("node", "Node", width=120), Column("owner", "Killed"), Column("limit_owner", "Limit of"),
                Column("#B", "Last", "dateTimeAsIso", width=165), Column("#A", "Times", decimals=0, width=70),
            ),
            sort=("-Last",), width=15, height=6, alerts=("OomcastOomKill", "OomcastOomKillsRepeated"),
        ),
        table(
            "Who crashed", "Fatal signals by the file that was executing, since oomcast began.",
            Query(f"sum {crashes} ({of('oomcast_crashes_total')}) > 0"),
            columns=(
                Column("node", "Node", width=90), Column("process", "Process"), Column("signal", "Signal", width=85),
                Column("module", "In"), Column("#A", "Times", decimals=0, width=70),
            ),
            sort=("-Times",), width=9, height=6, none="no eBPF, or no crash", alerts=("OomcastCrash",),
        ),
        lines(
            "OOM kills", "By owner, each counted once.",
            Query(f"{kills(300, 'owner', 'limit_owner')} > 0", "{{node}} {{owner}}, limit of {{limit_owner}}"),
            Query(f"{risen('oomcast_userspace_oom_kills_total', '$__rate_interval', 'owner', 'by')} > 0",
                  "{{node}} {{owner}} by {{by}}"),
            unit="short", bars=True, decimals=0,
            alerts=("OomcastOomKill", "OomcastTenantOomKill", "OomcastEngineKilled"),
        ),
        lines(
            "Witnesses",
            "The same kills as the kernel's log, vmstat and eBPF count them: machine-wide, not to be added.",
            Query(f"{_range_by('oomcast_kernel_log_oom_kills_total')} > 0", "{{node}} kernel log"),
            Query(f"{_range_by('oomcast_host_oom_kills_total')} > 0", "{{node}} vmstat"),
            Query(f"{_range_by('oomcast_ebpf_oom_victims_total')} > 0", "{{node}} eBPF"),
            unit="short", decimals=0, bars=True, alerts=("OomcastOomKillUnattributed",),
        ),
        lines(
            "Crashes and panics", "Fatal signals, the same where a handler took them, panics of Rust code.",
            Query(f"{risen('oomcast_crashes_total', '$__rate_interval', 'process', 'signal')} > 0",
                  "{{node}} {{process}} {{signal}}"),
            Query(f"{risen('oomcast_handled_fault_signals_total', '$__rate_interval', 'process', 'signal')} > 0",
                  "{{node}} {{process}} {{signal}} handled"),
            Query(f"{_range_by('oomcast_rust_panics_total', 'process')} > 0", "{{node}} {{process}} panic"),
            Query(f"{_range_by('oomcast_kernel_log_segfaults_total', 'module')} > 0",
                  "{{node}} segfault in {{module}}"),
            unit="short", bars=True, decimals=0, alerts=("OomcastCrash", "OomcastRustPanic"),
        ),
    )  # fmt: skip


def _range_by(metric: str, *labels: str) -> str:
    """Whole events between two points; increase() makes fractions of them."""
    return f"round(sum {by(*labels)} ({increase(of(metric))}))"


def _memory(limit: Limits) -> tuple[Panel, ...]:
    stalled = of("oomcast_cgroup_pressure_seconds_total", CGROUP, 'resource=~"memory|io"')
    pressure = f"topk(8, max {by('cgroup', 'resource', 'kind')} ({rate(stalled)}))"
    unreclaimable, bound = (
        cgroups.gauge(f"oomcast_cgroup_memory_{one}_bytes") for one in ("unreclaimable", "effective_limit")
    )
    return (
        cgroups.memory_by_kind(),
        lines(
            "Unreclaimable memory and the limit",
            "The largest of the chosen cgroups: at the limit the OOM killer comes.",
            Query(cgroups.top(unreclaimable), "{{node}} {{short}}"),
            Query(short(f"{bound} and {on('cgroup')} topk(8, {unreclaimable})", "cgroup"), "{{node}} {{short}} limit"),
            unit="bytes", width=12, height=9, none="no cgroup here", colours=LIMITS,
            alerts=("OomcastCgroupExhaustion",),
        ),
        lines(
            "Pressure", "Share of the time in which some, or all (full), in the cgroup waited for memory or a device.",
            Query(short(pressure, "cgroup"), "{{node}} {{short}} {{resource}} {{kind}}"),
            unit="percentunit", maximum=1, none="no PSI here", limits=((limit["pressure"], WARN),),
            alerts=("OomcastMemoryThrash",),
        ),
        lines(
            "GPU memory", "At the peak of each minute.",
            Query(short(gpu("oomcast_gpu_memory_used_peak_bytes"), "gpu"), "{{node}} {{short}}"),
            unit="bytes", none="no GPU here", alerts=("OomcastGpuMemoryFull",),
        ),
        lines(
            "GPU memory of processes", "The largest and fastest growing processes.",
            Query(f"topk(8, sum {by('process', 'pid', 'cgroup')} ({of('oomcast_gpu_process_memory_bytes', GPU)}))",
                  "{{node}} {{process}} {{pid}}"),
            unit="bytes", none="no process on a GPU", alerts=("OomcastGpuExhaustion",),
        ),
    )  # fmt: skip


def _said() -> tuple[Panel, ...]:
    events = of("oomcast_log_events_total", ENGINE)
    return (
        lines(
            "Lines of engines' logs",
            "By rule: out of memory, a full cache, a dead engine, bad numbers. One failure is many lines.",
            Query(f"round(sum {by('engine', 'rule')} ({increase(events)})) > 0", "{{node}} {{engine}} {{rule}}"),
            unit="short", bars=True, width=12, decimals=0, none="no line, or no logs to follow",
            alerts=("OomcastLogOutOfMemory", "OomcastLogEngineDead", "OomcastLogBadNumbers"),
        ),
        lines(
            "Events", "What collectors and the core reported; the daemon's log has each with its details.",
            Query(f"{_range_by('oomcast_events_total', 'kind')} > 0", "{{node}} {{kind}}"),
            unit="short", bars=True, width=12, decimals=0,
        ),
    )  # fmt: skip


def _back() -> tuple[Panel, ...]:
    age = f"time() - max {by('owner')} ({of('oomcast_serving_start_timestamp_seconds')})"
    return (
        lines(
            "Age of the engines",
            "How long the youngest engine of each owner has run: it falls to 0 where one came back.",
            Query(age, "{{node}} {{owner}}"), unit="s", width=12, none="no engine here",
            alerts=("OomcastEngineKilled", "OomcastEngineRestarting"),
        ),
        lines(
            "Engines that answer", "1 while the engine answers.",
            Query(f"max {by('engine')} ({of('oomcast_engine_up', ENGINE)})", "{{node}} {{engine}}"),
            unit="short", maximum=1, width=12, decimals=0, none="no engine here", alerts=("OomcastEngineDown",),
        ),
    )  # fmt: skip
