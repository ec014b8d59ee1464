"""The fit beside scipy's, which finds it another way."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import optimize, stats

from collectors.engine.prompts import SGLANG, TGI, VLLM, Floats, histogram, sample
from oomcast_collectors.engine.lognormal import Bin, Fit, fit

INF = math.inf


def log_share(low: Floats, high: Floats) -> Floats:
    """Of a standard normal, with the difference taken in the tail where it does not cancel."""
    mirrored = low > 0
    near = np.where(mirrored, -low, high)
    far = np.where(mirrored, -high, low)
    log_near, log_far = stats.norm.logcdf(near), stats.norm.logcdf(far)
    return np.asarray(log_near + np.log1p(-np.exp(log_far - log_near)))


def likelihood(bins: Sequence[Bin], longest: float, mu: float, sigma: float) -> float:
    full = [one for one in bins if one.count > 0]
    counts = np.array([one.count for one in full])
    with np.errstate(divide="ignore"):
        low, high = np.log([one.low for one in full]), np.log([min(one.high, longest) for one in full])
    shares = log_share((low - mu) / sigma, (high - mu) / sigma)
    cut = 0.0 if longest == INF else float(stats.norm.logcdf((math.log(longest) - mu) / sigma))
    return float(np.sum(counts * (shares - cut)) / np.sum(counts))


def likeliest(bins: Sequence[Bin], longest: float) -> tuple[float, float]:
    """By simplexes from three starts, none of which is the fit's."""
    best = min(
        (
            optimize.minimize(
                lambda at: -likelihood(bins, longest, at[0], math.exp(at[1])),
                start,
                method="Nelder-Mead",
                options={"xatol": 1e-9, "fatol": 1e-14, "maxiter": 4000},
            )
            for start in ((5.0, 0.0), (9.0, 0.5), (11.0, 0.0))
        ),
        key=lambda found: float(found.fun),
    )
    return float(best.x[0]), math.exp(best.x[1])


SAMPLES = [
    (5.82, 1.37, 131_072, VLLM),
    (5.82, 1.37, 131_072, SGLANG),
    (9.2, 0.9, 131_072, VLLM),
    (9.2, 0.9, 131_072, SGLANG),
    (8.0, 1.0, 32_768, TGI),
    (11.0, 1.0, 131_072, SGLANG),
    (12.5, 0.9, 131_072, SGLANG),
    (4.0, 2.5, 131_072, VLLM),
]


@pytest.mark.parametrize(("mu", "sigma", "longest", "bounds"), SAMPLES)
@pytest.mark.parametrize("size", [300, 10_000])
def test_the_likeliest_is_scipys(mu: float, sigma: float, longest: float, bounds: Sequence[float], size: int) -> None:
    bins = histogram(sample(mu, sigma, longest, size, seed=7), bounds)
    for end in (longest, INF):
        found = fit(bins, end)
        assert found is not None
        assert (found.mu, found.sigma) == pytest.approx(likeliest(bins, end), rel=1e-5)


def test_of_two_histograms_at_once_too() -> None:
    lengths = sample(9.2, 1.4, 131_072, 2000, seed=3)
    bins = [*histogram(lengths[:900], VLLM), *histogram(lengths[900:], SGLANG)]
    found = fit(bins, 131_072)
    assert found is not None
    assert (found.mu, found.sigma) == pytest.approx(likeliest(bins, 131_072), rel=1e-5)


@pytest.mark.parametrize(
    ("bins", "end"),
    [
        ([Bin(0, 50, 90.5), Bin(50, 100, 1e-3), Bin(100, 2000, 4e3), Bin(2000, 5000, 2e3), Bin(5000, INF, 2.0)], INF),
        ([Bin(0, 50, 90.5), Bin(50, 100, 1e-3), Bin(100, 2000, 4e3), Bin(2000, 5000, 2e3), Bin(5000, INF, 2.0)], 8000),
        # A full step leads down, and to a beta below 0.
        ([Bin(0, 10_000, 10.0), Bin(10_000, 100_000, 100.0), Bin(100_000, INF, 1000.0)], INF),
        # On the way the likelihood is no hilltop.
        ([Bin(0, 100, 1e4), Bin(100, 1000, 10.0), Bin(1000, 1e5, 0.0), Bin(1e5, INF, 1.0)], 131_072),
    ],
)
def test_of_counts_that_are_none_of_a_lognormal_too(bins: list[Bin], end: float) -> None:
    found = fit(bins, end)
    assert found is not None
    assert (found.mu, found.sigma) == pytest.approx(likeliest(bins, end), rel=1e-4)


