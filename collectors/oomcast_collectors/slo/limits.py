"""Objectives in the buckets of a histogram, where only what is certainly above one is a violation."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from oomcast_collectors.slo.classes import Bin


def in_force(limits: Sequence[float | None], edges: Sequence[float]) -> list[float | None]:
    """For each limit the edge at or above it. None without a limit, and where no finite edge is that high, as nothing
    would ever be certainly above. edges: rising, in seconds."""
    return [None if limit is None else _edge(limit, edges) for limit in limits]


def above(bins: Iterable[Bin], edge: float) -> float:
    """How many are above one of the edges."""
    return sum(count for low, _, count in bins if low >= edge)


def observed(limits: Sequence[float | None], edges: Sequence[float], bins: Sequence[Bin]) -> tuple[float, float] | None:
    """Requests, and how many of them violate whatever class they are of: those above the largest limit.

    None unless each class has a limit that is in force: else some of them could be of a class without one.
    """
    forced = [limit for limit in in_force(limits, edges) if limit is not None]
    if len(forced) < len(limits):
        return None
    return sum(count for _, _, count in bins), above(bins, max(forced))


def _edge(limit: float, edges: Sequence[float]) -> float | None:
    place = bisect_left(edges, limit)
    return edges[place] if place < len(edges) and edges[place] < math.inf else None
