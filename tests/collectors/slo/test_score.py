"""The mean score of a histogram."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomcast.slo import RiskScore
from oomcast_collectors.slo.score import MeanScore

INF = math.inf
SCORE = RiskScore()


def mean(low: float, high: float) -> float:
    """Of a million lengths, spread evenly in the logarithm."""
    lengths = np.exp(np.linspace(math.log(low), math.log(high), 1_000_001))
    return float(np.mean([SCORE.score(length) for length in lengths[::10]]))


@pytest.mark.parametrize(("low", "high"), [(500, 1000), (1000, 2000), (2000, 5000), (100, 100_000), (2048, 2525)])
def test_a_bucket_is_spread_evenly_in_the_logarithm(low: float, high: float) -> None:
    assert MeanScore(SCORE).of([(low, high, 3)]) == pytest.approx(mean(low, high), abs=0.0005)


@pytest.mark.parametrize(
    ("low", "high", "score"),
    [(0, 1, 0), (0, 512, 0), (200, 500, 0), (2525, 5000, 1), (100_000, INF, 1), (0, INF, 0), (1280, INF, 0.01)],
)
def test_buckets_of_one_score(low: float, high: float, score: float) -> None:
    assert MeanScore(SCORE).of([(low, high, 2)]) == pytest.approx(score)


def test_each_bucket_counts_by_its_prompts() -> None:
    assert MeanScore(SCORE).of([(1, 500, 3), (5000, 10_000, 1)]) == 0.25
    assert MeanScore(SCORE).of([(1, 500, 0)]) is None
    assert MeanScore(SCORE).of([]) is None


def test_no_prompt_is_longer_than_the_longest() -> None:
    assert MeanScore(SCORE).of([(500, INF, 1)], longest=512) == 0
    assert MeanScore(SCORE).of([(1000, INF, 1)], longest=2000) == pytest.approx(mean(1000, 2000), abs=0.0005)


def test_a_bucket_is_computed_once() -> None:
    class Counted(RiskScore):
        def score(self, tokens: float) -> float:
            calls.append(tokens)
            return super().score(tokens)

    calls: list[float] = []
    score = MeanScore(Counted())
    bins = [(500.0, 1000.0, 1.0), (2000.0, 5000.0, 1.0)]
    first = score.of(bins)
    assert calls
    calls.clear()
    assert score.of(bins) == first
    assert not calls


def test_what_is_known_is_bounded() -> None:
    score = MeanScore(RiskScore())
    for high in range(600, 3000):
        score.of([(500.0, float(high), 1.0)])
    assert len(score._known) <= 1024


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6) | st.just(INF), st.floats(0, 1e12)), max_size=5))
def test_it_is_between_0_and_1(bins: list[tuple[float, float, float]]) -> None:
    found = MeanScore(SCORE).of(bins)
    assert found is None or 0 <= found <= 1 + 1e-9
