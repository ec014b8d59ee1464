"""What engines go through before they die, and that they are gone."""

from oomcast.rules.config import Config
from oomcast.rules.requests import classes_above
from oomcast.rules.rule import Alert, Group, Recording

USUAL_HITS = "engine:oomcast_kv_cache_hit_ratio:median6h"


def group(c: Config) -> Group:
    ratio = f"min {c.by('engine')} ({c.of('oomcast_kv_cache_hit_ratio')})"
    recording = Recording(
        USUAL_HITS,
        f"quantile_over_time(0.5, ({ratio})[{c.span('hit_rate_window')}:{c.ago(60)}])",
        "What is usual for each engine. Not of each series: a daemon that comes back at another address goes on with"
        " what the one before it told.",
    )
    return Group("oomcast-engine", (recording, *_hits(c), *_pool(c), *_states(c), *_gone(c)))


def _served(c: Config, above: str) -> str:
    """That prompts above so many tokens came in the last hour: that ended well, as far as the engine's buckets tell for
    certain, or in any way but a refusal, as far as messages about requests tell."""
    share = c.of("oomcast_prompt_tokens_share_ratio", f'above="{c.limits[above]:.0f}", bound="lower"')
    classes = classes_above(c.limits[above])
    told = c.of("oomcast_request_responses_total", f'up_to=~"{classes}", code!="4xx"')
    return (
        f"and {c.on('engine')} (\n"
        f"  max {c.by('engine')} ({share}) > 0\n"
        f"  or sum {c.by('engine')} (increase({told}[{c.ago(3600)}])) > 0\n"
        ")"
    )


def _hits(c: Config) -> tuple[Alert, ...]:
    now = f"min {c.by('engine')} ({c.of('oomcast_kv_cache_hit_ratio')})"
    restarts = f"increase({c.of('oomcast_engine_restarts_total')}[{c.span('restart_grace')}])"
    guards = (
        f"and {c.on('engine')} {USUAL_HITS} >= {c.value('hit_rate_own')}\n"
        f"unless {c.on('engine')} sum {c.by('engine')} ({restarts}) > 0"
    )
    summary = "{{ $labels.engine }} on <node> finds {{ $value | humanizePercentage }} of its prompt tokens in the cache"
    text = (
        "The prefix cache of {{ $labels.engine }} on <node> finds {{ $value | humanizePercentage }} of the"
        " tokens looked up, where its own median of six hours is at least half: prompts are computed again and again,"
        " and memory and time go with it. Next: see who sends long prompts that share nothing, and send them elsewhere."
    )
    return (
        Alert(
            "OomcastHitRateCollapse", "critical", "engine", "symptom",
            f"{now} <= {c.value('crash_hit_rate')}\n{guards}\n{_served(c, 'crash_prompt')}",
            summary, text,
            "The value of the crash, with prompts of the length that crashed, at an engine that used to have reuse. A"
            " workload without reuse has no median to fall from. The ratio is of five minutes: what lasts longer is not"
            " one long prompt that nobody has sent before.",
            hold=c.limits["hit_rate_hold"], keep=c.limits["keep"], board="long-context",
        ),
        Alert(
            "OomcastHitRateCollapse", "warning", "engine", "symptom",
            f"{now} < {c.value('hit_rate_fall')} * {USUAL_HITS}\n{guards}",
            summary, text,
            "Below a third of its own median, which no change of the mix does by itself where it lasts. The daemon"
            " tells no ratio below ten thousand tokens looked up.",
            hold=c.limits["hit_rate_hold"], keep=c.limits["keep_warning"], board="long-context",
        ),
    )  # fmt: skip


