"""TensorRT-LLM as trtllm-serve serves it; within Dynamo a release had a colon in its names.

Everything about the cache is in blocks, so the capacity is approximate.
"""

from oomcast_collectors.engine.kinds import answers
from oomcast_collectors.engine.kinds.rows import Extra, Row, Table


def _named(name: str) -> tuple[str, str]:
    return f"trtllm_{name}", f"trtllm:{name}"


_ROWS = (
    Row("usage", _named("kv_cache_utilization")),
    Row("used", _named("kv_cache_used_blocks")),
    Row("capacity", _named("kv_cache_max_blocks")),
    Row("available", _named("kv_cache_free_blocks")),
    Row("block", _named("kv_cache_tokens_per_block")),
    Row("queries", ("trtllm_kv_cache_reused_blocks_total",), plus=("trtllm_kv_cache_missed_blocks_total",)),
    Row("queries", ("trtllm:kv_cache_reused_blocks_total",), plus=("trtllm:kv_cache_missed_blocks_total",)),
    Row("hits", _named("kv_cache_reused_blocks_total")),
    Row("running", _named("num_requests_running")),
    Row("waiting", _named("num_requests_waiting")),
    Row("finished", _named("request_success_total"), by="finished_reason"),
    Row("http", _named("request_error_total"), by="http_code"),
    Row("prompt_tokens", _named("prompt_tokens_total")),
    Row("generation_tokens", _named("generation_tokens_total")),
)

TABLE = Table(
    "trtllm",
    _ROWS,
    latencies={"ttft": _named("time_to_first_token_seconds"), "e2e": _named("e2e_request_latency_seconds")},
    blocks=True,
    extras=(Extra("/v1/models", answers.models), Extra("/version", answers.version)),
)
