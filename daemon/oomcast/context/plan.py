"""The room that a model's config.json and a GPU's memory make, before any engine runs."""

from pathlib import Path

from oomcast.context.fit import Limit
from oomcast.context.room import Room, known_limits
from oomcast.kv.config import read
from oomcast.kv.fields import KvError, load
from oomcast.kv.memory import memory
from oomcast.kv.serving import Serving
from oomcast.kv.table import size


def planned(path: Path, serving: Serving, pool: int | None, max_model_len: int | None) -> Room:
    """pool: bytes on each GPU. max_model_len: in place of what the config names. Raises KvError."""
    if pool is None:
        raise KvError("--pool, or --gpu-memory and --weights: needed, to tell what fits")
    found = memory(read(load(path)), serving)
    limit, notes = found.model.limit, [*found.notes]
    if max_model_len is None and limit is not None:
        max_model_len = limit.tokens
        notes.append(f"max_model_len: {limit.field} of the config; an engine may be told another (--max-model-len)")
    limits, unknown = known_limits(max_model_len)
    return Room(
        "config",
        str(path),
        f"{found.model.name}, cache of {found.dtype}, {size(pool)} for it on {_ranks(serving.tp)}",
        (*limits, Limit("kv_pool_empty", found.longest(pool))),
        unknown,
        found.bytes_per_token,
        serving.block_tokens,
        found.sequence_bytes,
        tuple(notes),
    )


def _ranks(tp: int) -> str:
    return "one GPU" if tp == 1 else f"each of {tp} GPUs"