def test_a_hundred_deviations_out_too() -> None:
    bins = [Bin(50, 60, 3e5), Bin(60, 70, 4e5), Bin(70, 80, 3e5), Bin(1e6, INF, 1.0)]
    found = fit(bins)
    assert found is not None
    around = [(found.mu + step, found.sigma * (1 + step)) for step in (-1e-4, 1e-4)]
    best = likelihood(bins, INF, found.mu, found.sigma)
    assert all(likelihood(bins, INF, mu, sigma) < best for mu, _ in around for _, sigma in around)
    assert all(likelihood(bins, INF, found.mu, sigma) < best for _, sigma in around)
    assert all(likelihood(bins, INF, mu, found.sigma) < best for mu, _ in around)


@pytest.mark.parametrize(("mu", "sigma", "bounds"), [(5.82, 1.37, VLLM), (9.2, 0.9, SGLANG)])
def test_without_a_cut_it_is_scipys_fit_of_censored_data(mu: float, sigma: float, bounds: Sequence[float]) -> None:
    bins = histogram(sample(mu, sigma, INF, 2000, seed=1), bounds)
    intervals = [(one.low, one.high) for one in bins for _ in range(int(one.count))]
    shape, _, scale = stats.lognorm.fit(stats.CensoredData(interval=intervals), floc=0)
    found = fit(bins)
    assert found is not None
    assert (found.mu, found.sigma) == pytest.approx((math.log(scale), shape), rel=1e-3)


@pytest.mark.parametrize("longest", [2e4, 131_072.0, INF])
@pytest.mark.parametrize(("mu", "sigma"), [(5.82, 1.37), (9.2, 0.9), (11.0, 0.05), (60.0, 1.0), (1.0, 0.2)])
def test_shares_are_scipys(mu: float, sigma: float, longest: float) -> None:
    """Of which some are all but 1, some too small for a float, and some of a distribution that is all but cut off."""
    found = Fit(mu, sigma, longest, 1000)
    whole = 0.0 if longest == INF else float(stats.norm.logcdf((math.log(longest) - mu) / sigma))
    for tokens in (1.0, 512.0, 2048.0, 19_999.0, 65_536.0, 131_071.0, 200_000.0):
        low, high = (np.array((math.log(end) - mu) / sigma) for end in (tokens, max(longest, tokens + 1)))
        above = 0.0 if tokens >= longest else math.exp(float(log_share(low, high)) - whole)
        assert found.share_above(tokens) == pytest.approx(above, rel=1e-9, abs=1e-300)
        assert found.share_between(tokens, INF) == found.share_above(tokens)
        assert found.share_between(0, tokens) == pytest.approx(1 - above, rel=1e-9, abs=1e-14)


@pytest.mark.parametrize("size", [100, 1000])
def test_one_sample_in_a_hundred_scatters_more_than_is_allowed_for(size: int) -> None:
    """Of samples without bins: the distance, in units of 1 / sqrt(size), from the normal that is fitted to them."""
    drawn = np.sort(np.random.default_rng(1).normal(size=(4000, size)), axis=1)
    expected = stats.norm.cdf((drawn - drawn.mean(1, keepdims=True)) / drawn.std(1, keepdims=True))
    steps = np.arange(size + 1) / size
    distance = np.maximum(np.abs(expected - steps[:-1]), np.abs(expected - steps[1:])).max(axis=1)
    assert float(np.mean(distance * math.sqrt(size) > 1.03)) == pytest.approx(0.01, abs=0.005)
