"""The metric table of the engine collector. `engine` is the settings' name, else the unit or container and the port."""

from oomcast.metric import Kind, Metric
from oomcast_collectors.slo.metrics import METRICS as SLO

STATES = (
    "serving",
    "idle",
    "saturated",
    "thrashing",
    "deadlocked",
    "long_prefill",
    "piling_up",
    "hit_rate_collapse",
    "restarted",
    "unreachable",
    "dead",
)

_ENGINES = 64
_DOWN = "while the engine does not answer"
_NOT_TOLD = f"{_DOWN}; where it does not tell"


def _per_engine(name: str, kind: Kind, text: str, absent: str = _NOT_TOLD) -> Metric:
    return Metric(f"oomcast_{name}", kind, text, ("engine",), _ENGINES, absent=absent)


def _by(name: str, kind: Kind, label: str, text: str, absent: str = _NOT_TOLD) -> Metric:
    return Metric(f"oomcast_{name}", kind, text, ("engine", label), 20 * _ENGINES, absent=absent)


UP = _per_engine("engine_up", "gauge", "1 if the last look at the engine succeeded, 0 if not.", "")
INFO = Metric(
    "oomcast_engine_info",
    "info",
    "What the engine is. capacity: exact (the engine's own number of tokens) or approximate (blocks times their size)."
    " cache_unit: what the engine counts prefix-cache queries in; blocks are converted to tokens.",
    ("engine", "kind", "version", "model", "address", "capacity", "cache_unit", "cgroup"),
    _ENGINES,
    absent="labels are left out where the engine does not tell",
)
STATE = Metric(
    "oomcast_engine_state",
    "stateset",
    "What the engine does, by the evidence in docs/engines.md; the worst that holds.",
    ("engine",),
    _ENGINES * len(STATES),
    STATES,
)
RESTARTS = _per_engine("engine_restarts_total", "counter", "Times that the engine was seen to have restarted.", "")
SCRAPE_SECONDS = _per_engine("engine_scrape_duration_seconds", "gauge", "How long the last look at the engine took.")
SCRAPE_ERRORS = _by(
    "engine_scrape_errors_total", "counter", "reason", "Looks at the engine that failed, by reason.", "until the first"
)
SCRAPE_INVALID = _per_engine(
    "engine_scrape_malformed_lines_total", "counter", "Lines of the engine's page that could not be read.", ""
)

USAGE = _per_engine(
    "kv_cache_usage_ratio",
    "gauge",
    "Used share of the KV pool, of the fullest data-parallel rank; what is only cached and can be evicted is not used.",
)
CAPACITY = _per_engine("kv_cache_capacity_tokens", "gauge", "Tokens that the KV pool holds, of all ranks together.")
HEADROOM = _per_engine(
    "kv_cache_headroom_tokens", "gauge", "Tokens that fit into the KV pool now, of all ranks together."
)
LARGEST = _per_engine(
    "kv_cache_largest_request_tokens",
    "gauge",
    "Largest request, prompt and answer, that would be admitted now: what is free on the emptiest rank in whole blocks,"
    " at most the longest that the engine accepts.",
)
BYTES_PER_TOKEN = _per_engine(
    "kv_cache_bytes_per_token",
    "gauge",
    "KV memory of one token on one tensor-parallel rank, from the engine or from config.json.",
)
CAPACITY_BYTES = _per_engine(
    "kv_cache_capacity_bytes", "gauge", "Memory of the KV pool, of all data-parallel and one tensor-parallel rank."
)
MAX_MODEL_LEN = _per_engine("engine_max_model_len_tokens", "gauge", "Longest request that the engine accepts.")
FITS = _per_engine(
    "kv_cache_max_model_len_fits",
    "gauge",
    "0 if a request of the longest length that the engine accepts can never fit into its KV pool, else 1.",
)
QUERIES = _per_engine("kv_cache_queries_total", "counter", "Prompt tokens looked up in the prefix cache.")
HITS = _per_engine("kv_cache_hits_total", "counter", "Prompt tokens that were found in the prefix cache.")
HIT_RATIO = _per_engine(
    "kv_cache_hit_ratio",
    "gauge",
    "Hits over queries of the last hit_window seconds (a setting, 300), from the counters.",
    f"{_NOT_TOLD}; with fewer than hit_min_queries tokens looked up in the window",
)
PREEMPTIONS = _per_engine(
    "engine_preemptions_total", "counter", "Requests preempted, or retracted, for want of KV memory."
)
EVICTED = _per_engine("kv_cache_evicted_tokens_total", "counter", "Tokens evicted from the prefix cache.")

