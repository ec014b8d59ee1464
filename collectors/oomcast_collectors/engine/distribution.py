"""What the prompts of the window are distributed like: the log-normal that fits them best, and whether it does."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from oomcast.slo import Slo
from oomcast_collectors.engine.lengths import ABOVE, Recent
from oomcast_collectors.engine.lognormal import Bin, Fit, fit
from oomcast_collectors.slo.classes import Classes
from oomcast_collectors.slo.score import MeanScore

PERIOD = 15.0
"""Seconds between two fits: of an hour's prompts a quarter of a minute's change little."""


class Distribution:
    """fit: None where the prompts allow none. shares: of the length classes, together 1, or all 0 without a prompt;
    score: the mean risk score, None without a prompt. As of the last fit."""

    def __init__(self, slo: Slo) -> None:
        self.fit: Fit | None = None
        self._classes = Classes(slo)
        self._mean_score = MeanScore(slo.risk_score)
        self._due = float("-inf")
        self._take(())

    def look(self, recent: Recent | None, at: float) -> None:
        """recent: the prompts of the window, None without any. at: monotonic seconds."""
        if recent is None:
            self.fit = None
            self._take(())
        elif at >= self._due:
            bins = tuple(one for part in recent.parts for one in _bins(part.buckets))
            if bins != self._bins:
                self.fit = fit(bins, recent.longest, self.fit)
                self._take(bins, recent.longest)
            self._due = at + PERIOD

    def above(self) -> Mapping[int, float]:
        """The fitted shares above each length of ABOVE; empty where the log-normal does not hold."""
        fitted = self.fit
        return {tokens: fitted.share_above(tokens) for tokens in ABOVE} if fitted is not None and fitted.holds else {}

    def _take(self, bins: tuple[Bin, ...], longest: float = float("inf")) -> None:
        self._bins = bins
        self.shares = self._of_classes(bins, longest)
        self.score = self._mean_score.of(bins, longest)

    def _of_classes(self, bins: tuple[Bin, ...], longest: float) -> Sequence[float]:
        """By the log-normal where it holds; where not by the bins, each spread evenly in the logarithm."""
        fitted = self.fit
        if fitted is not None and fitted.holds:
            return [fitted.share_between(low, high) for low, high in pairwise((0.0, *self._classes.ends))]
        counts = [0.0] * len(self._classes)
        for low, high, count in bins:
            for place, part in self._classes.parts(low, high, longest):
                counts[place] += count * part
        total = sum(counts)
        return [count / total for count in counts] if total > 0 else counts


def _bins(buckets: tuple[tuple[float, float], ...]) -> list[Bin]:
    edges = [(0.0, 0.0), *buckets]
    return [Bin(low, high, count - below) for (low, below), (high, count) in pairwise(edges) if high > low]
