"""llama.cpp's server, with --metrics: no labels, no histograms, nothing about HTTP or ended requests.

Its gauges of throughput are averages that each scrape resets, so they are not read. The page says nothing of KV memory:
/props tells the slots, /slots what is in them. Each slot is a pool, since a request cannot leave its slot; with
--kv-unified they share one, which neither page tells, so the capacity is approximate. What an idle slot holds is only
cached.
"""

from dataclasses import replace

from oomcast_collectors.engine.kinds.answers import amount, field, text
from oomcast_collectors.engine.kinds.pools import alone
from oomcast_collectors.engine.kinds.rows import Extra, Row, Table
from oomcast_collectors.engine.reading import Pool, Reading

_MAX_SLOTS = 1024
_COMPUTED, _CACHED = "llamacpp:prompt_tokens_total", "llamacpp:prompt_tokens_cached_total"

_ROWS = (
    Row("queries", (_COMPUTED,), plus=(_CACHED,)),
    Row("hits", (_CACHED,)),
    Row("prompt_tokens", (_COMPUTED,)),
    Row("generation_tokens", ("llamacpp:tokens_predicted_total",)),
    Row("running", ("llamacpp:requests_processing",)),
    Row("waiting", ("llamacpp:requests_deferred",)),
)


def _props(answer: object, reading: Reading) -> Reading:
    size = amount(field(answer, "default_generation_settings", "n_ctx"))
    slots = amount(field(answer, "total_slots"), _MAX_SLOTS)
    return replace(
        reading,
        model=reading.model or text(field(answer, "model_alias")) or text(field(answer, "model_path")),
        version=reading.version or text(field(answer, "build_info")),
        max_model_len=size or reading.max_model_len,
        pools=alone([_slot(str(slot), size, None) for slot in range(slots)]) if size and slots else reading.pools,
    )


def _slots(answer: object, reading: Reading) -> Reading:
    slots = [slot for slot in answer if isinstance(slot, dict)] if isinstance(answer, list) else []
    if not 0 < len(slots) <= _MAX_SLOTS:
        return reading
    sizes = [amount(slot.get("n_ctx")) for slot in slots]
    pools = [_slot(str(at), sizes[at], _used(slot)) for at, slot in enumerate(slots)]
    return replace(
        reading,
        pools=alone(pools),
        max_model_len=max((size for size in sizes if size), default=reading.max_model_len),
    )


def _used(slot: dict[object, object]) -> int | None:
    """Tokens of the request in it, prompt and answer so far; None where that is not told."""
    working, tokens = slot.get("is_processing"), slot.get("n_prompt_tokens")
    if working is False or (working is True and tokens == 0):
        return 0
    return amount(tokens) if working is True else None


def _slot(rank: str, size: int | None, used: int | None) -> Pool:
    if size is None or used is None:
        return Pool(rank, capacity=size, exact=False)
    used = min(used, size)
    return Pool(rank, used / size, size, size - used, exact=False)


TABLE = Table("llamacpp", _ROWS, model="", extras=(Extra("/props", _props), Extra("/slots", _slots, live=True)))
