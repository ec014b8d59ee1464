"""LMDeploy, with --enable-metrics. The requests that succeeded and failed are gauges, though they only rise."""

from oomcast_collectors.engine.kinds import answers
from oomcast_collectors.engine.kinds.rows import Extra, Row, Table

_ROWS = (
    Row("usage", ("lmdeploy:gpu_cache_usage_perc",)),
    Row("queries", ("lmdeploy:prompt_tokens_total",)),
    Row("hits", ("lmdeploy:cached_tokens_total",)),
    Row("running", ("lmdeploy:num_requests_running",)),
    Row("waiting", ("lmdeploy:num_requests_waiting",)),
    Row("finished", ("lmdeploy:request_success_total",), by="finished_reason"),
    Row("finished", ("lmdeploy:num_requests_succeeded",), label="success"),
    Row("finished", ("lmdeploy:num_requests_failed",), label="failed", also=True),
    Row("prompt_tokens", ("lmdeploy:prompt_tokens_total",)),
    Row("generation_tokens", ("lmdeploy:generation_tokens_total",)),
    Row("started", ("process_start_time_seconds",)),
)

TABLE = Table(
    "lmdeploy",
    _ROWS,
    rank="engine",
    lengths="lmdeploy:request_prompt_tokens",
    answers="lmdeploy:request_generation_tokens",
    latencies={"ttft": ("lmdeploy:time_to_first_token_seconds",), "e2e": ("lmdeploy:e2e_request_latency_seconds",)},
    paired="e2e",
    extras=(Extra("/v1/models", answers.models),),
)
