"""Triton with the TensorRT-LLM backend. Each model has a pool of its own, whose used and free blocks need not add up to
all of them.

An ensemble counts a request in each of its models, so only models with a pool are looked at, where there are any.
"""

from oomcast_collectors.engine.kinds.rows import Row, Table
from oomcast_collectors.engine.kinds.samples import Where

_BLOCKS = ("nv_trt_llm_kv_cache_block_metrics",)
_REQUESTS = ("nv_trt_llm_request_metrics",)
_MODEL = "model"


def _blocks(kind: str) -> Where:
    return Where("kv_cache_block_type", kind)


_ROWS = (
    Row("used", _BLOCKS, where=_blocks("used")),
    Row("capacity", _BLOCKS, where=_blocks("max")),
    Row("available", _BLOCKS, where=_blocks("free")),
    Row("block", _BLOCKS, where=_blocks("tokens_per")),
    Row("running", _REQUESTS, where=Where("request_type", "scheduled")),
    Row("waiting", _REQUESTS, where=Where("request_type", "waiting")),
    Row("waiting", ("nv_inference_pending_request_count",)),
    Row("finished", ("nv_inference_request_success",), label="success"),
    Row(
        "finished", ("nv_inference_request_failure",), by="reason", where=Where("reason", "(?!REJECTED$).+"), also=True
    ),
    Row("rejected", ("nv_inference_request_failure",), by="reason", where=Where("reason", "REJECTED")),
)

TABLE = Table("triton", _ROWS, rank=_MODEL, model=_MODEL, blocks=True, only=(_BLOCKS[0], _MODEL))
