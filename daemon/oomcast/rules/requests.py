"""What clients get, and what engines say in their logs."""

from oomcast.rules.config import Config
from oomcast.rules.rule import Alert, Group

LONG_CLASSES = 'up_to=~"131072|200000|[+]Inf"'
"""The length classes above 64K tokens, as the settings have them by default."""

_MEMORY_RULES = (
    "cuda_out_of_memory|cublas_alloc_failed|prefill_out_of_memory|decode_out_of_memory|pool_out_of_memory"
    "|warmup_out_of_memory|no_memory_for_cache|memory_leak"
)
_DEATH_RULES = "engine_dead|engine_start_failed|panic|illegal_memory_access"
_NUMBER_RULES = "attn_grad_overflow|nan_detected|inf_or_nan|overflow"


def group(c: Config) -> Group:
    return Group("oomcast-requests", (*_failures(c), *_logs(c)))


def _failures(c: Config) -> tuple[Alert, ...]:
    window = c.ago(600)
    corrupted = c.of("oomcast_corrupted_responses_total")

    def share(metric: str, matchers: str) -> str:
        inside = f"{matchers}, {LONG_CLASSES}" if matchers else LONG_CLASSES
        part = f"sum {c.by('engine')} (increase({c.of(metric, inside)}[{window}]))"
        whole = f"sum {c.by('engine')} (increase({c.of('oomcast_request_responses_total', LONG_CLASSES)}[{window}]))"
        return f"{part}\n/ ({whole} >= {c.value('least_requests')})"

    def pair(name: str, expr: str, what: str) -> tuple[Alert, Alert]:
        summary = "{{ $value | humanizePercentage }} of the long requests to {{ $labels.engine }} on <node> " + what
        text = (
            "Of the requests with more than 64K tokens to {{ $labels.engine }} on <node> in ten minutes {{ $value |"
            " humanizePercentage }}"
            f" {what}. Next: send long prompts elsewhere; memory of the engine and its GPUs says why."
        )
        return (
            Alert(
                name, "critical", "requests", "symptom", f"{expr} > {c.value('long_failures_critical')}", summary, text,
                "Every other long request fails: long contexts are down. Clients see it already, so no `for`.",
                keep=c.limits["keep"], board="long-context",
            ),
            Alert(
                name, "warning", "requests", "symptom", f"{expr} > {c.value('long_failures_warning')}", summary, text,
                "More than bad luck, with at least five requests to tell it from.",
                keep=c.limits["keep_warning"], board="long-context",
            ),
        )  # fmt: skip

    return (
        *pair(
            "OomcastLongRequestsFail",
            share("oomcast_request_responses_total", 'code="5xx"'),
            "ended with a server error",
        ),
        *pair("OomcastLongResponsesEmpty", share("oomcast_request_empty_responses_total", ""), "came back empty"),
        Alert(
            "OomcastCorruptedResponses", "warning", "requests", "symptom",
            f"sum {c.by('engine')} (increase({corrupted}[{c.span('event_window')}])) > 0",
            "{{ $labels.engine }} on <node> answered with numbers that are none",
            "Responses of {{ $labels.engine }} on <node> had NaN among their logits: clients got garbage. Next: see"
            " whether long prompts did it, and restart the engine.",
            "One is enough: what is corrupted in memory may stay so.",
            keep=c.limits["keep_warning"], board="long-context",
        ),
    )  # fmt: skip


def _logs(c: Config) -> tuple[Alert, ...]:

    def log(name: str, rules: str, what: str, text: str) -> Alert:
        events = c.of("oomcast_log_events_total", f'rule=~"{rules}"')
        return Alert(
            name, "warning", "engine", "symptom",
            f"sum {c.by('engine', 'rule')} (increase({events}[{c.span('event_window')}])) > 0",
            "{{ $labels.engine }} on <node> logs " + what + " ({{ $labels.rule }})",
            text,
            "A line that an engine prints only when it happened. One failure is many lines, so their number says"
            " nothing.",
            keep=c.limits["keep_warning"], board="forensics",
        )  # fmt: skip

    return (
        log(
            "OomcastLogOutOfMemory", _MEMORY_RULES, "that memory ran out",
            "The log of {{ $labels.engine }} on <node> has a line of rule {{ $labels.rule }}: an allocation failed."
            " Next: see on the board what took the memory, and how long the prompts were.",
        ),
        log(
            "OomcastLogEngineDead", _DEATH_RULES, "that it died",
            "The log of {{ $labels.engine }} on <node> has a line of rule {{ $labels.rule }}: the engine, or a worker"
            " of it, is dead. Next: read the lines before it, restart the engine if its supervisor did not.",
        ),
        log(
            "OomcastLogBadNumbers", _NUMBER_RULES, "numbers that overflow",
            "The log of {{ $labels.engine }} on <node> has a line of rule {{ $labels.rule }}: Inf or NaN spreads"
            " through the layers and answers are garbage or empty. Next: see whether prompts above 128K tokens are"
            " being served.",
        ),
    )  # fmt: skip
