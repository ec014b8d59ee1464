"""Which node dies next."""

from boards.board import Board, Row
from boards.meanings import ENGINE_STATES, LEFT, count_steps, engine_state, minutes_left, time_steps
from boards.panels import BAD, LIMIT, NOTICE, WARN, Panel, lines, mapping, never, tile
from boards.query import KV, NOT_KV, Query, by, exhaustion, increase, kills, named, of, on, recorded
from boards.tables import Column, table
from oomcast.rules.thresholds import Limits

NODE_LINK = (
    "/d/oomcast-node?var-node=${__data.fields.Node}&${cluster:queryparam}&${job:queryparam}&${datasource:queryparam}"
    "&${__url_time_range}"
)
_UP = f"max {by()} ({of('up')})"


def board(limit: Limits) -> Board:
    return Board(
        "fleet",
        "Which node dies next, of which resource, and when.",
        (
            Row("Now", (*_tiles(limit), _next(limit))),
            Row("Since when", (_left(limit), _memory(limit), _pools(limit), _kills(), _states(), _alerts())),
            Row("Behind it", (_host(), _pressure(limit), _long())),
        ),
    )


def _tiles(limit: Limits) -> tuple[Panel, ...]:
    soon = f"min {by()} ({of('oomcast_time_to_exhaustion_seconds', NOT_KV)}) < {limit['exhaustion_critical']:.0f}"
    firing = 'alertstate="firing"', 'alertname=~"Oomcast.*"'
    return (
        tile(
            "Nodes watched", "Nodes whose oomcast answers.",
            Query(f"count({_UP} == 1)"), unit="short", none="no node", alerts=("OomcastAbsent",),
        ),
        tile(
            "Unreachable",
            "Nodes whose oomcast does not answer. A crashed node shows up here, while its series simply end.",
            Query(f"count({_UP} == 0) or vector(0)"), unit="short", steps=count_steps(), alerts=("OomcastDown",),
        ),
        tile(
            "About to run out",
            "Nodes on which memory of a cgroup, a GPU or the host runs out within ten minutes. Alerts leave out the"
            " first ten minutes of an engine, in which it loads its model, and cgroups without an engine.",
            Query(f"count({soon}) or vector(0)"), unit="short", steps=count_steps(),
            alerts=("OomcastCgroupExhaustion", "OomcastHostExhaustion", "OomcastGpuExhaustion"),
        ),
        tile(
            "OOM kills, 1 h", "Kernel OOM kills of all nodes in the last hour, each counted once.",
            Query(f"sum({kills(3600)}) or vector(0)"), unit="short", steps=count_steps(), alerts=("OomcastOomKill",),
            decimals=0,
        ),
        tile(
            "Engines down", "Engines that do not answer.",
            Query(f"count(max {by('engine')} ({of('oomcast_engine_up')}) == 0) or vector(0)"),
            unit="short", steps=count_steps(), alerts=("OomcastEngineDown", "OomcastEngineKilled"),
        ),
        tile(
            "Critical alerts", "Alerts of oomcast that page and fire now.",
            Query("count(" + recorded("ALERTS", *firing, 'severity="critical"') + ") or vector(0)"),
            unit="short", steps=count_steps(),
        ),
    )  # fmt: skip


def _next(limit: Limits) -> Panel:
    first = named(f"bottomk {by()} (1, {exhaustion(NOT_KV)} < Inf)")
    some = f"{first}\nor {on()} ({_UP} >= 0) + Inf"
    pool = f"min {by()} ({of('oomcast_time_to_exhaustion_seconds', KV)})"
    critical = recorded("ALERTS", 'alertstate="firing"', 'alertname=~"Oomcast.*"', 'severity="critical"')
    steps = time_steps(limit)
    return table(
        "Which node is next",
        "A row for each node, the one that runs out first on top: what runs out, whose, and in how long. The KV"
        " cache is apart, as a full one makes requests wait and kills nothing. Click a node for all of it.",
        Query(some), Query(_UP), Query(engine_state(by())), Query(pool), Query(kills(3600)),
        Query(f"count {by()} ({critical})"),
        columns=(
            Column("node", "Node", link=NODE_LINK),
            Column("#A", "Runs out in", LEFT, steps, mapping=never(), width=115),
            Column("resource", "Resource", width=130),
            Column("object", "Whose"),
            Column("#F", "Critical alerts", steps=count_steps(),
                   link="/alerting/list?search=label%3Anode%3D${__data.fields.Node}", width=110),
            Column("#B", "Answers", mapping=mapping(("no", "yes"), (BAD, "transparent")), width=85),
            Column("#C", "Worst engine", mapping=mapping(tuple(ENGINE_STATES), tuple(ENGINE_STATES.values())),
                   width=140),
            Column("#E", "Kills, 1 h", steps=count_steps(WARN), decimals=0, width=90),
            Column("#D", "KV full in", LEFT, mapping=never(), width=100),
            Column("cluster", "Cluster", width=110),
        ),
        # A node that does not answer has no forecast, and comes next.
        sort=("Runs out in", "Answers", "-Worst engine"), height=9,
        alerts=("OomcastCgroupExhaustion", "OomcastHostExhaustion", "OomcastGpuExhaustion", "OomcastDown"),
    )  # fmt: skip


