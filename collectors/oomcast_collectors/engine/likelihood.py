"""The likelihood of a normal distribution of which only intervals were seen, and where it is greatest.

In alpha = mu / sigma and beta = 1 / sigma the logarithm of an interval's probability is concave: the probability is the
integral of a log-concave density over a convex set of the three. So Newton's method, with steps halved where they lead
down, climbs to the one maximum from anywhere. That the distribution is cut off subtracts such a term; where the
difference is not concave, its concave part alone has curvature to spare, and the step goes up all the same.

Probabilities are kept relative to the density at the end of their interval that is nearer to the middle: they are exact
to rounding, and none is too small for a float, however far out the interval is.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

_STEPS = 40
_HALVINGS = 30
_SETTLED = 1e-12
"""Gain of a step, in log-likelihood per observation, below which it is the last one: what it leaves is a rounding."""

_ROOT_HALF = math.sqrt(0.5)
_DENSITY = 1 / math.sqrt(2 * math.pi)
_FAR = 25.0
"""From here on five terms of the asymptotic series are exact to rounding."""


class Cell(NamedTuple):
    """An interval, either end of which may be infinite, and the share of the observations that fell into it."""

    low: float
    high: float
    weight: float


class _Edge(NamedTuple):
    """An end of intervals: z = beta y - alpha, how much is beyond it (_beyond), and factors of the density at it, which
    are 0 where it is infinite."""

    z: float
    beyond: float
    y: float = 0.0
    zz: float = 0.0
    zy: float = 0.0
    zyy: float = 0.0


class _Slope(NamedTuple):
    """A log-likelihood per observation, its gradient, and its Hessian with the sign turned."""

    value: float = 0.0
    a: float = 0.0
    b: float = 0.0
    aa: float = 0.0
    ab: float = 0.0
    bb: float = 0.0

    @property
    def determinant(self) -> float:
        return self.aa * self.bb - self.ab * self.ab


Point = tuple[float, float]
"""alpha, beta."""


def log_probability(low: float, high: float) -> float:
    """Of a standard normal variable being between two values, low < high."""
    nearest, between, _, _ = _between(low, _beyond(low), high, _beyond(high))
    return math.log(between) - nearest if between > 0 else -math.inf


def climb(cells: Sequence[Cell], end: float, start: Point) -> Point | None:
    """The likeliest alpha and beta for cells whose weights sum to 1. end: nothing is above it, infinite without one.

    None where none is found from `start`: where ever wider is ever likelier, beta goes on to 0.
    """
    (alpha, beta), slope = start, _slope(cells, end, start)
    for _ in range(_STEPS):
        if slope is None or not slope.determinant > 0:
            return None
        step_a = (slope.bb * slope.a - slope.ab * slope.b) / slope.determinant
        step_b = (slope.aa * slope.b - slope.ab * slope.a) / slope.determinant
        if slope.a * step_a + slope.b * step_b < _SETTLED:
            return alpha + step_a, beta + step_b
        for halving in range(_HALVINGS):
            there = (alpha + step_a * 0.5**halving, beta + step_b * 0.5**halving)
            found = _slope(cells, end, there)
            if found is not None and found.value > slope.value:
                break
        else:
            return None
        (alpha, beta), slope = there, found
    return None


def _slope(cells: Sequence[Cell], end: float, at: Point) -> _Slope | None:
    """None where the cells are impossible. Without the curvature of the cut where with it the Hessian would not be that
    of a hilltop."""
    if not at[1] > 0:
        return None
    edges = {y: _edge(y, at) for y in {y for cell in cells for y in cell[:2]}}
    total = _Slope()
    for low, high, weight in cells:
        more = _plus(total, edges[low], edges[high], weight)
        if more is None:
            return None
        total = more
    if end == math.inf:
        return total
    cut = _plus(total, _edge(-math.inf, at), _edge(end, at), -1.0)
    if cut is not None and not (cut.aa > 0 and cut.determinant > 0):
        return cut._replace(aa=total.aa, ab=total.ab, bb=total.bb)
    return cut


def _edge(y: float, at: Point) -> _Edge:
    if math.isinf(y):
        return _Edge(y, 0.0)
    z = at[1] * y - at[0]
    return _Edge(z, _beyond(z), y, z, z * y, z * y * y)


def _plus(slope: _Slope, low: _Edge, high: _Edge, weight: float) -> _Slope | None:
    """With the logarithm of the probability between two edges, weighted; None where that is 0."""
    nearest, between, at_low, at_high = _between(low.z, low.beyond, high.z, high.beyond)
    if not between > 0:
        return None
    p, q = at_low * _DENSITY / between, at_high * _DENSITY / between
    a, b = p - q, q * high.y - p * low.y
    return _Slope(
        slope.value + weight * (math.log(between) - nearest),
        slope.a + weight * a,
        slope.b + weight * b,
        slope.aa + weight * (q * high.zz - p * low.zz + a * a),
        slope.ab + weight * (p * low.zy - q * high.zy + a * b),
        slope.bb + weight * (q * high.zyy - p * low.zyy + b * b),
    )


def _beyond(z: float) -> float:
    """The probability beyond z, on the side that 0 is not on, divided by exp(-z*z/2)."""
    z = abs(z)
    if z < _FAR:
        return 0.5 * math.erfc(z * _ROOT_HALF) * math.exp(z * z / 2)
    x = 1 / (z * z)
    return _DENSITY / z * (1 - x * (1 - 3 * x * (1 - 5 * x * (1 - 7 * x * (1 - 9 * x)))))


def _between(low: float, below: float, high: float, above: float) -> tuple[float, float, float, float]:
    """Of two values and what is beyond each: n, the probability between them divided by exp(-n), and likewise the
    densities at the two, of which each has a factor of _DENSITY.

    Never a difference of two probabilities that are nearly 1.
    """
    squares = low * low / 2, high * high / 2
    nearest = 0.0 if low < 0 < high else min(squares)
    at_low, at_high = math.exp(nearest - squares[0]), math.exp(nearest - squares[1])
    below, above = at_low * below, at_high * above
    if low >= 0:
        return nearest, below - above, at_low, at_high
    if high <= 0:
        return nearest, above - below, at_low, at_high
    return nearest, 1 - below - above, at_low, at_high
