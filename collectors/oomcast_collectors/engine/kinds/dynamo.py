"""NVIDIA Dynamo: the frontend, and what a worker adds to the metrics of its engine, which it passes on.

The frontend's blocks are those of one worker, so they are no capacity; the size of a worker's blocks is not told, so
the share is all that is known of its pool. A percentage is a share from 0 to 1. Series come with the first request. The
length of a prompt is counted with its first token.
"""

from oomcast_collectors.engine.kinds import answers
from oomcast_collectors.engine.kinds.rows import Extra, Row, Table

_LENGTHS, _ANSWERS = "dynamo_frontend_input_sequence_tokens", "dynamo_frontend_output_sequence_tokens"

_ROWS = (
    Row("usage", ("dynamo_component_kvstats_gpu_cache_usage_percent",)),
    Row("used", ("dynamo_component_kvstats_active_blocks",)),
    Row("capacity", ("dynamo_component_kvstats_total_blocks",)),
    Row("running", ("dynamo_frontend_inflight_requests", "dynamo_component_inflight_requests")),
    Row("waiting", ("dynamo_frontend_queued_requests",)),
    Row("finished", ("dynamo_frontend_requests_total",), by="status"),
    Row("rejected", ("dynamo_frontend_model_rejection_total",), label="overload"),
    Row("retries", ("dynamo_frontend_model_migration_total",)),
    Row("prompt_tokens", (f"{_LENGTHS}_sum",)),
    Row("generation_tokens", ("dynamo_frontend_output_tokens_total",)),
    Row("max_model_len", ("dynamo_frontend_model_context_length",)),
)

TABLE = Table(
    "dynamo",
    _ROWS,
    rank="dp_rank",
    model="model",
    lengths=_LENGTHS,
    answers=_ANSWERS,
    latencies={
        "ttft": ("dynamo_frontend_time_to_first_token_seconds",),
        "e2e": ("dynamo_frontend_request_duration_seconds",),
    },
    paired="ttft",
    blocks=True,
    extras=(Extra("/v1/models", answers.models),),
)
