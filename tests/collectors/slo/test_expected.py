"""Who was picked, when only the number is known: against all ways in which it can come about."""

import math
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oomcast_collectors.slo.expected import picked


def counted_out(sizes: list[int], shares: list[float], number: int) -> list[float]:
    """Every way to pick `number`, with its weight."""
    whole, found = 0.0, [0.0] * len(sizes)
    for way in product(*(range(size + 1) for size in sizes)):
        if sum(way) == number:
            weight = math.prod(
                math.comb(size, n) * share**n * (1 - share) ** (size - n)
                for size, n, share in zip(sizes, way, shares, strict=True)
            )
            whole += weight
            found = [total + n * weight for total, n in zip(found, way, strict=True)]
    return [total / whole for total in found]


def test_one_of_two_groups_by_hand() -> None:
    """49 with a chance of 0.001 and 1 with 0.9: odds of 0.0490490 to 9 that it was the one."""
    odds = 49 * 0.001 / 0.999
    assert picked([49, 1], [0.001, 0.9], 1) == pytest.approx([odds / (odds + 9), 9 / (odds + 9)])


def test_few_that_are_left_are_exact_too() -> None:
    """The same with what is picked and what is left exchanged."""
    odds = 49 * 0.001 / 0.999
    assert picked([49, 1], [0.999, 0.1], 49) == pytest.approx([49 - odds / (odds + 9), 1 - 9 / (odds + 9)])


def test_none_and_all() -> None:
    assert picked([3, 4], [0.1, 0.9], 0) == [0, 0]
    assert picked([3, 4], [0.1, 0.9], 7) == [3, 4]
    assert picked([], [], 0) == []


_GROUP = st.tuples(st.integers(0, 6), st.floats(0.001, 0.999))


@settings(deadline=None)
@given(st.lists(_GROUP, min_size=1, max_size=4), st.floats(0, 1))
@example([(6, 0.001), (6, 0.999), (6, 0.001)], 0.5)
def test_small_numbers_are_exact(groups: list[tuple[int, float]], of_all: float) -> None:
    sizes, shares = [size for size, _ in groups], [share for _, share in groups]
    number = round(of_all * sum(sizes))
    assert picked(sizes, shares, number) == pytest.approx(counted_out(sizes, shares, number), abs=1e-7)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 1e9) | st.integers(0, 10**9), st.floats(1e-5, 1 - 1e-5)), min_size=1, max_size=12),
    st.floats(0, 1),
    st.booleans(),
)
def test_any_numbers(groups: list[tuple[float, float]], of_all: float, whole: bool) -> None:
    sizes, shares = [float(size) for size, _ in groups], [share for _, share in groups]
    number = of_all * sum(sizes)
    if whole:
        number = float(int(number))
    found = picked(sizes, shares, number)
    assert sum(found) == pytest.approx(number, rel=1e-6, abs=1e-6)
    assert all(-1e-6 * sum(sizes) <= n <= size * (1 + 1e-9) + 1e-6 for n, size in zip(found, sizes, strict=True))


def test_many_are_close_to_exact() -> None:
    """17 is above what is computed exactly: of the 17 less than a hundredth is misplaced."""
    sizes, shares = [400, 50, 20, 6, 2], [0.005, 0.02, 0.2, 0.5, 0.8]
    chances = [
        [math.comb(s, n) * p**n * (1 - p) ** (s - n) for n in range(18)] for s, p in zip(sizes, shares, strict=True)
    ]
    exact = []
    for place in range(5):
        others = [1.0] + [0.0] * 17
        for other in range(5):
            if other != place:
                others = [sum(others[k] * chances[other][n - k] for k in range(n + 1)) for n in range(18)]
        weights = [chances[place][n] * others[17 - n] for n in range(18)]
        exact.append(sum(n * weight for n, weight in enumerate(weights)) / sum(weights))
    off = sum(abs(one - other) for one, other in zip(picked(sizes, shares, 17), exact, strict=True)) / 2
    assert off < 0.01 * 17