def _pool(c: Config) -> tuple[Alert, ...]:
    pools = c.of("oomcast_time_to_exhaustion_seconds", 'resource="kv_cache"')
    left = f"min {c.by('engine')} ({pools})"
    usage = f"max {c.by('engine')} ({c.of('oomcast_kv_cache_usage_ratio')})"
    largest = f"max_over_time({c.of('oomcast_kv_cache_largest_request_tokens')}[{c.span('demand_window')}])"

    def full(within: str, least: str, above: str) -> str:
        return (
            f"(\n  {left} < {c.value(within)}\n  or 0 * ({usage} > {c.value('kv_full')})\n)\n"
            f"and {c.on('engine')} {usage} > {c.value(least)}\n{_served(c, above)}"
        )

    def lacks(above: str) -> str:
        return f"max {c.by('engine')} ({largest}) < {c.value(above)}\n{_served(c, above)}"

    when = "{{ if lt $value 1.0 }}is full{{ else }}is full in {{ $value | humanizeDuration }}{{ end }}"
    summary = "The KV cache of {{ $labels.engine }} on <node> " + when
    text = (
        "The KV pool of {{ $labels.engine }} on <node> " + when + ", and long prompts were among those of the last"
        " hour: requests wait or are preempted and computed again. Next: send long prompts elsewhere, or lower the"
        " engine's number of concurrent requests."
    )
    return (
        Alert(
            "OomcastKvExhaustion", "critical", "engine", "symptom",
            f"({full('exhaustion_sudden', 'kv_usage_critical', 'crash_prompt')})\n{_harmless(c)}", summary, text,
            "A full pool kills nothing by itself and every burst of load fills it: critical only while prompts of the"
            " length that crashed are served, when it lasts, somebody waits for it, and it is not full most of the day"
            " at this engine. A pool that is full does not rise any more and has no"
            " time left to tell: that is the 0 of the second line.",
            hold=c.limits["kv_hold"], keep=c.limits["keep"], board="long-context",
        ),
        Alert(
            "OomcastKvExhaustion", "warning", "engine", "symptom",
            full("exhaustion_critical", "kv_usage_warning", "long_prompt"), summary, text,
            "Below half of the pool a rise is the beginning of a load.",
            hold=c.limits["kv_hold"], keep=c.limits["keep_warning"], board="long-context",
        ),
        Alert(
            "OomcastHeadroomBelowDemand", "warning", "engine", "symptom",
            f"{lacks('crash_prompt')}\nor\n{lacks('long_prompt')}",
            "{{ $labels.engine }} on <node> has room for {{ $value | humanize }} tokens, and is asked for more",
            "The largest request that {{ $labels.engine }} on <node> could admit in the last"
            f" {c.said('demand_window')} has {{{{ $value | humanize }}}} tokens, and longer prompts were among"
            " those of the last hour: they wait, and others behind them. Next: oomcast context says"
            " what breaks first; send long prompts elsewhere.",
            "The largest of ten minutes: room that comes back with each request that ends is room.",
            hold=c.limits["kv_hold"], keep=c.limits["keep_warning"], board="long-context",
        ),
        Alert(
            "OomcastContextNeverFits", "warning", "engine", "symptom",
            f"min {c.by('engine')} ({c.of('oomcast_kv_cache_max_model_len_fits')}) == 0",
            "{{ $labels.engine }} on <node> accepts requests that can never fit",
            "The longest request that {{ $labels.engine }} on <node> accepts is larger than its whole KV pool: one"
            " that long is refused late, or waits for ever with all others behind it. Next: lower the engine's maximum"
            " length, or give its pool more memory.",
            "A setting, which does not change by itself. SGLang refuses such a request, others let it wait.",
            hold=c.limits["config_hold"], keep=c.limits["keep_warning"], board="long-context",
        ),
    )  # fmt: skip


def _harmless(c: Config) -> str:
    """A pool that nobody waits for, or that is as full as it always is."""
    waiting = f"sum {c.by('engine')} ({c.of('oomcast_engine_requests_waiting')})"
    past = f"{c.of('oomcast_kv_cache_usage_ratio')}[{c.span('hit_rate_window')}] offset {c.ago(1800)}"
    usual = f"max {c.by('engine')} (quantile_over_time(0.5, {past}))"
    return f"unless {c.on('engine')} {waiting} == 0\nunless {c.on('engine')} {usual} > {c.value('kv_usage_critical')}"


