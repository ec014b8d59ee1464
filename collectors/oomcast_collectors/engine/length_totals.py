"""A histogram of prompt lengths over all lives of an engine, which may have other buckets in its next life."""

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate, pairwise

from oomcast_collectors.engine.reading import Lengths

Bounds = tuple[float, ...]

_MAX_BOUNDS = 200
_MAX_PARTS = 8
"""Sets of bounds: an engine gets another one when it is started with another longest request."""

_COARSE: Bounds = (float("inf"),)


class LengthTotals:
    """Totals by the bounds under which they were counted; none of them ever falls.

    A total is what the lives before counted, plus the highest count of the present one.
    """

    def __init__(self) -> None:
        self._parts: dict[Bounds, _Part] = {}
        self._bounds: Bounds = ()

    def fits(self, lengths: Lengths) -> bool:
        """Whether it can be a later histogram of the same life as the last one."""
        part = self._parts.get(self._key(lengths))
        return part is not None and self.same_buckets(lengths) and lengths.buckets[-1][1] >= part.life[-1]

    def same_buckets(self, lengths: Lengths) -> bool:
        """Whether its buckets are those of the last histogram that was taken."""
        return _bounds(lengths) == self._bounds

    def add(self, lengths: Lengths) -> None:
        """Takes the histogram as the present life's."""
        self._bounds = _bounds(lengths)
        key = self._key(lengths)
        counts = _counts(lengths, key)
        part = self._parts.get(key)
        if part is None:
            part = self._parts[key] = _Part(len(counts))
        # One page may be read while a prompt is being counted: a single bucket can lag behind the others.
        part.life = [max(pair) for pair in zip(part.life, counts, strict=True)]
        part.life_sum = max(part.life_sum, lengths.sum)

    def end_life(self) -> None:
        """The engine counts from 0 again."""
        for part in self._parts.values():
            part.end_life()

    def rebase(self, lengths: Lengths) -> None:
        """Goes on from this histogram, which is behind the last one, without counting what it holds."""
        self.end_life()
        self.add(lengths)
        part = self._parts[self._key(lengths)]
        part.past = [past - life for past, life in zip(part.past, part.life, strict=True)]
        part.past_sum -= part.life_sum

    def parts(self) -> Mapping[Bounds, Lengths]:
        """The totals by the bounds under which they were counted."""
        return {bounds: part.total(bounds) for bounds, part in self._parts.items()}

    def total(self) -> Lengths | None:
        """All of it, in the buckets of the present life; None before the first look.

        What an earlier life counted under other bounds is told in the lowest bucket that it fits for certain, so a
        bucket holds at most as many prompts as truly were that short.
        """
        if not self._bounds:
            return None
        parts = self.parts()
        buckets = tuple((bound, sum(_at_most(part, bound) for part in parts.values())) for bound in self._bounds)
        return Lengths(buckets, sum(part.sum for part in parts.values()), buckets[-1][1])

    def _key(self, lengths: Lengths) -> Bounds:
        bounds = _bounds(lengths)
        return bounds if bounds in self._parts or len(self._parts) < _MAX_PARTS else _COARSE


class _Part:
    __slots__ = ("life", "life_sum", "past", "past_sum")

    def __init__(self, size: int) -> None:
        self.past = [0.0] * size
        self.life = [0.0] * size
        self.past_sum = 0.0
        self.life_sum = 0.0

    def end_life(self) -> None:
        self.past = [past + life for past, life in zip(self.past, self.life, strict=True)]
        self.past_sum += self.life_sum
        self.life = [0.0] * len(self.life)
        self.life_sum = 0.0

    def total(self, bounds: Bounds) -> Lengths:
        counts = [past + life for past, life in zip(self.past, self.life, strict=True)]
        return Lengths(tuple(zip(bounds, counts, strict=True)), self.past_sum + self.life_sum, counts[-1])


def gained(now: Lengths, before: Lengths | None) -> Lengths:
    """What a total has more than an earlier one under the same bounds; None: than nothing.

    A total has of each bucket the highest count, of whatever page. So one that lagged behind its neighbours may have
    gained less than those below it, or after a restart that was not seen more than the whole did: neither is told.
    """
    if before is None:
        before = Lengths(tuple((bound, 0.0) for bound, _ in now.buckets), 0.0, 0.0)
    whole = now.count - before.count
    differences = (count - earlier for (_, count), (_, earlier) in zip(now.buckets, before.buckets, strict=True))
    rising = accumulate(differences, max)
    buckets = tuple((bound, min(count, whole)) for (bound, _), count in zip(now.buckets, rising, strict=True))
    return Lengths(buckets, now.sum - before.sum, whole)


def sound(lengths: Lengths) -> bool:
    """Whether the histogram can be one: its bounds rise to infinity, its counts rise, and all are numbers."""
    if not 0 < len(lengths.buckets) <= _MAX_BOUNDS or not 0 <= lengths.sum < float("inf"):
        return False
    bounds = _bounds(lengths)
    counts = [0.0, *(count for _, count in lengths.buckets)]
    return (
        bounds[-1] == float("inf")
        and all(low < high for low, high in pairwise(bounds))
        and all(low <= high < float("inf") for low, high in pairwise(counts))
    )


def _bounds(lengths: Lengths) -> Bounds:
    return tuple(bound for bound, _ in lengths.buckets)


def _counts(lengths: Lengths, key: Bounds) -> list[float]:
    counts = [count for _, count in lengths.buckets]
    return counts if key == _bounds(lengths) else counts[-1:]


def _at_most(lengths: Lengths, bound: float) -> float:
    """How many are certainly not above `bound`."""
    place = bisect_right(lengths.buckets, (bound, float("inf")))
    return lengths.buckets[place - 1][1] if place else 0.0
