"""SGLang, with --enable-metrics.

Each tensor-parallel rank may tell the same as the first; the memory of the pool is one rank's, and covers a page of
tokens more than the pool has. Usage counts no token that is only cached. The gauge cache_hit_rate is the last batch's,
so hits are from the counters that leave out what is computed again after a retraction.
"""

from dataclasses import replace

from oomcast_collectors.engine.kinds import answers
from oomcast_collectors.engine.kinds.rows import Extra, Row, Table
from oomcast_collectors.engine.kinds.samples import MAX_RANKS, Samples, Where
from oomcast_collectors.engine.reading import Reading

_MEMORY = "sglang:kv_cache_memory_usage_gb"
_RANK = "dp_rank"
_STAGE = "pp_rank"
_GIB = 1 << 30
# With priorities there are series of each beside the total, which has none.
_ALL = Where("priority", "")
# What came with the counters that are made at the first event.
_SINCE = "sglang:kv_used_tokens"

_ROWS = (
    Row("usage", ("sglang:full_token_usage", "sglang:token_usage")),
    Row("capacity", ("sglang:max_total_num_tokens",)),
    Row("available", ("sglang:kv_available_tokens",), plus=("sglang:kv_evictable_tokens",)),
    Row("block", ("sglang:page_size",)),
    Row("queries", ("sglang:prefill_effective_tokens_total",)),
    Row("hits", ("sglang:prefill_effective_tokens_total",), where=Where("mode", ".*_hit")),
    Row("preemptions", ("sglang:num_retracted_requests_total",), late=_SINCE),
    Row("evicted", ("sglang:evicted_tokens_total",), late=_SINCE),
    Row("running", ("sglang:num_running_reqs",), where=_ALL),
    Row("waiting", ("sglang:num_queue_reqs",), where=_ALL),
    Row("finished", ("sglang:num_requests_total",)),
    Row("http", ("sglang:http_responses_total",), by="status_code", where=Where("endpoint", "(?!/metrics$).*")),
    Row("prompt_tokens", ("sglang:prompt_tokens_total",)),
    Row("generation_tokens", ("sglang:generation_tokens_total",)),
    Row("max_model_len", ("sglang:context_len",)),
)


def _finish(samples: Samples, reading: Reading) -> Reading:
    """Bytes: each pipeline stage holds its layers' part of every token."""
    ranks = samples.values(_MEMORY, _RANK, add=False, most=MAX_RANKS)
    stages = samples.values(_MEMORY, _STAGE, add=False, most=MAX_RANKS)
    if not ranks or not stages:
        return reading
    one_rank = sum(stages.values()) * _GIB
    slots = [pool.capacity + (pool.block or 1) for pool in reading.pools if pool.capacity]
    return replace(
        reading,
        capacity_bytes=round(one_rank * len(ranks)),
        bytes_per_token=one_rank * len(ranks) / sum(slots) if len(slots) == len(ranks) else None,
    )


def _model(answer: object, reading: Reading) -> Reading:
    return replace(reading, model=reading.model or answers.text(answers.field(answer, "model_path")))


TABLE = Table(
    "sglang",
    _ROWS,
    rank=_RANK,
    same=frozenset({"pid", "tp_rank", _STAGE, "moe_ep_rank"}),
    lengths="sglang:prompt_tokens_histogram",
    answers="sglang:generation_tokens_histogram",
    latencies={"ttft": ("sglang:time_to_first_token_seconds",), "e2e": ("sglang:e2e_request_latency_seconds",)},
    paired="e2e",
    finish=_finish,
    more=frozenset({_MEMORY}),
    extras=(
        Extra("/v1/models", answers.models),
        Extra("/get_model_info", _model),
        Extra("/get_server_info", answers.version),
    ),
)
