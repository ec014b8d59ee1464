"""The pools of KV memory, one for each data-parallel rank, of what a page says about them."""

from collections.abc import Mapping
from typing import Literal

from oomcast_collectors.engine.reading import Pool

PoolField = Literal["usage", "used", "capacity", "available", "block"]
Ranks = Mapping[str, float]
"""Values by rank."""

_ROUNDING = 1e-6
_MOST_USAGE = 1.01


def pools(fields: Mapping[PoolField, Ranks], blocks: bool) -> tuple[Pool, ...]:
    """blocks: used, capacity and available are in blocks, whose size in tokens is `block`."""
    ranks = sorted({rank for values in fields.values() for rank in values}, key=by_number)
    made = [
        _pool(rank, {field: values[rank] for field, values in fields.items() if rank in values}, blocks)
        for rank in ranks
    ]
    return alone(made)


def alone(made: list[Pool]) -> tuple[Pool, ...]:
    """The pools; the only one has no rank."""
    return (made[0]._replace(rank=""),) if len(made) == 1 else tuple(made)


def by_number(rank: str) -> tuple[int, str]:
    """To sort ranks: "2" before "10"."""
    return len(rank), rank


def left(capacity: float, usage: float) -> int:
    """Whole tokens that are left."""
    return int(capacity * (1 - usage) + _ROUNDING)


def share(usage: float | None) -> float | None:
    """The usage, None if it is no share: a little above 1 is rounding, more may be a percentage, or anything."""
    return min(1.0, usage) if usage is not None and usage <= _MOST_USAGE else None


def _pool(rank: str, values: Mapping[PoolField, float], blocks: bool) -> Pool:
    block = int(values.get("block", 0)) or None
    unit = block if blocks else 1
    capacity = values.get("capacity") or None
    available = values.get("available")
    usage = share(values.get("usage"))
    if usage is None and capacity is not None and "used" in values:
        usage = min(1.0, values["used"] / capacity)
    if available is None and capacity is not None and usage is not None:
        available = left(capacity, usage)
    return Pool(
        rank,
        usage,
        int(capacity * unit) if capacity is not None and unit is not None else None,
        int(available * unit) if available is not None and unit is not None else None,
        exact=not blocks,
        block=block,
    )
