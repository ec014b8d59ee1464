"""One node: what runs out, in how long, and who takes it."""

from boards import cgroups, gpus, host
from boards.board import Board, Row
from boards.meanings import (
    ENGINE_STATES,
    LEFT,
    count_steps,
    engine_state,
    engine_timeline,
    kv_usage,
    time_left,
    time_steps,
    waiting,
)
from boards.panels import BAD, Panel, lines, mapping, tile
from boards.query import (
    ENGINE,
    GPU,
    KV,
    NOT_KV,
    Query,
    by,
    engine,
    exhaustion,
    first,
    kills,
    of,
    on,
    recorded,
    shortest,
)
from boards.tables import Column, table
from oomcast.rules.thresholds import Limits


def board(limit: Limits) -> Board:
    return Board(
        "node",
        "What runs out on a node, in how long, and who takes it.",
        (
            Row("How long", (*_tiles(limit), _left(limit), engine_timeline(8, 8))),
            Row("GPUs", gpus.memory(limit)),
            Row("Cgroups", cgroups.panels(limit)),
            Row("Host memory", host.panels(limit)),
            Row("Engines", _engines(limit)),
            Row("Can reclaim keep up", (*cgroups.tight(limit), *host.tight(), _processes()), collapsed=True),
            Row("GPU errors and hardware", gpus.hardware(), collapsed=True),
            Row("MIG instances", gpus.instances(), collapsed=True),
        ),
        ("gpu", "cgroup", "engine"),
    )


def _tiles(limit: Limits) -> tuple[Panel, ...]:
    steps = time_steps(limit)
    firing = 'alertstate="firing"', 'alertname=~"Oomcast.*"', 'severity="critical"'
    return (
        tile(
            "Runs out first", "Which memory of a cgroup, a GPU or the host runs out first, and in how long.",
            Query(first(shortest(exhaustion(NOT_KV))), "{{node}} {{resource}} {{short}}"),
            unit=LEFT, steps=steps, never=True, names=True, width=6, none="no forecast yet",
            alerts=("OomcastCgroupExhaustion", "OomcastHostExhaustion", "OomcastGpuExhaustion"),
        ),
        tile(
            "Worst engine", "The worst state that holds of the engines; below is since when.",
            Query(f"max({engine_state(by('engine'), ENGINE)})"), unit="short", none="no engine here",
            places=mapping(tuple(ENGINE_STATES), tuple(ENGINE_STATES.values())),
            alerts=("OomcastEngineDeadlocked", "OomcastEngineDown"),
        ),
        tile(
            "KV cache full in", "Which engine's KV cache is full first. That alone kills nothing.",
            Query(first(exhaustion(KV)), "{{node}} {{engine}}"),
            unit=LEFT, never=True, names=True, none="no engine that tells", alerts=("OomcastKvExhaustion",),
        ),
        tile(
            "GPU left at peak", "Least free memory of the last minute, of the fullest GPU.",
            Query(f"min({of('oomcast_gpu_memory_free_min_bytes', GPU)})"), unit="bytes", none="no GPU here",
            alerts=("OomcastGpuMemoryFull",),
        ),
        tile(
            "Kills, 1 h", "Kernel OOM kills in the last hour, each counted once.",
            Query(f"sum({kills(3600)}) or vector(0)"), unit="short", steps=count_steps(), width=3, decimals=0,
            alerts=("OomcastOomKill",),
        ),
        tile(
            "Critical", "Critical alerts about the chosen nodes that fire now.",
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
        table(
            "Engines",
            "What runs here, for how long, how full its KV cache is and what its next request may have. Click an engine"
            " for its prompts and cache.",
            Query(info), Query(engine("oomcast_engine_up")), Query(engine("oomcast_kv_cache_usage_ratio")),
            Query(engine("oomcast_kv_cache_largest_request_tokens")),
            Query(f"(time() - {start}) * {on('cgroup')} group_right {info}"),
            columns=(
                Column("node", "Node"), Column("engine", "Engine", link=link),
                Column("#B", "Answers", mapping=mapping(("no", "yes"), (BAD, "transparent")), width=85),
                Column("#E", "Runs for", "s", width=95), Column("#C", "KV cache", "percentunit", width=90),
                Column("#D", "Largest request", "short", width=125), Column("model", "Model"),
                Column("kind", "Kind", width=90), Column("version", "Version", width=90), Column("cgroup", "Cgroup"),
            ),
            alerts=("OomcastEngineDown",), height=6,
        ),
        kv_usage(limit),
        waiting(),
        host.processes(),
    )  # fmt: skip


def _processes() -> Panel:
    return lines(
        "Serving processes", "Processes of each name that serve.",
        Query(f"sum {by('process')} ({of('oomcast_processes')})", "{{node}} {{process}}"),
        unit="short", decimals=0, none="no serving process here", alerts=("OomcastEngineDown",),
    )  # fmt: skip