def _left(limit: Limits) -> Panel:
    left = f"min {by()} ({of('oomcast_time_to_exhaustion_seconds', NOT_KV)})"
    text = "Of each node what runs out first: cgroup, GPU or host memory."
    return minutes_left("Time to exhaustion", text, left, "{{node}}", limit, 8)


def _memory(limit: Limits) -> Panel:
    total = f"max {by('gpu')} ({of('oomcast_gpu_memory_total_bytes')})"
    usable = f"({total} - max {by('gpu')} ({of('oomcast_gpu_memory_reserved_bytes')}) or {total})"
    peak = f"max {by('gpu')} ({of('oomcast_gpu_memory_used_peak_bytes')})"
    return lines(
        "Fullest GPU at its peak",
        "Largest reading of each minute, as a share of what can be allocated. The green line is an engine that is well"
        " (18.2 of 80 GB), the red one its crash.",
        Query(f"max {by()} ({peak} / ({usable} > 0))", "{{node}}"),
        unit="percentunit", maximum=1, none="no GPU here",
        limits=((limit["healthy_memory"], "green"), (limit["crash_memory"], BAD)), alerts=("OomcastGpuMemoryFull",),
    )  # fmt: skip


def _pools(limit: Limits) -> Panel:
    return lines(
        "Fullest KV cache", "Of each node the engine whose KV pool is fullest.",
        Query(f"max {by()} ({of('oomcast_kv_cache_usage_ratio')})", "{{node}}"),
        unit="percentunit", maximum=1, none="no engine that tells",
        limits=((limit["kv_usage_warning"], WARN), (limit["kv_usage_critical"], BAD)), alerts=("OomcastKvExhaustion",),
    )  # fmt: skip


def _kills() -> Panel:
    restarts = f"sum {by()} ({increase(of('oomcast_engine_restarts_total'))}) > 0"
    return lines(
        "OOM kills and restarts", "What was killed for want of memory, and engines that began anew, by node.",
        Query(f"{kills(300)} > 0", "{{node}} OOM kills in 5 m"), Query(restarts, "{{node}} engine restarts"),
        unit="short", bars=True, decimals=0, colours={".*OOM kills.*": LIMIT, ".*restarts": "purple"},
        alerts=("OomcastOomKill", "OomcastOomKillsRepeated", "OomcastEngineRestarting"),
    )  # fmt: skip


def _states() -> Panel:
    count = f"sum by (oomcast_engine_state) ({of('oomcast_engine_state')})"
    return lines(
        "Engines by state", "How many engines of all chosen nodes are in which state.",
        Query(f"{count} > 0", "{{oomcast_engine_state}}"),
        unit="short", stacked=True, decimals=0, colours={f"^{name}$": colour for name, colour in ENGINE_STATES.items()},
        none="no engine here", alerts=("OomcastEngineDeadlocked", "OomcastEngineDown"),
    )  # fmt: skip


def _alerts() -> Panel:
    matchers = 'alertstate="firing"', 'alertname=~"Oomcast.*"', 'severity=~"critical|warning|info"'
    firing = f"sum by (severity) ({recorded('ALERTS', *matchers)})"
    return lines(
        "Alerts that fire", "How many alerts of the chosen nodes fire, by severity.",
        Query(firing, "{{severity}}"), unit="short", stacked=True, decimals=0,
        colours={"critical": BAD, "warning": WARN, "info": NOTICE},
    )  # fmt: skip


def _host() -> Panel:
    available, total = (of(f"oomcast_host_memory_{one}_bytes") for one in ("available", "total"))
    return lines(
        "Host memory available", "The kernel's estimate of what can be given out without swapping.",
        Query(f"min {by()} ({available} / ({total} > 0))", "{{node}}"),
        unit="percentunit", maximum=1, alerts=("OomcastHostExhaustion",),
    )  # fmt: skip


def _pressure(limit: Limits) -> Panel:
    full = of("oomcast_host_pressure_seconds_total", 'resource="memory"', 'kind="full"')
    return lines(
        "Memory pressure", "Share of the time in which nobody on the node could go on for want of memory.",
        Query(f"max {by()} (rate({full}[$__rate_interval]))", "{{node}}"),
        unit="percentunit", none="no PSI in this kernel", limits=((limit["pressure"], WARN),),
        maximum=1, alerts=("OomcastMemoryThrash",),
    )  # fmt: skip


def _long() -> Panel:
    def above(tokens: int) -> Query:
        share = of("oomcast_prompt_tokens_share_ratio", f'above="{tokens}"', 'bound="lower"')
        return Query(f"max {by()} ({share})", f"{{{{node}}}} above {tokens // 1024}K")

    return lines(
        "Long prompts",
        "Share of the prompts of the last hour above 64K and 128K tokens, of the engine that has most of them.",
        above(131_072), above(65_536),
        unit="percentunit", maximum=1, none="no engine that tells", alerts=("OomcastHitRateCollapse",),
    )  # fmt: skip
