"""The mean risk score of the prompts in a histogram."""

import math
from collections.abc import Iterable
from itertools import pairwise

from oomcast.slo import RiskScore
from oomcast_collectors.slo.classes import Bin

_POINTS = 64
"""Per bucket and piece of the score: the mean of the shipped score is then right to three digits."""

_MAX_KNOWN = 1024


class MeanScore:
    """Cheap from the second time on that a bucket is asked for."""

    def __init__(self, score: RiskScore) -> None:
        self._score = score
        self._known: dict[tuple[float, float], float] = {}

    def of(self, bins: Iterable[Bin], longest: float = math.inf) -> float | None:
        """0 to 1; None without a prompt. longest: tokens that no prompt exceeds."""
        total = count = 0.0
        for low, high, prompts in bins:
            count += prompts
            total += prompts * self._bucket(low, min(high, longest))
        return total / count if count > 0 else None

    def _bucket(self, low: float, high: float) -> float:
        known = self._known.get((low, high))
        if known is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            known = self._known[low, high] = self._mean(max(low, 1.0), high)
        return known

    def _mean(self, low: float, high: float) -> float:
        """Of lengths from low to high tokens, spread evenly in their logarithm.

        Of those that have no end it is what they have at least: the score where they begin.
        """
        if high <= low or math.isinf(high):
            return self._score.score(low)
        jumps = [tokens for tokens in (self._score.calm, self._score.knee) if low < tokens < high]
        total = sum(self._smooth(begin, end) * math.log(end / begin) for begin, end in pairwise((low, *jumps, high)))
        return total / math.log(high / low)

    def _smooth(self, low: float, high: float) -> float:
        """The same where the score does not jump in between."""
        step = math.log(high / low) / _POINTS
        return sum(self._score.score(low * math.exp(step * (n + 0.5))) for n in range(_POINTS)) / _POINTS
