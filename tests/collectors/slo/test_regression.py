"""Shares by class from totals."""

import numpy as np
import pytest

from oomcast_collectors.slo.regression import Regression

PRIORS = [0.00001, 0.012, 0.386]


def test_without_a_look_it_is_the_priors() -> None:
    assert Regression(PRIORS).shares() == pytest.approx(PRIORS)


def test_two_classes_are_told_apart_by_how_their_numbers_vary() -> None:
    """Exact totals of 0.1 and 0.5 a request: two looks are two equations, and priors matter less and less."""
    regression = Regression([0.3, 0.3])
    for _ in range(500):
        regression.learn([100, 10], 15)
        regression.learn([10, 100], 51)
    assert regression.shares() == pytest.approx([0.1, 0.5], abs=0.001)


def test_equations_are_solved_as_by_a_library() -> None:
    """The same prior weights and looks, handed to numpy."""
    rng = np.random.default_rng(1)
    regression = Regression([0.1, 0.2, 0.3])
    matrix, right = np.eye(3), np.array([0.1, 0.2, 0.3])
    for _ in range(20):
        requests = rng.integers(0, 9, 3).astype(float)
        if not requests.sum():
            continue
        violations = float(rng.integers(0, int(requests.sum()) + 1))
        matrix += np.outer(requests, requests) / requests.sum()
        right += requests * violations / requests.sum()
        regression.learn([float(n) for n in requests], violations)
        assert regression.shares() == pytest.approx(np.clip(np.linalg.solve(matrix, right), 1e-5, 1 - 1e-5).tolist())


def test_shares_stay_between_0_and_1() -> None:
    regression = Regression(PRIORS)
    for _ in range(100):
        regression.learn([5, 0, 0], 5)
        regression.learn([0, 5, 0], 0)
    none, all_of_them = regression.shares()[1], regression.shares()[0]
    assert 0 < none < 0.001
    assert 0.95 < all_of_them < 1


def test_what_an_engine_did_long_ago_is_forgotten() -> None:
    """With 10,000 looks all is halved; then again with each 5,000."""
    regression = Regression([0.5, 0.5])
    for _ in range(10_000):
        regression.learn([1, 0], 1)
    for _ in range(30_000):
        regression.learn([1, 0], 0)
    assert regression.shares()[0] == pytest.approx(1 / 2**6, abs=0.001)


def test_a_class_that_never_comes_keeps_its_prior_for_ever() -> None:
    regression = Regression(PRIORS)
    for _ in range(60_000):
        regression.learn([1, 0, 0], 0)
    assert regression.shares()[1:] == pytest.approx(PRIORS[1:])


@pytest.mark.parametrize("requests", [1e6, 1e15, 9e17])
def test_a_page_with_absurd_counts_leaves_equations_that_can_be_solved(requests: float) -> None:
    """Half of each of two classes, look after look: the prior alone tells them apart."""
    regression = Regression([0.1, 0.3])
    for _ in range(50):
        regression.learn([requests / 2, requests / 2], requests / 5)
    assert regression.shares() == pytest.approx([0.1, 0.3], abs=0.001)


def test_it_comes_to_the_truth_with_any_number_of_requests_a_look() -> None:
    """Ten thousand looks. The rarest class has a share of 2 %."""
    truth, shares = np.array([0.001, 0.02, 0.3, 0.7]), np.array([0.6, 0.3, 0.08, 0.02])
    rng = np.random.default_rng(3)
    for a_look in (1, 5, 50, 500):
        regression = Regression([0.5, 0.5, 0.001, 0.001])
        for requests in rng.poisson(shares * a_look, (9999, 4)):
            if requests.any():
                regression.learn(requests.tolist(), float(rng.binomial(requests, truth).sum()))
        off = np.abs(np.array(regression.shares()) - truth)
        assert (off < [0.005, 0.006, 0.02, 0.04]).all(), (a_look, off)
