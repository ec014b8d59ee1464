"""States with their colours and places in order of badness, and what several boards show alike."""

import math

from boards.panels import BAD, GOOD, NOTICE, WARN, Panel, Steps, lines, states
from boards.query import ENGINE, GPU, NOT_KV, Query, by, engine, exhaustion, of, ranked, short, shortest
from oomcast.rules.thresholds import Limits

ENGINE_STATES = {
    "idle": "#6e7681",
    "serving": GOOD,
    "long_prefill": NOTICE,
    "saturated": "yellow",
    "hit_rate_collapse": WARN,
    "piling_up": WARN,
    "thrashing": WARN,
    "restarted": "purple",
    "deadlocked": BAD,
    "unreachable": BAD,
    "dead": "dark-red",
}
"""The worst last. oomcast_engine_state is the worst that holds already; this is for several engines."""

GPU_STATES = {
    "ok": GOOD,
    "not_permitted": WARN,
    "unreadable": WARN,
    "reset_required": BAD,
    "stuck": BAD,
    "lost": "dark-red",
}

RECOVERY = {
    "none": GOOD,
    "drain_p2p": WARN,
    "drain_and_reset": WARN,
    "gpu_reset": BAD,
    "recover_imex_domain": BAD,
    "bus_reset": BAD,
    "node_reboot": "dark-red",
    "system_reboot": "dark-red",
}

LEFT = "dthms"
"""The unit of times to exhaustion: hours, minutes, seconds."""
MINUTES = "suffix:min"
"""The same where they are drawn, so that the powers of ten on the axis are round."""
_LEAST = 0.1
"""Minutes: of what is shorter nobody needs to see how much."""


def time_steps(limit: Limits) -> Steps:
    """Seconds that are left, for a tile whose base colour is the worst."""
    return ((0, BAD), (limit["exhaustion_critical"], WARN), (limit["exhaustion_warning"], GOOD))


def engine_state(clause: str, *matchers: str) -> str:
    """The place in ENGINE_STATES of the worst state. clause: by whom."""
    return ranked("oomcast_engine_state", tuple(ENGINE_STATES), clause, *matchers)


def engine_timeline(width: int = 24, height: int = 6) -> Panel:
    return states(
        "What the engines do",
        "The worst state that holds of each engine. Restarted, unreachable and dead are an end; thrashing, piling up,"
        " hit rate collapse and deadlocked come before one.",
        Query(engine_state(by("engine"), ENGINE), "{{node}} {{engine}}"),
        names=tuple(ENGINE_STATES), colours=tuple(ENGINE_STATES.values()), width=width, height=height,
        none="no engine here",
        alerts=("OomcastEngineDeadlocked", "OomcastPreemptionStorm", "OomcastQueuePileUp"),
    )  # fmt: skip


def gpu_timeline(width: int = 12) -> Panel:
    return states(
        "State of the GPUs",
        "Whether the driver answers for each GPU. Of a GPU that is not ok no memory is seen.",
        Query(short(ranked("oomcast_gpu_state", tuple(GPU_STATES), by("gpu"), GPU), "gpu"), "{{node}} {{short}}"),
        names=tuple(GPU_STATES), colours=tuple(GPU_STATES.values()), width=width, height=8, none="no GPU here",
        alerts=("OomcastGpuUnavailable", "OomcastGpuUnreadable"),
    )  # fmt: skip


def time_left(title: str, text: str, limit: Limits, *matchers: str, width: int = 16) -> Panel:
    """Times to exhaustion of each object, as far as the axis goes."""
    expr = shortest(exhaustion(*(matchers or (NOT_KV,))))
    return minutes_left(title, text, expr, "{{node}} {{resource}} {{short}}{{engine}}", limit, width)


def minutes_left(title: str, text: str, expr: str, legend: str, limit: Limits, width: int) -> Panel:
    """expr: in seconds. The axis ends at the power of ten minutes above the warning's threshold."""
    critical, warning = (limit[f"exhaustion_{one}"] / 60 for one in ("critical", "warning"))
    far = 10.0 ** math.ceil(math.log10(warning))
    return lines(
        title, f"{text} What lasts longer than {far:g} minutes, or never ends, has no line.",
        Query(f"clamp_min(({expr} < {60 * far:.0f}) / 60, {_LEAST:g})", legend),
        unit=MINUTES, minimum=_LEAST, maximum=far, powers=True, width=width, least=f"{60 * _LEAST:g} s",
        none=f"nothing runs out within {far:g} minutes", limits=((critical, BAD), (warning, WARN)),
        alerts=("OomcastCgroupExhaustion", "OomcastHostExhaustion", "OomcastGpuExhaustion", "OomcastExhaustionSudden"),
    )  # fmt: skip


def kv_usage(limit: Limits, width: int = 8) -> Panel:
    return lines(
        "KV cache in use",
        "Share of the KV pool that cannot be evicted, of the fullest rank. Full is no crash: requests wait or are"
        " preempted.",
        Query(engine("oomcast_kv_cache_usage_ratio"), "{{node}} {{engine}}"),
        unit="percentunit", maximum=1, width=width, none="no engine that tells",
        limits=((limit["kv_usage_warning"], WARN), (limit["kv_usage_critical"], BAD)), alerts=("OomcastKvExhaustion",),
    )  # fmt: skip


def waiting(width: int = 8) -> Panel:
    return lines(
        "Requests that wait",
        "Queue of each engine, all reasons together.",
        Query(f"sum {by('engine')} ({of('oomcast_engine_requests_waiting', ENGINE)})", "{{node}} {{engine}}"),
        unit="short", width=width, none="no engine that tells", alerts=("OomcastQueuePileUp",), decimals=0,
    )  # fmt: skip


def count_steps(bad: str = BAD) -> Steps:
    """Of what should not be at all."""
    return ((1, bad),)
