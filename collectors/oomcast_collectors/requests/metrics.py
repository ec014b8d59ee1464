"""The metric table of the requests collector.

`engine` is what the message calls it, `up_to` the longest prompt of the length class, in tokens.
"""

from oomcast.metric import Metric
from oomcast_collectors.slo.metrics import METRICS as SLO

MAX_ENGINES = 64
CODES = ("2xx", "3xx", "4xx", "5xx")
BREAKER_STATES = ("closed", "open", "half_open")
OUTCOMES = ("accepted", "invalid", "version", "refused", "rate_limited", "too_many_engines")
UNKNOWN = "unknown"
"""The class of failed requests whose prompt nobody counted."""

_CLASSES = 13
_ABSENT = "no message about the engine has come"
_OFF = "the settings name no socket, or it cannot be bound"


def _engine(name: str, text: str, *labels: str, each: int = 1) -> Metric:
    return Metric(f"oomcast_request_{name}", "counter", text, ("engine", *labels), MAX_ENGINES * each, absent=_ABSENT)


PROMPT_TOKENS = Metric(
    "oomcast_request_prompt_tokens",
    "histogram",
    "Prompts of finished requests, by length in tokens; exemplars are the newest traces of each bucket.",
    ("engine",),
    MAX_ENGINES,
    absent=_ABSENT,
)
RESPONSES = _engine(
    "responses_total",
    "Finished requests by class of their status; 1xx counts as 2xx.",
    *("up_to", "code"),
    each=_CLASSES * len(CODES),
)
EMPTY = _engine(
    "empty_responses_total", "Finished requests without any content in the response.", "up_to", each=_CLASSES
)
UNTRACED = _engine("untraced_responses_total", "Finished requests without a valid trace id.", "up_to", each=_CLASSES)
OUTPUT_TOKENS = _engine("output_tokens_total", "Tokens of responses, where the sender knew.")
CACHED_TOKENS = _engine("cached_tokens_total", "Tokens of prompts that came from a cache, where the sender knew.")
UNIDENTIFIED = _engine(
    "unidentified_total", "Requests of which the sender said that they lack a user or a tenant.", "missing", each=2
)
RETRIES = _engine("retries_total", "Earlier tries of the requests that were told.")
BREAKER = _engine(
    "breaker_total",
    "Requests by the state in which their sender's circuit breaker was.",
    "state",
    each=len(BREAKER_STATES),
)
MESSAGES = Metric(
    "oomcast_request_messages_total",
    "counter",
    "Messages received, by what became of them; all but the accepted ones are in no other series.",
    ("outcome",),
    len(OUTCOMES),
    absent=_OFF,
)
LOST = Metric(
    "oomcast_request_messages_lost_total",
    "counter",
    "Messages that their senders could not send, as they told later.",
    absent=_OFF,
)
MALFORMED_TRACE_IDS = Metric(
    "oomcast_request_malformed_trace_ids_total",
    "counter",
    "Messages with a trace id that is none; they count as untraced.",
    absent=_OFF,
)
METRICS = (
    *(PROMPT_TOKENS, RESPONSES, EMPTY, UNTRACED, OUTPUT_TOKENS, CACHED_TOKENS, UNIDENTIFIED, RETRIES, BREAKER),
    *(MESSAGES, LOST, MALFORMED_TRACE_IDS),
    *SLO,
)
