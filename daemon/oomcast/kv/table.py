"""What `oomcast kv` prints, for people and for programs."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from oomcast.kv.layers import Recurrent
from oomcast.kv.memory import Memory

CONTEXTS = (("32K", 32 << 10), ("64K", 64 << 10), ("128K", 128 << 10), ("200K", 200_000), ("1M", 1 << 20))
"""K is 1024 and M 1024 K, but 200K is the 200,000 that people mean by it."""


def as_json(memory: Memory, pool: int | None, sequences: Sequence[int]) -> str:
    """An object; sizes are bytes. Fields that need a pool are absent without one."""
    limit = memory.model.limit
    found: dict[str, Any] = {
        "model_type": memory.model.name,
        "layers": _layers(memory),
        "dtype": memory.dtype,
        "tensor_parallel": memory.serving.tp,
        "pipeline_parallel": memory.serving.pp,
        "block_tokens": memory.serving.block_tokens,
        "engine": memory.serving.engine,
        "config_limit": None if limit is None else {"field": limit.field, "tokens": limit.tokens},
        "rope_scaling": limit.scaling if limit else "",
        "bytes_per_token": memory.bytes_per_token,
        "bytes_per_token_all": memory.bytes_per_token_all,
        "bytes_per_token_once": memory.bytes_per_token_once,
        "bytes_per_sequence": memory.constant_bytes,
        "contexts": [_context(memory, pool, name, tokens) for name, tokens in CONTEXTS],
        "notes": list(memory.notes),
    }
    if pool is not None:
        found["pool_bytes"] = pool
        found["longest"] = [{"sequences": n, "tokens": memory.longest(pool, n)} for n in sequences]
    return json.dumps(found, indent=2) + "\n"


def as_text(memory: Memory, pool: int | None, sequences: Sequence[int]) -> str:
    """Lines and two tables."""
    serving, limit = memory.serving, memory.model.limit
    kinds = ", ".join(f"{row['layers']} {row['kind']}{_span(row)}" for row in _layers(memory))
    scaling = f", RoPE scaling {limit.scaling}" if limit and limit.scaling else ""
    block = f"{serving.block_tokens} token" + ("s" if serving.block_tokens > 1 else "")
    lines = [
        f"model         {memory.model.name}: {kinds}",
        f"cache         {memory.dtype}, blocks of {block}",
        f"GPUs          {serving.tp * serving.pp}: tensor parallel {serving.tp}, pipeline parallel {serving.pp}",
        f"config limit  {f'{limit.tokens:,} tokens ({limit.field}{scaling})' if limit else 'none'}",
        f"per token     {size(memory.bytes_per_token)} on each GPU, {size(memory.bytes_per_token_all)} on all,"
        f" {size(memory.bytes_per_token_once)} without copies",
        f"per sequence  {size(memory.constant_bytes)} on each GPU, beside what grows",
        "",
        *_contexts(memory, pool),
    ]
    if pool is not None:
        lines += ["", f"{'SEQUENCES':>9} {'LONGEST CONTEXT THAT FITS IN ' + size(pool) + ' ON EACH GPU'}"]
        lines += [f"{n:>9,} {_tokens(memory.longest(pool, n))}" for n in sequences]
    if memory.notes:
        lines += ["", *(f"note: {note}" for note in memory.notes)]
    return "\n".join(lines) + "\n"


def size(count: int) -> str:
    """Bytes, and the same in the binary unit that reads best."""
    shown = f"{count:,} B"
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << power:
            return f"{shown} ({count / (1 << power):,.2f} {unit})"
    return shown


def _contexts(memory: Memory, pool: int | None) -> list[str]:
    fits = "" if pool is None else f" {'FIT AT ONCE':>12}"
    lines = [
        f"{'CONTEXT':>7} {'TOKENS':>9} {'BYTES, EACH GPU':>20} {'GIB':>9} {'BYTES, ALL GPUS':>20} {'GIB':>9}{fits}"
    ]
    for name, tokens in CONTEXTS:
        each, everywhere = memory.sequence_bytes(tokens), memory.sequence_bytes_all(tokens)
        line = f"{name:>7} {tokens:>9,} {each:>20,} {_gib(each)} {everywhere:>20,} {_gib(everywhere)}"
        if pool is not None:
            at_once = memory.concurrent(pool, tokens)
            line += f" {'any number' if at_once is None else f'{at_once:,}':>12}"
        lines.append(line)
    return lines


def _context(memory: Memory, pool: int | None, name: str, tokens: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "context": name,
        "tokens": tokens,
        "bytes": memory.sequence_bytes(tokens),
        "bytes_all": memory.sequence_bytes_all(tokens),
    }
    return found if pool is None else found | {"fit_at_once": memory.concurrent(pool, tokens)}


def _layers(memory: Memory) -> list[dict[str, Any]]:
    """How many layers there are of each kind, those with two kinds of memory in both."""
    kinds = Counter(
        (part.kind, None if isinstance(part, Recurrent) else getattr(part, "span", None))
        for layer in memory.model.layers
        for part in layer
    )
    found = [{"kind": kind, "layers": count, "window": span} for (kind, span), count in kinds.items()]
    empty = sum(not layer for layer in memory.model.layers)
    return [*found, {"kind": "without a cache", "layers": empty, "window": None}] if empty else found


def _span(row: dict[str, Any]) -> str:
    return f" of {row['window']:,} tokens" if row["window"] else ""


def _tokens(tokens: int | None) -> str:
    return "any" if tokens is None else f"{tokens:,} tokens"


def _gib(count: int) -> str:
    return f"{count / (1 << 30):>9,.2f}"
