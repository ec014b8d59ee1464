"""The classes of lengths, and of buckets of lengths."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomcast.slo import Slo
from oomcast_collectors.slo.classes import Classes

INF = math.inf
CLASSES = Classes(Slo())


@pytest.mark.parametrize(
    ("tokens", "name"),
    [(0, "512"), (512, "512"), (513, "2048"), (2048, "2048"), (200_000, "200000"), (200_001, "+Inf")],
)
def test_a_class_has_its_end(tokens: int, name: str) -> None:
    assert CLASSES.names[CLASSES.place(tokens)] == name


@pytest.mark.parametrize(
    ("low", "high", "longest", "parts"),
    [
        (0, 1, INF, {0: 1}),
        (0, 512, INF, {0: 1}),
        (512, 2048, INF, {1: 1}),
        (1024, 4096, INF, {1: 0.5, 2: 0.5}),
        (500, 1000, INF, {0: math.log(512 / 500) / math.log(2), 1: math.log(1000 / 512) / math.log(2)}),
        (100_000, INF, INF, {3: 1}),
        (200_000, INF, INF, {5: 1}),
        (100_000, INF, 131_072, {3: 1}),
        (65_536, INF, 262_144, {3: 0.5, 4: math.log2(200 / 131.072) / 2, 5: math.log2(262.144 / 200) / 2}),
        (100_000, INF, 2000, {1: 1}),
        (0, INF, INF, {0: 1}),
    ],
)
def test_a_bucket_is_spread_evenly_in_the_logarithm(
    low: float, high: float, longest: float, parts: dict[int, float]
) -> None:
    assert dict(CLASSES.parts(low, high, longest)) == pytest.approx(parts)


@settings(deadline=None)
@given(st.floats(0, 1e6), st.floats(0, 1e6) | st.just(INF), st.floats(0, 1e6) | st.just(INF))
def test_any_bucket_is_given_out_once(low: float, high: float, longest: float) -> None:
    parts = CLASSES.parts(low, high, longest)
    assert sum(share for _, share in parts) == pytest.approx(1)
    assert all(share > 0 for _, share in parts)
