"""The rate of a class: the prior at first, the measurement from a thousand requests on."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomcast_collectors.slo.rates import FORGET, Rate


def fed(prior: float, *looks: tuple[float, float]) -> float:
    rate = Rate(prior)
    for requests, violations in looks:
        rate.learn(requests, violations)
    return rate.p


def test_nothing_measured_is_the_prior() -> None:
    assert fed(0.386) == 0.386
    assert fed(0.386, (0, 0)) == 0.386


def test_half_a_thousand_requests_weigh_half() -> None:
    assert fed(0.4, (500, 50)) == pytest.approx(0.5 * 0.4 + 0.5 * 0.1)


@pytest.mark.parametrize("requests", [1000, 1001, 5000])
def test_from_a_thousand_on_it_is_measured(requests: float) -> None:
    assert fed(0.4, (requests, requests / 10)) == pytest.approx(0.1)


def test_at_ten_thousand_what_was_weighs_half() -> None:
    """9,999 of 9,999, then one that is none: halved to 5,000 with 4,999.5; 5,000 more without leave half of it."""
    assert fed(0.0, (9999, 9999), (1, 0), (4999, 0)) == pytest.approx(4999.5 / 9999)


def test_the_prior_does_not_come_back_when_counts_are_halved() -> None:
    assert fed(0.9, (FORGET, 0.0)) == 0.0


def test_any_number_of_requests_at_once_is_forgotten_in_time() -> None:
    assert fed(0.9, (1e12, 1e12), *[(1000.0, 0.0)] * 100) < 0.01


@settings(deadline=None)
@given(
    st.floats(0, 1),
    st.lists(st.tuples(st.floats(0, 1e12), st.floats(0, 1)).map(lambda look: (look[0], look[0] * look[1]))),
)
def test_it_is_a_share_and_between_the_prior_and_the_measured(prior: float, looks: list[tuple[float, float]]) -> None:
    shares = [violations / requests for requests, violations in looks if requests]
    p = fed(prior, *looks)
    assert 0 <= p <= 1
    assert min([prior, *shares]) - 1e-9 <= p <= max([prior, *shares]) + 1e-9
