"""A truncated log-normal distribution of prompt lengths, fitted to histograms, and how well it fits them."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

from oomcast_collectors.engine.likelihood import Cell, climb, log_probability

FEWEST = 100
"""Prompts. The standard error of mu is about sigma / sqrt(count), so that with a sigma of 1.4 the median is known to
some 14 %, and sigma itself to 7 %: below this the shares of a far tail would be out by a factor."""

FEWEST_BINS = 3
"""That are not empty: any two shares are fitted by as narrow a distribution as one likes between the two bins."""

WIDEST = 10.0
"""The sigma from which on the density over a range of lengths that can be served is a straight line in log-log: a
power law cut off at `longest`. Such counts have no log-normal that is likeliest, only ever wider ones."""

_OPEN = math.log(4)

# What Fit.holds allows.
_MISPLACED = 0.05
_SCATTER = 1.03
_FACTOR = 1.5


class Bin(NamedTuple):
    """`count` prompts with low < length <= high, in tokens. high may be infinite, count a fraction."""

    low: float
    high: float
    count: float  # type: ignore[assignment]  # over tuple.count, which nobody asks


@dataclass(frozen=True, slots=True)
class Fit:
    """A log-normal(mu, sigma) of tokens, cut off above `longest` tokens (infinite: not cut off).

    count: the prompts that it was fitted to. distance: the Kolmogorov-Smirnov distance at the edges of the bins, 0 to
    1. tail: the largest factor between the fitted and the counted number of prompts above an edge, either way, beyond
    three standard deviations of the larger; 1 where none is beyond, infinite where one of the two has none.
    Where a bin of one histogram spans an edge of another, the count is taken that the bins allow and that fits best.
    """

    mu: float
    sigma: float
    longest: float
    count: float
    distance: float = 0.0
    tail: float = 1.0

    @property
    def holds(self) -> bool:
        """Whether the fitted shares may be taken for the true ones. Two conditions:

        - No more than 5 % of the prompts are on the wrong side of any edge, beyond what a sample scatters: with mu and
          sigma fitted, one sample in a hundred exceeds 1.03 / sqrt(count).
        - Above each edge the fitted and the counted number are within a factor of 1.5. The distance is ruled by the
          middle, and a share of 0.1 % above 64K that is truly 1 % is nothing to it, while it is ten times the risk.
          Scatter is allowed for, hence fewer than ten prompts above an edge contradict nothing.
        """
        return self.distance <= _MISPLACED + _SCATTER / math.sqrt(self.count) and self.tail <= _FACTOR

    def share_above(self, tokens: float) -> float:
        """0 to 1."""
        return self.share_between(tokens, math.inf)

    def share_between(self, low: float, high: float) -> float:
        """0 to 1: of prompts with low < length <= high."""
        below, upper = self._z(low), self._z(min(high, self.longest))
        if not below < upper:
            return 0.0
        return math.exp(min(log_probability(below, upper) - log_probability(-math.inf, self._z(self.longest)), 0.0))

    def _z(self, tokens: float) -> float:
        return (_log(tokens) - self.mu) / self.sigma


def fit(bins: Sequence[Bin], longest: float = math.inf, start: Fit | None = None) -> Fit | None:
    """The likeliest log-normal. The bins of several histograms with other edges are one sample, in any order.

    longest: tokens that no prompt exceeds; not used where a bin with prompts contradicts it. start: an earlier fit of
    similar bins, which saves time. A bin without width or with a count that is none is passed over, as is one that
    spans all lengths, which tells nothing.

    None where fewer than FEWEST prompts or FEWEST_BINS bins with prompts say anything, and where the counts have no
    likeliest log-normal with a sigma below WIDEST.
    """
    bins, longest = _usable(bins, longest)
    full = [one for one in bins if one.count > 0]
    count = sum(one.count for one in full)
    if len({one[:2] for one in full}) < FEWEST_BINS or not FEWEST <= count < math.inf:
        return None
    cells = [Cell(_log(one.low), _log(one.high), one.count / count) for one in full]
    centre, spread = _moments(cells)
    cells = [Cell(low - centre, high - centre, weight) for low, high, weight in cells]
    guesses = [(0.0, 1 / spread)]
    if start is not None:
        guesses.insert(0, ((start.mu - centre) / start.sigma, 1 / start.sigma))
    end = _log(longest) - centre
    found = next(filter(None, (climb(cells, end, guess) for guess in guesses)), None)
    if found is None or not found[1] > 1 / WIDEST:
        return None
    alpha, beta = found
    fitted = Fit(centre + alpha / beta, 1 / beta, longest, count)
    distance, tail = _misfit(fitted, bins)
    return replace(fitted, distance=distance, tail=tail)


def _usable(bins: Sequence[Bin], longest: float) -> tuple[list[Bin], float]:
    """The bins that tell something, none above the longest prompt; and its length, infinite if they contradict it."""
    bins = [one for one in bins if one.low < one.high and 0 <= one.count < math.inf]
    if any(one.low >= longest for one in bins if one.count > 0):
        longest = math.inf
    cut = (one._replace(high=min(one.high, longest)) for one in bins)
    return [one for one in cut if _log(one.low) < _log(one.high) and (one.low > 0 or one.high < longest)], longest


def _log(tokens: float) -> float:
    return math.log(tokens) if tokens > 0 else -math.inf


def _moments(cells: Sequence[Cell]) -> tuple[float, float]:
    """Mean and deviation, with what is in a cell spread evenly over it, and open cells a factor of 4 wide."""
    spans = [
        (high - _OPEN if low == -math.inf else low, low + _OPEN if high == math.inf else high, weight)
        for low, high, weight in cells
    ]
    mean = sum(weight * (low + high) / 2 for low, high, weight in spans)
    centred = [(low - mean, high - mean, weight) for low, high, weight in spans]
    square = sum(weight * (low * low + low * high + high * high) / 3 for low, high, weight in centred)
    return mean, math.sqrt(square)


def _misfit(fitted: Fit, bins: Sequence[Bin]) -> tuple[float, float]:
    """distance and tail."""
    lows, from_low = _cumulative((one.low, one.count) for one in bins)
    highs, to_high = _cumulative((one.high, one.count) for one in bins)
    distance, tail = 0.0, 1.0
    for edge in {*lows, *highs}:
        expected = fitted.count * fitted.share_above(edge)
        surely_above = fitted.count - from_low[bisect_left(lows, edge)]
        perhaps_above = fitted.count - to_high[bisect_right(highs, edge)]
        counted = min(max(expected, surely_above), perhaps_above)
        distance = max(distance, abs(expected - counted) / fitted.count)
        less, more = sorted((expected, counted))
        beyond = more - 3 * math.sqrt(more)
        if beyond > less:
            tail = max(tail, beyond / less if less > 0 else math.inf)
    return distance, tail


def _cumulative(counts: Iterable[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Places in order, and how many are at the first 0, 1, 2 .. of them."""
    ordered = sorted(counts)
    return [place for place, _ in ordered], [0.0, *accumulate(count for _, count in ordered)]
