"""Long prompts and the KV cache: what is asked for, what fits, what is lost."""

from boards import gpus, objectives
from boards.board import Board, Row
from boards.meanings import LEFT, engine_timeline, kv_usage, time_left, time_steps, waiting
from boards.panels import BAD, GOOD, USUAL, WARN, Panel, heatmap, lines, tile
from boards.query import (
    ENGINE,
    GPU,
    Query,
    by,
    engine,
    exhaustion,
    first,
    increase,
    of,
    per_second,
    rate,
    recorded,
    shortest,
)
from oomcast.rules.engine import USUAL_HITS
from oomcast.rules.thresholds import Limits

_LEGEND = "{{node}} {{engine}}"
_NONE = "no engine that tells"
_GPUS = 'resource=~"gpu_memory|gpu_mig_memory"'
_LONG = 'above=~"65536|131072"'


def board(limit: Limits) -> Board:
    return Board(
        "long-context",
        "How long prompts are, what of them fits, and what that does to the cache and to who asks.",
        (
            Row("Now", (*_tiles(limit), engine_timeline())),
            Row("GPU memory and KV cache", (*_memory(limit), *_pool(limit))),
            Row("Prompts", _prompts()),
            Row("What clients get", objectives.answers(limit)),
            Row("Objectives", objectives.panels(limit)),
            Row("More of prompts and cache", _more(), collapsed=True),
            Row("More of answers and objectives", (*objectives.more(), objectives.calibration()), collapsed=True),
            Row("Gateway", _gateway(), collapsed=True),
        ),
        ("model", "engine", "gpu"),
    )


def _tiles(limit: Limits) -> tuple[Panel, ...]:
    fits = f"min({engine('oomcast_kv_cache_largest_request_tokens')})"
    steps = ((0, BAD), (limit["long_prompt"], WARN), (limit["crash_prompt"], GOOD))
    above = of("oomcast_prompt_tokens_share_ratio", ENGINE, f'above="{limit["crash_prompt"]:.0f}"', 'bound="lower"')
    hits = engine("oomcast_kv_cache_hit_ratio")
    never = f"count({engine('oomcast_kv_cache_max_model_len_fits')} == 0) or vector(0)"
    return (
        tile(
            "GPU full in", "Which GPU's memory runs out first, and in how long: that ends engines.",
            Query(first(shortest(exhaustion(_GPUS, GPU))), "{{node}} {{short}}"), unit=LEFT,
            steps=time_steps(limit), never=True, names=True, none="no forecast yet",
            alerts=("OomcastGpuExhaustion",),
        ),
        tile(
            "Very long prompts",
            f"Share of the last hour's prompts above {limit['crash_prompt']:,.0f} tokens, of the engine with most.",
            Query(f"max({above})"), unit="percentunit", maximum=1, none=_NONE, decimals=1,
            alerts=("OomcastHitRateCollapse",),
        ),
        tile(
            "Largest that fits", "Prompt and answer, of the engine that has least room now.",
            Query(fits), unit="short", steps=steps, none=_NONE, alerts=("OomcastHeadroomBelowDemand",),
        ),
        tile(
            "Hit rate, of usual",
            "Of the engine whose prefix cache finds least of what it usually does: five minutes against its own median"
            " of six hours. Engines without reuse have no hit rate to lose.",
            Query(f"min({hits} / ({recorded(USUAL_HITS, ENGINE)} >= {limit['hit_rate_own']:g}))"),
            unit="percentunit", maximum=1, none="no usual rate", decimals=0,
            steps=((0, WARN), (limit["hit_rate_fall"], "transparent")), alerts=("OomcastHitRateCollapse",),
        ),
        tile(
            "Accept too long", "Engines that accept requests longer than their whole pool.",
            Query(never), unit="short", steps=((1, WARN),), alerts=("OomcastContextNeverFits",),
        ),
        tile(
            "Preempted, 10 m", "Requests thrown out of the KV cache and computed again.",
            Query(f"round(sum(increase({of('oomcast_engine_preemptions_total', ENGINE)}[10m])))"),
            unit="short", none=_NONE, alerts=("OomcastPreemptionStorm",), decimals=0,
        ),
    )  # fmt: skip


