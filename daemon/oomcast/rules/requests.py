"""What clients get, and what engines say in their logs."""

import math

from oomcast.rules.config import Config
from oomcast.rules.rule import Alert, Group, Recording

_CLASSES = (512, 2048, 65_536, 131_072, 200_000, math.inf)
"""Ends of the length classes, in tokens, as the settings have them by default."""

LOG_EVENTS = "engine:oomcast_log_events:increase5m"

_MEMORY_RULES = (
    "cuda_out_of_memory|cublas_alloc_failed|prefill_out_of_memory|decode_out_of_memory|pool_out_of_memory"
    "|warmup_out_of_memory|no_memory_for_cache|memory_leak"
)
_DEATH_RULES = "engine_dead|engine_start_failed|panic|illegal_memory_access"
_NUMBER_RULES = "attn_grad_overflow|nan_detected|inf_or_nan|overflow"


def group(c: Config) -> Group:
    return Group("oomcast-requests", (_log_events(c), *_failures(c), *_logs(c)))


def classes_above(tokens: float) -> str:
    """A regular expression of the classes whose prompts are all above so many tokens."""
    return "|".join("[+]Inf" if end == math.inf else str(end) for end in _after(tokens))


def _after(tokens: float) -> tuple[float, ...]:
    begins = (0, *_CLASSES[:-1])
    above = tuple(end for begin, end in zip(begins, _CLASSES, strict=True) if begin >= tokens)
    return above or _CLASSES[-1:]


def _log_events(c: Config) -> Recording:
    events, window = c.of("oomcast_log_events_total"), c.ago(300)
    reads = c.of("oomcast_collector_up", 'collector="engine_log"')
    return Recording(
        LOG_EVENTS,
        f"sum {c.by('engine', 'rule')} (increase({events}[{window}])) > 0\n"
        f"or\nsum {c.by('engine', 'rule')} ({events} unless {events} offset {window}) > 0\n"
        f"  and {c.on()} max {c.by()} ({reads} offset {window}) == 1",
        "An engine that dies as it starts may have said so before its log is scraped for the first time: what appears"
        " above 0 is news as well, unless logs were not read before.",
    )


def _failures(c: Config) -> tuple[Alert, ...]:
    long = 'up_to=~"' + classes_above(c.limits["long_prompt"]) + '"'

    def count(metric: str, *matchers: str) -> str:
        return f"sum {c.by('engine')} (increase({c.of(metric, ', '.join((*matchers, long)))}[{c.ago(600)}]))"

    def responses(codes: str) -> str:
        return count("oomcast_request_responses_total", f"code{codes}")

    least = f">= {c.value('least_requests')}"
    failed, not_refused = responses('="5xx"'), responses('!="4xx"')
    without_content = count("oomcast_request_empty_responses_total")
    not_served, served = responses('=~"4xx|5xx"'), responses('=~"2xx|3xx"')
    corrupted = c.of("oomcast_corrupted_responses_total")
    tokens = f"{c.limits['long_prompt']:,.0f} tokens"
    return (
        *_pair(
            c, "OomcastLongRequestsFail", f"{failed}\n/ ({not_refused} {least})",
            "{{ $value | humanizePercentage }} of the long requests to {{ $labels.engine }} on <node> fail",
            f"Of the requests with more than {tokens} to {{{{ $labels.engine }}}} on <node> in the last ten minutes"
            " {{ $value | humanizePercentage }} ended with a server error; refused ones are not counted. Next: send"
            " long prompts elsewhere; memory of the engine and its GPUs says why.",
            "Every other long request fails: long contexts are down. Clients see it already, so no `for`.",
        ),
        *_pair(
            c, "OomcastLongResponsesEmpty", f"(\n  {without_content}\n  - {not_served}\n) / ({served} {least})",
            "{{ $value | humanizePercentage }} of the long responses of {{ $labels.engine }} on <node> are empty",
            f"Of the successful responses of {{{{ $labels.engine }}}} on <node> to prompts with more than {tokens} in"
            " the last ten minutes {{ $value | humanizePercentage }} had no content. Next: see whether its log or its"
            " count of NaN says why; send long prompts elsewhere.",
            "Success without an answer. Errors have no content either, and are OomcastLongRequestsFail's.",
        ),
        Alert(
            "OomcastCorruptedResponses", "warning", "requests", "fact",
            f"sum {c.by('engine')} (increase({corrupted}[{c.span('event_window')}])) > 0",
            "{{ $labels.engine }} on <node> gives responses with NaN",
            "{{ $labels.engine }} on <node> computed NaN in place of probabilities: clients got garbage. Next: see"
            " whether long prompts did it, and restart the engine.",
            "One is enough: what is corrupted in memory may stay so.",
            keep=c.limits["keep_warning"], board="long-context",
        ),
    )  # fmt: skip


def _pair(c: Config, name: str, share: str, summary: str, text: str, why: str) -> tuple[Alert, Alert]:
    return (
        Alert(
            name, "critical", "requests", "symptom", f"{share} > {c.value('long_failures_critical')}", summary, text,
            why, keep=c.limits["keep"], board="long-context",
        ),
        Alert(
            name, "warning", "requests", "symptom", f"{share} > {c.value('long_failures_warning')}", summary, text,
            "More than bad luck, with at least five requests to tell it from.",
            keep=c.limits["keep_warning"], board="long-context",
        ),
    )  # fmt: skip


def _logs(c: Config) -> tuple[Alert, ...]:

    def log(name: str, rules: str, what: str, text: str) -> Alert:
        return Alert(
            name, "warning", "engine", "symptom", f'{LOG_EVENTS}{{rule=~"{rules}"}} > 0',
            "{{ $labels.engine }} on <node> logs " + what + " ({{ $labels.rule }})",
            text,
            "A line that an engine prints only when it happened. One failure is many lines, so their number says"
            " nothing.",
            keep=c.limits["keep_warning"], board="forensics",
        )  # fmt: skip

    return (
        log(
            "OomcastLogOutOfMemory", _MEMORY_RULES, "that memory ran out",
            "The log of {{ $labels.engine }} on <node> has a line of rule {{ $labels.rule }}: an allocation"
            " found no room, or the pool leaks. Next: see on the board what took the memory, and how long the prompts"
            " were.",
        ),
        log(
            "OomcastLogEngineDead", _DEATH_RULES, "that it died",
            "The log of {{ $labels.engine }} on <node> has a line of rule {{ $labels.rule }}: the engine, a worker or"
            " a thread of it is dead. Next: read the lines before it, restart the engine if its supervisor did not.",
        ),
        log(
            "OomcastLogBadNumbers", _NUMBER_RULES, "numbers that overflow",
            "The log of {{ $labels.engine }} on <node> has a line of rule {{ $labels.rule }}: Inf or NaN spreads"
            f" through the layers and answers are garbage or empty. Next: see whether prompts above"
            f" {c.tokens('crash_prompt')} tokens are being served.",
        ),
    )  # fmt: skip
