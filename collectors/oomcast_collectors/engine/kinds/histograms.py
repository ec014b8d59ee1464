"""Histograms of token counts and latencies."""

from collections.abc import Iterable

from oomcast_collectors.engine.kinds.samples import Samples
from oomcast_collectors.engine.reading import Lengths

_INFINITE = float("inf")
_MAX_BUCKETS = 512


def lengths(samples: Samples, name: str) -> Lengths | None:
    """The histogram of all series together, in the buckets that all of them have; None unless it is whole."""
    buckets = _buckets(samples, name)
    total = samples.values(f"{name}_sum").get("")
    if not buckets or total is None:
        return None
    return Lengths(buckets, total, buckets[-1][1])


def short(samples: Samples, name: str) -> dict[str, float]:
    """The count of the smallest bucket by its bound, as the digits of it."""
    buckets = _buckets(samples, name)
    if len(buckets) < 2:
        return {}
    bound, count = buckets[0]
    return {f"{bound:.15g}": count}


def _buckets(samples: Samples, name: str) -> tuple[tuple[float, float], ...]:
    """(upper bound, cumulative count) from the smallest on; nothing unless the counts rise up to an infinite bound."""
    series = samples.split(f"{name}_bucket", "le")
    bounds: set[float] | None = None
    for one in series:
        bounds = set(one) if bounds is None else bounds & set(one)
    if not bounds or len(bounds) > _MAX_BUCKETS or _INFINITE not in bounds:
        return ()
    buckets = tuple((bound, sum(one[bound] for one in series)) for bound in sorted(bounds))
    return buckets if _rise(count for _, count in buckets) else ()


def _rise(counts: Iterable[float]) -> bool:
    last = 0.0
    for count in counts:
        if count < last:
            return False
        last = count
    return True