def _prompts() -> tuple[Panel, ...]:
    buckets = of("oomcast_prompt_tokens_bucket", ENGINE)
    share = f"max {by('engine', 'above', 'bound')} ({of('oomcast_prompt_tokens_share_ratio', ENGINE, _LONG)})"
    return (
        lines(
            "Share of long prompts",
            "Prompts of the last hour above 64K and 128K tokens: at least (lower) and at most (upper) so many, as far"
            " as the engine's buckets tell.",
            Query(share, f"{_LEGEND} > {{{{above}}}} {{{{bound}}}}"), unit="percentunit", maximum=1, none=_NONE,
            alerts=("OomcastKvExhaustion", "OomcastHitRateCollapse"), width=12,
        ),
        heatmap(
            "Prompt lengths, by engines' buckets",
            "Prompts that ended, in the engine's own buckets of tokens: few are at the lengths that matter.",
            Query(f"sum by (le) ({increase(buckets)})", "{{le}}"), unit="short", none=_NONE,
            alerts=("OomcastHitRateCollapse",),
        ),
    )  # fmt: skip


def _pool(limit: Limits) -> tuple[Panel, ...]:
    marks = ((limit["long_prompt"], WARN), (limit["crash_prompt"], BAD))
    told = f"sum {by('engine', 'le')} ({rate(of('oomcast_prompt_tokens_bucket', ENGINE))})"
    return (
        kv_usage(limit),
        lines(
            "Hit rate of the prefix cache",
            "Tokens found of those looked up, over five minutes, and each engine's own median of six hours. Green: an"
            " engine that is well (92.4 %). Red: at the crash (3.1 %).",
            Query(engine("oomcast_kv_cache_hit_ratio"), _LEGEND),
            Query(recorded(USUAL_HITS, ENGINE), f"{_LEGEND} median"),
            unit="percentunit", maximum=1, none="too few lookups", colours=USUAL,
            limits=((limit["crash_hit_rate"], BAD), (limit["healthy_hit_rate"], GOOD)),
            alerts=("OomcastHitRateCollapse",),
        ),
        lines(
            "Preemptions and evictions",
            "Requests that were preempted, and tokens evicted from the prefix cache.",
            Query(per_second("oomcast_engine_preemptions_total", "engine", where=(ENGINE,)), f"{_LEGEND} preemptions"),
            Query(per_second("oomcast_kv_cache_evicted_tokens_total", "engine", where=(ENGINE,)),
                  f"{_LEGEND} evicted tokens"),
            unit="ops", none=_NONE, alerts=("OomcastPreemptionStorm",),
        ),
        waiting(),
        lines(
            "What is asked for, and what fits",
            "The largest request that would be admitted now, against the length that 99 of 100 prompts do not exceed."
            " Dashed: the longest that were served without trouble (64K), the shortest that ended engines (128K).",
            Query(engine("oomcast_kv_cache_largest_request_tokens"), f"{_LEGEND} fits"),
            Query(f"histogram_quantile(0.99, {told})", f"{_LEGEND} p99 asked for"),
            Query(engine("oomcast_engine_max_model_len_tokens"), f"{_LEGEND} longest accepted"),
            unit="short", limits=marks, none=_NONE, alerts=("OomcastHeadroomBelowDemand", "OomcastContextNeverFits"),
            colours={".*fits": "green", ".*p99 asked for": "orange", ".*longest accepted": "purple"},
        ),
        lines(
            "Tokens processed and generated", "Throughput: what preemptions and long prefills take away.",
            Query(per_second("oomcast_engine_prompt_tokens_total", "engine", where=(ENGINE,)), f"{_LEGEND} prompt"),
            Query(per_second("oomcast_engine_generation_tokens_total", "engine", where=(ENGINE,)),
                  f"{_LEGEND} generated"),
            unit="ops", none=_NONE, alerts=("OomcastPreemptionStorm",),
        ),
    )  # fmt: skip


def _memory(limit: Limits) -> tuple[Panel, ...]:
    """What a prefill takes beside the pool shows here and nowhere else."""
    left = "How long GPU memory lasts: a prefill that finds none ends the engine, and the KV cache says nothing of it."
    return (
        time_left("GPU memory runs out in", left, limit, _GPUS, GPU, width=8),
        gpus.peaks(limit, 8, 8),
        gpus.holders(),
    )


