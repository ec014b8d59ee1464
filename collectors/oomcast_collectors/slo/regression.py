"""The share of violations of each class, from looks that tell requests by class but violations of all only.

What a look has in violations beyond the usual goes with what it has in requests of a class beyond the usual: weighted
least squares of violations on requests by class. Unlike an estimate that splits each look by its own last result and
learns from the split, it comes to the truth however many requests a look has.
"""

from collections.abc import Sequence

_PRIOR = 1.0
"""Requests of each class that the prior is worth."""

_LEAST = 1e-5
"""The least share, and of what is left of 1: nothing is taken to be impossible."""

_FORGET = 10_000
"""Looks after which what was learned counts half."""

_MOST = 1e5
"""Requests that one look counts for at most: beside more than _FORGET times that the prior would be lost in rounding,
and without it equations of classes that rise together have no solution."""


class Regression:
    """priors: shares by class."""

    def __init__(self, priors: Sequence[float]) -> None:
        self._priors = list(priors)
        self._products = [[0.0] * len(priors) for _ in priors]
        self._sums = [0.0] * len(priors)
        self._looks = 0
        self._shares: list[float] | None = None

    def shares(self) -> list[float]:
        """Between 0 and 1, without both."""
        if self._shares is None:
            rows = [
                [*products, total + _PRIOR * prior]
                for products, total, prior in zip(self._products, self._sums, self._priors, strict=True)
            ]
            for place, row in enumerate(rows):
                row[place] += _PRIOR
            self._shares = [min(max(share, _LEAST), 1 - _LEAST) for share in _solved(rows)]
        return self._shares

    def learn(self, requests: Sequence[float], violations: float) -> None:
        """One look. requests: by class; violations: 0 to their sum."""
        # As if each request had the same part in what is by chance. By its own class's part, that of rare violations
        # would be next to none, and what was learned of a calm engine would outweigh a change for days.
        whole = sum(requests)
        weight = min(1.0, _MOST / whole) / whole
        self._shares = None
        parts = [(place, n) for place, n in enumerate(requests) if n > 0]
        for place, n in parts:
            self._sums[place] += weight * n * violations
            for other, m in parts:
                self._products[place][other] += weight * n * m
        self._looks += 1
        if self._looks >= _FORGET:
            self._looks //= 2
            self._sums = [total / 2 for total in self._sums]
            self._products = [[product / 2 for product in row] for row in self._products]


def _solved(rows: list[list[float]]) -> list[float]:
    """The solution of equations whose matrix is symmetric and positive definite; the right side ends each row."""
    size = len(rows)
    for place, pivot in enumerate(rows):
        for row in rows[place + 1 :]:
            factor = row[place] / pivot[place]
            for column in range(place, size + 1):
                row[column] -= factor * pivot[column]
    found = [0.0] * size
    for place in reversed(range(size)):
        known = sum(rows[place][other] * found[other] for other in range(place + 1, size))
        found[place] = (rows[place][size] - known) / rows[place][place]
    return found
