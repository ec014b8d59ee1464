"""Which class of prompts the violations of a look were of, for engines that tell lengths and latencies apart.

Both are counted when a request ends, so what their histograms gain from one look to the next is of the same requests.
A look with one class is certain. With several, the violations are given to each in proportion to what is expected of
it, given how many they are: fractions of requests, right on average once the shares that they are expected by have been
learned. Of a bucket of lengths with several classes in it the requests are taken to be spread evenly in the logarithm.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from oomcast.slo import Objective, Slo
from oomcast_collectors.slo.classes import Bin, Classes, Parts
from oomcast_collectors.slo.expected import picked
from oomcast_collectors.slo.limits import in_force
from oomcast_collectors.slo.regression import Regression

_K = TypeVar("_K")

PATIENCE = 3
"""Looks after which a latency without a length, or the reverse, is given up: a page is not written in one moment."""


class Attributed(NamedTuple):
    """By class, in fractions of requests; 0 for one without a limit in force. Violations are at most the requests."""

    requests: list[float]
    violations: list[float]


class Attribution:
    """Of one objective of one engine. limits: by class the bucket edge above which a request violates, None without.

    Each limit is a question of its own: which of the requests above it are of which class. For none of them is anything
    needed but the counts above and up to it.
    """

    def __init__(self, slo: Slo, objective: Objective) -> None:
        self._classes = Classes(slo)
        self._wanted = self._classes.limits(objective)
        self.limits: list[float | None] = [None] * len(self._classes)
        self._edges: Sequence[float] = ()
        self._regressions: dict[float, Regression] = {}
        self._waiting = _Waiting()

    def look(
        self, lengths: Sequence[Bin], latencies: Sequence[Bin], edges: Sequence[float], longest: float
    ) -> Attributed | None:
        """What both histograms gained since the last look; None where nothing can be attributed now.

        edges: the bounds of the histogram of latencies. longest: tokens that no prompt exceeds, infinite if not known.
        """
        if edges != self._edges:
            self._edges = edges
            self.limits = in_force(self._wanted, edges)
            forced = {limit for limit in self.limits if limit is not None}
            self._regressions = {
                limit: self._regressions.get(limit) or Regression(self._classes.priors) for limit in forced
            }
        if not self._regressions:
            return None
        for low, high, count in lengths:
            self._waiting.length(self._classes.parts(low, high, longest), count)
        for low, _, count in latencies:
            self._waiting.latency(low, count)
        matched = self._waiting.matched()
        return None if matched is None else self._attributed(matched)

    def _attributed(self, matched: "_Matched") -> Attributed:
        size = len(self._classes)
        found = Attributed([0.0] * size, [0.0] * size)
        split = [0.0] * size
        for parts, count in matched.lengths.items():
            for place, share in parts:
                split[place] += count * share
        for limit, regression in self._regressions.items():
            above = sum(count for low, count in matched.latencies.items() if low >= limit)
            cells = _cells(matched.lengths, regression.shares(), above)
            for place, requests, violations in cells:
                if self.limits[place] == limit:
                    found.requests[place] += requests
                    found.violations[place] += violations
            regression.learn(split, above)
        return found


def _cells(lengths: dict[Parts, float], shares: Sequence[float], above: float) -> list[tuple[int, float, float]]:
    """(class, requests, violations), of each bucket by its parts."""
    chances = [sum(part * shares[place] for place, part in parts) for parts in lengths]
    found = picked(list(lengths.values()), chances, above)
    cells = []
    for (parts, count), chance, violations in zip(lengths.items(), chances, found, strict=True):
        for place, part in parts:
            missed = violations * (part * shares[place] / chance)
            met = (count - violations) * (part * (1 - shares[place]) / (1 - chance))
            cells.append((place, missed + met, missed))
    return cells


class _Matched(NamedTuple):
    """Requests by the classes that their bucket of lengths has, and by the lower end of that of their latency."""

    lengths: dict[Parts, float]
    latencies: dict[float, float]


class _Waiting:
    """Lengths and latencies until as many of the ones have come as of the others."""

    def __init__(self) -> None:
        self._lengths: dict[Parts, float] = {}
        self._latencies: dict[float, float] = {}
        self._looks = 0

    def length(self, parts: Parts, count: float) -> None:
        self._lengths[parts] = self._lengths.get(parts, 0.0) + count

    def latency(self, low: float, count: float) -> None:
        self._latencies[low] = self._latencies.get(low, 0.0) + count

    def matched(self) -> _Matched | None:
        """All of both where they are as many. Where they are not for PATIENCE looks, as many of both as there can be,
        each bucket with its share, and the rest is given up."""
        lengths, latencies = sum(self._lengths.values()), sum(self._latencies.values())
        self._looks += 1
        if lengths != latencies and self._looks < PATIENCE:
            return None
        matched = _Matched(self._lengths, self._latencies)
        self._lengths, self._latencies, self._looks = {}, {}, 0
        both = min(lengths, latencies)
        if both <= 0:
            return None
        return _Matched(_scaled(matched.lengths, both / lengths), _scaled(matched.latencies, both / latencies))


def _scaled(counts: dict[_K, float], factor: float) -> dict[_K, float]:
    return {key: count * factor for key, count in counts.items()}