def _states(c: Config) -> tuple[Alert, ...]:

    def state(name: str) -> str:
        matcher = f'oomcast_engine_state="{name}"'
        return f"max {c.by('engine')} ({c.of('oomcast_engine_state', matcher)}) == 1"

    return (
        Alert(
            "OomcastEngineDeadlocked", "critical", "engine", "symptom", state("deadlocked"),
            "{{ $labels.engine }} on <node> has requests waiting and works on none",
            "Requests wait at {{ $labels.engine }} on <node>, none runs, and no counter moves: it will not go on by"
            " itself. Next: take it out of the load balancer, keep its log, restart it.",
            "The daemon has seen it stand still for half a minute before it says so.",
            hold=c.limits["state_hold"], keep=c.limits["keep"], board="long-context",
        ),
        Alert(
            "OomcastPreemptionStorm", "warning", "engine", "symptom", state("thrashing"),
            "{{ $labels.engine }} on <node> preempts requests, and generates far less than usual",
            "{{ $labels.engine }} on <node> throws requests out of its KV cache and computes them again, and"
            " generates below 60 % of its usual tokens meanwhile. Next: lower its number of concurrent requests, or"
            " send long prompts elsewhere.",
            "Preemptions that cost no throughput are none of our business; the daemon compares with the usual rate.",
            hold=c.limits["state_hold"], keep=c.limits["keep_warning"], board="long-context",
        ),
        Alert(
            "OomcastQueuePileUp", "warning", "engine", "symptom", state("piling_up"),
            "Requests pile up at {{ $labels.engine }} on <node>",
            "The queue of {{ $labels.engine }} on <node> grows while fewer requests than usual are completed: retries"
            " come on top of what waits. Next: shed load before the engine; see whether one long prompt holds all"
            " others up.",
            "A queue that grows with the load alone is saturation, not this.",
            hold=c.limits["state_hold"], keep=c.limits["keep_warning"], board="long-context",
        ),
        Alert(
            "OomcastCircuitBreakerOpen", "warning", "engine", "symptom",
            f"max {c.by('engine')} ({c.of('oomcast_gateway_circuit_breaker_open')}) == 1",
            "A circuit breaker of gateway {{ $labels.engine }} on <node> is open",
            "The gateway {{ $labels.engine }} on <node> lets no more requests through to an engine behind it, and"
            " those who send may not know. Next: see which engine fails, and whether the load balancer knows.",
            "It opens for a moment with every burst.",
            hold=c.limits["state_hold"], keep=c.limits["keep_warning"], board="long-context",
        ),
    )  # fmt: skip


def _gone(c: Config) -> tuple[Alert, ...]:
    dead = c.of("oomcast_engine_state", 'oomcast_engine_state="dead"')
    down = f"max {c.by('engine')} ({c.of('oomcast_engine_up')}) == 0\nor\nmax {c.by('engine')} ({dead}) == 1"
    restarts = f"increase({c.of('oomcast_engine_restarts_total')}[{c.span('kills_window')}])"
    text = (
        "oomcast on <node> gets no answer from {{ $labels.engine }}, or its own health check says that it is dead."
        " Next: see whether its process runs; OOM kills, crashes and the last lines of its log say why it does not."
    )
    return (
        Alert(
            "OomcastEngineDown", "critical", "engine", "fact", down,
            f"{{{{ $labels.engine }}}} on <node> has been down for {c.said('engine_down_critical')}", text,
            "As long as a rolling restart may take to load a model. A server may go on telling metrics after its"
            " engine's core has died: then only its health check says so. One that was killed for want of memory is"
            " told earlier, by OomcastEngineKilled.",
            hold=c.limits["engine_down_critical"], keep=c.limits["keep"], board="forensics",
        ),
        Alert(
            "OomcastEngineDown", "warning", "engine", "fact", down,
            "{{ $labels.engine }} on <node> does not answer", text,
            "Longer than one slow answer under load.",
            hold=c.limits["engine_down_warning"], keep=c.limits["keep_warning"], board="forensics",
        ),
        Alert(
            "OomcastEngineRestarting", "warning", "engine", "fact",
            f"round(max {c.by('engine')} ({restarts})) >= {c.value('restarts')}",
            "{{ $labels.engine }} on <node> restarted {{ $value | humanize }} times in"
            f" {c.said('kills_window')}",
            "{{ $labels.engine }} on <node> keeps starting anew: it never lives long. Next: the end of its last life"
            " is in its log and, for a kill, on the board.",
            "One restart is a deployment. The largest count, as two daemons see each restart twice.",
            keep=c.limits["keep_warning"], board="forensics",
        ),
    )  # fmt: skip