def _more() -> tuple[Panel, ...]:
    exact = of("oomcast_request_prompt_tokens_bucket", ENGINE)
    fitted = f"max {by('engine', 'above')} ({of('oomcast_prompt_tokens_lognormal_share_ratio', ENGINE, _LONG)})"
    return (
        heatmap(
            "Prompt lengths, by messages",
            "Finished requests that were told of one by one, in buckets at 64K, 128K and 200K tokens.",
            Query(f"sum by (le) ({increase(exact)})", "{{le}}"), unit="short", none="no messages", width=8,
            alerts=("OomcastLongRequestsFail",),
        ),
        lines(
            "KV cache in tokens", "What the pool holds, and what fits now, all ranks together.",
            Query(engine("oomcast_kv_cache_capacity_tokens"), f"{_LEGEND} capacity"),
            Query(engine("oomcast_kv_cache_headroom_tokens"), f"{_LEGEND} headroom"),
            unit="short", none=_NONE, alerts=("OomcastKvExhaustion",),
        ),
        lines(
            "Requests that run", "Requests that each engine works on.",
            Query(engine("oomcast_engine_requests_running"), _LEGEND), unit="short", none=_NONE, decimals=0,
            alerts=("OomcastEngineDeadlocked",),
        ),
        lines(
            "Tokens looked up and found", "In the prefix cache, and prompt tokens that came from a cache by messages.",
            Query(per_second("oomcast_kv_cache_queries_total", "engine", where=(ENGINE,)), f"{_LEGEND} looked up"),
            Query(per_second("oomcast_kv_cache_hits_total", "engine", where=(ENGINE,)), f"{_LEGEND} found"),
            Query(per_second("oomcast_request_cached_tokens_total", "engine", where=(ENGINE,)),
                  f"{_LEGEND} by messages"),
            unit="ops", none=_NONE, alerts=("OomcastHitRateCollapse",),
        ),
        lines(
            "Share of long prompts, fitted",
            "By the log-normal that fits the prompts of the last hour, and how far it is from them: far off, it is no"
            " help (docs/lengths.md).",
            Query(fitted, f"{_LEGEND} > {{{{above}}}}"),
            Query(engine("oomcast_prompt_tokens_lognormal_distance_ratio"), f"{_LEGEND} distance"),
            unit="percentunit", maximum=1, none="too few prompts, or no fit", alerts=("OomcastSloRisk",),
        ),
        lines(
            "Memory of the KV pool", "Of all data-parallel and one tensor-parallel rank.",
            Query(engine("oomcast_kv_cache_capacity_bytes"), f"{_LEGEND} pool"),
            Query(engine("oomcast_kv_cache_bytes_per_token"), f"{_LEGEND} per token"),
            unit="bytes", none=_NONE,
        ),
    )  # fmt: skip


def _gateway() -> tuple[Panel, ...]:
    return (
        lines(
            "Retries", "Requests that a gateway tried again, and earlier tries as senders tell.",
            Query(per_second("oomcast_gateway_retries_total", "engine", where=(ENGINE,)), f"{_LEGEND} gateway"),
            Query(per_second("oomcast_request_retries_total", "engine", where=(ENGINE,)), f"{_LEGEND} senders"),
            unit="reqps", none="no gateway", alerts=("OomcastQueuePileUp",),
        ),
        lines(
            "Circuit breakers", "1 while a breaker of the gateway is open.",
            Query(engine("oomcast_gateway_circuit_breaker_open"), _LEGEND),
            unit="short", maximum=1, none="no gateway", alerts=("OomcastCircuitBreakerOpen",), decimals=0,
        ),
        lines(
            "Requests by their sender's breaker", "State of the sender's circuit breaker when the request ended.",
            Query(per_second("oomcast_request_breaker_total", "engine", "state", where=(ENGINE,)),
                  f"{_LEGEND} {{{{state}}}}"),
            unit="reqps", none="no messages", alerts=("OomcastCircuitBreakerOpen",),
        ),
    )  # fmt: skip
