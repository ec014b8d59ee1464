"""What the prompts of the window are distributed like, and what is told of it."""

import math
from itertools import pairwise

import pytest

from collectors.engine.prompts import VLLM
from oomcast.slo import LengthClass, Slo
from oomcast_collectors.engine.distribution import PERIOD, Distribution
from oomcast_collectors.engine.lengths import ABOVE, Recent
from oomcast_collectors.engine.lognormal import Fit
from oomcast_collectors.engine.reading import Lengths

INF = math.inf
SLO = Slo(classes=(LengthClass(up_to=500), LengthClass(up_to=2000), LengthClass()))


def recent(counts: dict[float, float], longest: float = INF) -> Recent:
    """counts: by the upper edge of the bucket."""
    edges = sorted(counts)
    cumulative = [sum(counts[edge] for edge in edges[: n + 1]) for n in range(len(edges))]
    lengths = Lengths(tuple(zip(edges, cumulative, strict=True)), 1.0, cumulative[-1])
    return Recent([lengths], longest, cumulative[-1])


def lognormal(mu: float, sigma: float, whole: float) -> Recent:
    truth = Fit(mu, sigma, INF, whole)
    return recent({high: whole * truth.share_between(low, high) for low, high in pairwise((0.0, *VLLM))})


def test_a_log_normal_is_recognised_and_its_shares_are_the_classes() -> None:
    found = Distribution(SLO)
    found.look(lognormal(7.0, 1.2, 10_000), 0.0)
    truth = Fit(7.0, 1.2, INF, 1)
    assert found.fit is not None
    assert (found.fit.mu, found.fit.sigma) == pytest.approx((7.0, 1.2), rel=1e-3)
    assert found.above() == pytest.approx({tokens: truth.share_above(tokens) for tokens in ABOVE}, rel=0.02)
    edges = (0.0, 500.0, 2000.0, INF)
    assert found.shares == pytest.approx([truth.share_between(*pair) for pair in pairwise(edges)], rel=0.01)
    assert sum(found.shares) == pytest.approx(1)


TWO_KINDS = {200.0: 900.0, 500.0: 0.0, 2000.0: 0.0, 50_000.0: 0.0, 200_000.0: 100.0}
"""A template of 200 tokens, and documents; no log-normal."""


def test_where_it_does_not_hold_the_counted_prompts_are_what_is_told() -> None:
    found = Distribution(SLO)
    found.look(recent(TWO_KINDS | {INF: 3.0}), 0.0)
    assert found.fit is None or not found.fit.holds
    assert found.above() == {}
    assert found.shares == pytest.approx([900 / 1003, 0, 103 / 1003])


def test_a_bucket_with_two_classes_is_split_in_the_logarithm() -> None:
    """From 50 to 5,000: half of the logarithm is up to 500, log10(4) more up to 2,000."""
    found = Distribution(SLO)
    found.look(recent({50.0: 0.0, 5000.0: 100.0, INF: 0.0}), 0.0)
    four = math.log10(4) / 2
    assert found.shares == pytest.approx([0.5, four, 0.5 - four])
    assert found.score is not None
    # From 2,525 tokens on it is 1, which is 0.148 of the logarithm; the 0.046 below down to 2,048 have 0.66 on average.
    assert found.score == pytest.approx(0.148 + 0.046 * 0.66, abs=0.005)


def test_it_is_fitted_again_after_a_while_and_forgotten_with_the_prompts() -> None:
    found = Distribution(SLO)
    found.look(lognormal(7.0, 1.2, 10_000), 100.0)
    first = found.fit
    found.look(lognormal(8.0, 1.2, 10_000), 100.0 + PERIOD - 0.1)
    assert found.fit is first
    found.look(lognormal(8.0, 1.2, 10_000), 100.0 + PERIOD)
    assert found.fit is not None
    assert found.fit.mu == pytest.approx(8.0, rel=1e-3)
    found.look(None, 101.0 + PERIOD)
    assert found.fit is None
    assert found.score is None
    assert set(found.shares) == {0}
    assert not found.above()
    found.look(lognormal(7.0, 1.2, 10_000), 200.0)
    assert found.fit is not None
    assert found.fit.mu == pytest.approx(7.0, rel=1e-3)


def test_nothing_is_longer_than_the_engine_accepts() -> None:
    found = Distribution(SLO)
    found.look(recent({100.0: 0.0, INF: 10.0}, longest=400.0), 0.0)
    assert found.shares == [1, 0, 0]