RUNNING = _per_engine("engine_requests_running", "gauge", "Requests that the engine works on.")
WAITING = _by(
    "engine_requests_waiting", "gauge", "reason", "Requests in the engine's queue, by the reason that it names."
)
FINISHED = _by(
    "engine_requests_finished_total", "counter", "reason", "Requests that ended, by the engine's own reason."
)
HTTP = _by("engine_http_responses_total", "counter", "code", "HTTP responses, by code or class, whichever it tells.")
REJECTED = _by("engine_rejections_total", "counter", "reason", "Requests refused before admission, by reason.")
SHORT = _by(
    "engine_short_responses_total",
    "counter",
    "tokens",
    "Responses of at most so many tokens: empty ones and those nearly so, as far as the engine's buckets can tell.",
)
CORRUPTED = _per_engine(
    "corrupted_responses_total", "counter", "Responses with NaN logits, where the engine counts them."
)
PROMPT_TOKENS = _per_engine("engine_prompt_tokens_total", "counter", "Prompt tokens processed.")
GENERATION_TOKENS = _per_engine("engine_generation_tokens_total", "counter", "Tokens generated.")
PROMPT_LENGTHS = Metric(
    "oomcast_prompt_tokens",
    "histogram",
    "Prompt lengths in tokens, in the engine's own buckets.",
    ("engine",),
    _ENGINES,
    absent=_NOT_TOLD,
)
SHARE = Metric(
    "oomcast_prompt_tokens_share_ratio",
    "gauge",
    "Share of the prompts of the last length_window seconds (a setting, 3600) above so many tokens: its lower and upper"
    " bound, equal where the engine's buckets have the length.",
    ("engine", "above", "bound"),
    8 * _ENGINES,
    absent=f"{_NOT_TOLD}; without a prompt in the window",
)
_FITTED = f"{_NOT_TOLD}; with too few prompts in the window, or lengths that allow no fit"
MU = _per_engine(
    "prompt_tokens_lognormal_mu",
    "gauge",
    "Of the log-normal fitted to the prompts of the last length_window seconds: its mu, of lengths in tokens.",
    _FITTED,
)
SIGMA = _per_engine("prompt_tokens_lognormal_sigma", "gauge", "Of the same log-normal: its sigma.", _FITTED)
DISTANCE = _per_engine(
    "prompt_tokens_lognormal_distance_ratio",
    "gauge",
    "How badly it fits: the largest difference of a fitted and a counted cumulative share at an edge of the engine's"
    " buckets (Kolmogorov-Smirnov).",
    _FITTED,
)
FITTED_SHARE = Metric(
    "oomcast_prompt_tokens_lognormal_share_ratio",
    "gauge",
    "Share of prompts above so many tokens, by that log-normal.",
    ("engine", "above"),
    4 * _ENGINES,
    absent=f"{_FITTED}; where the log-normal does not hold (docs/lengths.md)",
)
RETRIES = _per_engine("gateway_retries_total", "counter", "Requests that a gateway tried again.")
BREAKER = _per_engine("gateway_circuit_breaker_open", "gauge", "1 while a circuit breaker of a gateway is open.")

METRICS: tuple[Metric, ...] = (
    *(UP, INFO, STATE, RESTARTS, SCRAPE_SECONDS, SCRAPE_ERRORS, SCRAPE_INVALID),
    *(USAGE, CAPACITY, HEADROOM, LARGEST, BYTES_PER_TOKEN, CAPACITY_BYTES, MAX_MODEL_LEN, FITS),
    *(QUERIES, HITS, HIT_RATIO, PREEMPTIONS, EVICTED),
    *(RUNNING, WAITING, FINISHED, HTTP, REJECTED, SHORT, CORRUPTED, PROMPT_TOKENS, GENERATION_TOKENS),
    *(PROMPT_LENGTHS, SHARE, MU, SIGMA, DISTANCE, FITTED_SHARE, RETRIES, BREAKER),
    *SLO,
)
