"""How many of each of several groups are among those that were picked, when only the number of all is known."""

import math
from collections.abc import Sequence

_EXACT = 16
"""Picked ones up to which the expectation is exact. Above, that of many is close: it misplaces less than one in 100."""

_FARTHEST = 200.0
"""Of log odds: above those of any share, with any number of requests."""

_STEPS = 40


def picked(sizes: Sequence[float], shares: Sequence[float], number: float) -> list[float]:
    """The expected number from each group, given that `number` of all were picked.

    sizes: of the groups, from 0 on. shares: the chance of each one of a group, above 0 and below 1, independent of all
    others. number: 0 to the sum of the sizes. Exact for whole numbers, unless many were picked and many were not.
    """
    whole = sum(sizes)
    if number <= 0:
        return [0.0] * len(sizes)
    if number >= whole:
        return list(sizes)
    if number > whole / 2:
        left = picked(sizes, [1 - share for share in shares], whole - number)
        return [size - rest for size, rest in zip(sizes, left, strict=True)]
    logits = _tilted(sizes, [math.log(share / (1 - share)) for share in shares], number)
    if number <= _EXACT and all(float(size).is_integer() for size in (number, *sizes)):
        return _exact(sizes, logits, int(number))
    return [size * _chance(logit) for size, logit in zip(sizes, logits, strict=True)]


def _tilted(sizes: Sequence[float], logits: Sequence[float], number: float) -> list[float]:
    """The log odds, all moved by as much as it takes for `number` to be expected.

    Who is picked, once their number is given, does not depend on that.
    """
    low, high = -_FARTHEST, _FARTHEST
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if sum(size * _chance(logit + middle) for size, logit in zip(sizes, logits, strict=True)) < number:
            low = middle
        else:
            high = middle
    return [logit + high for logit in logits]


def _exact(sizes: Sequence[float], logits: Sequence[float], number: int) -> list[float]:
    """By the distributions of the number from each group alone, from those before it and from those after it."""
    alone = [_binomial(size, logit, number) for size, logit in zip(sizes, logits, strict=True)]
    before, after = [[1.0]], [[1.0]]
    for own in alone[:-1]:
        before.append(_together(before[-1], own, number))
    for own in alone[:0:-1]:
        after.append(_together(after[-1], own, number))
    found = []
    for own, one, other in zip(alone, before, reversed(after), strict=True):
        others = _together(one, other, number)
        weights = [(n, own[n] * others[number - n]) for n in range(len(own)) if number - n < len(others)]
        found.append(sum(n * weight for n, weight in weights) / sum(weight for _, weight in weights))
    return found


def _binomial(size: float, logit: float, most: int) -> list[float]:
    """The chances of 0 up to `most` out of `size`."""
    odds = math.exp(logit)
    terms = [math.exp(-size * math.log1p(odds))]
    for n in range(min(int(size), most)):
        terms.append(terms[-1] * odds * (size - n) / (n + 1))
    return terms


def _together(one: Sequence[float], other: Sequence[float], most: int) -> list[float]:
    """The chances of each sum up to `most` of two independent numbers."""
    sums = [0.0] * min(len(one) + len(other) - 1, most + 1)
    for n, chance in enumerate(one):
        for m, another in enumerate(other[: len(sums) - n]):
            sums[n + m] += chance * another
    return sums


def _chance(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))
