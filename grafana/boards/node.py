"""One node: what runs out, in how long, and who takes it."""

from boards import cgroups, gpus, host
from boards.board import Board, Row
from boards.meanings import LEFT, count_steps, engine_timeline, kv_usage, time_left, time_steps, waiting
from boards.panels import BAD, Column, Panel, lines, table, tile
from boards.query import ENGINE, GPU, KV, NOT_KV, Query, by, engine, exhaustion, kills, of, on, recorded, shortest
from oomcast.rules.thresholds import Limits


def board(limit: Limits) -> Board:
    return Board(
        "node",
        "What runs out on a node, in how long, and who takes it.",
        (
            Row("How long", (*_tiles(limit), _left(limit))),
            Row("GPUs", gpus.memory(limit)),
            Row("Cgroups", cgroups.panels(limit)),
            Row("Host memory", host.panels(limit)),
            Row("Engines", _engines(limit)),
            Row("GPU hardware", gpus.hardware(), collapsed=True),
            Row("MIG instances", gpus.instances(), collapsed=True),
        ),
        ("gpu", "cgroup", "engine"),
    )


def _tiles(limit: Limits) -> tuple[Panel, ...]:
    steps = time_steps(limit)
    firing = 'alertstate="firing"', 'alertname=~"Oomcast.*"', 'severity=~"critical|warning"'
    available, total = (of(f"oomcast_host_memory_{one}_bytes") for one in ("available", "total"))
    return (
        tile(
            "Runs out first", "Which memory of a cgroup, a GPU or the host runs out first, and in how long.",
            Query(f"bottomk(1, {shortest(exhaustion(NOT_KV))})", "{{node}} {{resource}} {{short}}"),
            unit=LEFT, steps=steps, never=True, names=True, width=6, none="no forecast yet",
            alerts=("OomcastCgroupExhaustion", "OomcastHostExhaustion", "OomcastGpuExhaustion"),
        ),
        tile(
            "KV cache full in", "Which engine's KV cache is full first. That alone kills nothing.",
            Query(f"bottomk(1, {exhaustion(KV)})", "{{node}} {{engine}}"),
            unit=LEFT, never=True, names=True, none="no engine that tells", alerts=("OomcastKvExhaustion",),
        ),
        tile(
            "GPU left at the peak", "Least free memory of the last minute, of the fullest GPU.",
            Query(f"min({of('oomcast_gpu_memory_free_min_bytes', GPU)})"), unit="bytes", none="no GPU here",
            alerts=("OomcastGpuMemoryFull",),
        ),
        tile(
            "Host memory left", "The kernel's estimate of what can be given out, of all there is.",
            Query(f"min({available} / ({total} > 0))"), unit="percentunit", maximum=1,
            alerts=("OomcastHostExhaustion",),
        ),
        tile(
            "OOM kills, 1 h", "Kernel OOM kills in the last hour, each counted once.",
            Query(f"sum({kills(3600)}) or vector(0)"), unit="short", steps=count_steps(), width=3, decimals=0,
            alerts=("OomcastOomKill",),
        ),
        tile(
            "Alerts", "Critical and warning alerts about the chosen nodes that fire now.",
            Query(f"count({recorded('ALERTS', *firing)}) or vector(0)"), unit="short", steps=count_steps(), width=3,
        ),
    )  # fmt: skip


def _left(limit: Limits) -> Panel:
    return time_left(
        "Time to exhaustion",
        "How long each memory lasts if what cannot be reclaimed goes on rising as it does.",
        limit,
    )


def _engines(limit: Limits) -> tuple[Panel, ...]:
    link = (
        "/d/oomcast-long-context?var-engine=${__data.fields.Engine}&${node:queryparam}&${cluster:queryparam}"
        "&${job:queryparam}&${datasource:queryparam}&${__url_time_range}"
    )
    ours = of("oomcast_engine_info", ENGINE)
    labels = by("engine", "kind", "version", "model", "address", "cgroup")
    start = f"max {by('cgroup')} ({of('oomcast_serving_start_timestamp_seconds')})"
    info = f"group {labels} ({ours})"
    return (
        engine_timeline(),
        table(
            "Engines",
            "What runs here, for how long, how full its KV cache is and what its next request may have. Click an engine"
            " for its prompts and cache.",
            Query(info), Query(engine("oomcast_engine_up")), Query(engine("oomcast_kv_cache_usage_ratio")),
            Query(engine("oomcast_kv_cache_largest_request_tokens")),
            Query(f"(time() - {start}) * {on('cgroup')} group_right {info}"),
            columns=(
                Column("node", "Node"), Column("engine", "Engine", link=link), Column("kind", "Kind"),
                Column("version", "Version"), Column("model", "Model"),
                Column("#B", "Up", steps=((0, BAD), (1, "transparent"))),
                Column("#E", "Runs for", "s"), Column("#C", "KV cache", "percentunit"),
                Column("#D", "Largest request", "short"), Column("cgroup", "Cgroup"),
            ),
            alerts=("OomcastEngineDown",), height=6,
        ),
        kv_usage(limit),
        waiting(),
        lines(
            "Serving processes", "Processes of each name that serve.",
            Query(f"sum {by('process')} ({of('oomcast_processes')})", "{{node}} {{process}}"),
            unit="short", decimals=0, none="no serving process here", alerts=("OomcastEngineDown",),
        ),
    )  # fmt: skip
