"""The fit of prompt lengths: what it finds, what it refuses, and what it says of how well it fits."""

import math
from collections.abc import Sequence
from dataclasses import astuple, replace
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from collectors.engine.prompts import SGLANG, TGI, VLLM, histogram, sample
from oomcast_collectors.engine.lognormal import FEWEST, WIDEST, Bin, Fit, fit

INF = math.inf


def fitted(bins: Sequence[Bin], longest: float = INF, start: Fit | None = None) -> Fit:
    found = fit(bins, longest, start)
    assert found is not None
    return found


@pytest.mark.parametrize("bounds", [VLLM, SGLANG], ids=["vllm", "sglang"])
@pytest.mark.parametrize(
    ("mu", "sigma", "longest"),
    [
        (5.82, 1.37, INF),
        (5.82, 1.37, 131_072),
        (7.5, 1.8, 131_072),
        (9.2, 0.9, 131_072),
        (11.0, 1.0, 131_072),  # 30 % of it is cut off
    ],
)
def test_the_parameters_come_back_from_the_buckets_of_engines(
    mu: float, sigma: float, longest: float, bounds: tuple[float, ...]
) -> None:
    """Of one sample sigma scatters by 1 % of itself, by 1.5 % where much is cut off: so the mean of eight."""
    fits = [fitted(histogram(sample(mu, sigma, longest, 10_000, seed), bounds), longest) for seed in range(8)]
    assert float(np.mean([one.mu for one in fits])) == pytest.approx(mu, rel=0.02)
    assert float(np.mean([one.sigma for one in fits])) == pytest.approx(sigma, rel=0.02)
    assert all(one.mu == pytest.approx(mu, rel=0.02) for one in fits)
    assert all(one.sigma == pytest.approx(sigma, rel=0.06) for one in fits)
    assert all(one.holds and one.count == 10_000 and one.longest == longest for one in fits)


@pytest.mark.parametrize(("mu", "sigma"), [(5.82, 1.37), (9.2, 0.9)])
def test_the_parameters_come_back_from_linear_buckets(mu: float, sigma: float) -> None:
    """The first of a hundred buckets up to 32,768 has half of the shorter prompts."""
    found = fitted(histogram(sample(mu, sigma, 32_768, 10_000, 1), TGI), 32_768)
    assert (found.mu, found.sigma) == pytest.approx((mu, sigma), rel=0.02)
    assert found.holds


def test_several_histograms_are_one_sample() -> None:
    lengths = sample(7.5, 1.8, 131_072, 20_000, 3)
    both = [*histogram(lengths[:10_000], VLLM), *histogram(lengths[10_000:], SGLANG)]
    found = fitted(both, 131_072)
    assert (found.mu, found.sigma) == pytest.approx((7.5, 1.8), rel=0.02)
    assert found.count == 20_000
    assert found.holds


def test_the_shares_are_those_of_the_sample() -> None:
    lengths = sample(9.2, 1.4, 131_072, 100_000, 5)
    found = fitted(histogram(lengths, VLLM), 131_072)
    for tokens in (512, 2048, 65_536, 100_000):
        assert found.share_above(tokens) == pytest.approx(float(np.mean(lengths > tokens)), rel=0.05)
    between = float(np.mean((lengths > 2048) & (lengths <= 65_536)))
    assert found.share_between(2048, 65_536) == pytest.approx(between, rel=0.05)
    assert found.share_above(131_072) == found.share_above(200_000) == found.share_between(2048, 2048) == 0
    assert found.share_above(0) == found.share_between(0, INF) == 1


GOOD = histogram(sample(5.82, 1.37, INF, 1000, 1), VLLM)


def test_too_few_prompts_are_not_fitted() -> None:
    bins = [Bin(0, 100, 20.0), Bin(100, 200, 60.0), Bin(200, INF, FEWEST - 81.0)]
    assert fit(bins) is None
    assert fit([*bins, Bin(200, INF, 1.0)]) is not None


@pytest.mark.parametrize(
    "bins",
    [
        [],
        [Bin(100, 200, 1e6)],
        [Bin(100, 200, 1e6), Bin(200, 500, 1e6)],
        [Bin(100, 200, 1e6), Bin(200, 500, 1e6), Bin(500, 1000, 0.0)],
        [Bin(0, 100, 0.0), Bin(100, 200, 0.0), Bin(200, INF, 1e6)],
        [Bin(100, 200, 1e6), Bin(200, 500, 1e6), Bin(200, 500, 1e6)],
        [Bin(100, 200, 1e6), Bin(200, 500, 1e6), Bin(0, INF, 1e6)],
    ],
    ids=["none", "one", "two", "empty", "last", "twice", "all"],
)
def test_what_does_not_say_where_and_how_wide_is_not_fitted(bins: list[Bin]) -> None:
    assert fit(bins) is None


def test_a_bin_that_spans_all_lengths_tells_nothing() -> None:
    assert fit([*GOOD, Bin(0, INF, 5e5)]) == fit(GOOD)
    assert fit([*GOOD, Bin(0, 131_072, 5e5)], 131_072) == fit(GOOD, 131_072)


def test_wider_than_any_traffic_is_no_lognormal() -> None:
    ends = [Bin(0, 10, 500.0), Bin(10_000, INF, 500.0)]
    assert fit([*ends, Bin(10, 10_000, 300.0)]) is None
    assert fitted([*ends, Bin(10, 10_000, 600.0)]).sigma == pytest.approx(7.06, rel=0.01)
    # What is cut off would be above: ever wider is ever likelier.
    assert fit([*ends, Bin(10, 10_000, 1.0)], 20_000) is None


@pytest.mark.parametrize(
    ("count", "distance", "tail", "holds"),
    [
        (1e6, 0.051, 1.0, True),
        (1e6, 0.052, 1.0, False),
        (100, 0.153, 1.0, True),
        (100, 0.154, 1.0, False),
        (100, 0.0, 1.5, True),
        (100, 0.0, 1.51, False),
        (100, 0.0, INF, False),
    ],
)
def test_it_holds_up_to_what_is_said(count: float, distance: float, tail: float, holds: bool) -> None:
    assert Fit(5.82, 1.37, INF, count, distance, tail).holds is holds


def test_a_longest_prompt_that_the_bins_contradict_is_not_used() -> None:
    assert fit(GOOD, 500) == fit(GOOD)


@pytest.mark.parametrize(
    "bad",
    [
        Bin(100, 100, 9.0),
        Bin(200, 100, 9.0),
        Bin(-INF, 0, 9.0),
        Bin(-5, -1, 9.0),
        Bin(math.nan, 100, 9.0),
        Bin(100, math.nan, 9.0),
        Bin(100, 200, -9.0),
        Bin(100, 200, math.nan),
        Bin(100, 200, INF),
        Bin(INF, INF, 9.0),
    ],
)
def test_what_is_no_bin_is_passed_over(bad: Bin) -> None:
    assert fit([*GOOD, bad]) == fit(GOOD)
    assert fit([*GOOD, bad], 131_072) == fit(GOOD, 131_072)


def test_sums_beyond_a_float_are_not_fitted() -> None:
    assert fit([one._replace(count=1e308) for one in GOOD]) is None
    assert fit(GOOD, math.nan) is None


@pytest.mark.parametrize("factor", [0.2, 1e9, 1e300])
def test_only_the_shares_matter_to_the_parameters(factor: float) -> None:
    found = fitted([one._replace(count=one.count * factor) for one in GOOD])
    wanted = fitted(GOOD)
    assert (found.mu, found.sigma) == pytest.approx((wanted.mu, wanted.sigma))
    assert found.distance == pytest.approx(wanted.distance)


def test_one_prompt_far_from_all_others_has_its_part() -> None:
    """Eighty deviations from the rest, where no float has a probability left."""
    crowd = [Bin(50, 60, 3e5), Bin(60, 70, 4e5), Bin(70, 80, 3e5)]
    near, far = fitted([*crowd, Bin(80, INF, 1.0)]), fitted([*crowd, Bin(1e6, INF, 1.0)])
    assert (math.log(1e6) - far.mu) / far.sigma > 80
    assert near.sigma < far.sigma < 1.01 * near.sigma
    assert far.tail > 1e4
    assert not far.holds
    assert far.share_above(1e6) == 0


def test_prompts_that_crowd_below_the_longest_are_fitted() -> None:
    """The mode is cut off, and with it all but 2 % of the distribution."""
    lengths = sample(12.8, 0.5, 131_072, 10_000, 1)
    found = fitted(histogram(lengths, [*range(10_000, 130_001, 5000), INF]), 131_072)
    assert found.mu > math.log(131_072)
    assert found.share_above(120_000) == pytest.approx(float(np.mean(lengths > 120_000)), rel=0.02)
    assert found.holds


@pytest.mark.parametrize("longest", [INF, 131_072.0])
def test_the_last_fit_is_only_a_start(longest: float) -> None:
    wanted = fitted(GOOD, longest)
    others = [wanted, replace(wanted, mu=12.0), replace(wanted, mu=1.0, sigma=0.01), replace(wanted, sigma=9.0)]
    for start in others:
        found = fitted(GOOD, longest, start)
        assert (found.mu, found.sigma) == pytest.approx((wanted.mu, wanted.sigma))


@pytest.mark.parametrize("size", [100, 300, 1000, 10_000])
@pytest.mark.parametrize("bounds", [VLLM, SGLANG], ids=["vllm", "sglang"])
def test_a_sample_of_a_lognormal_is_taken_for_one(size: int, bounds: tuple[float, ...]) -> None:
    for seed in range(20):
        assert fitted(histogram(sample(5.82, 1.37, 131_072, size, seed), bounds), 131_072).holds


@pytest.mark.parametrize("bounds", [VLLM, SGLANG], ids=["vllm", "sglang"])
def test_another_distribution_is_told(bounds: tuple[float, ...]) -> None:
    """Short questions and long documents, in equal parts: no edge's share is right."""
    lengths = np.concatenate([sample(5, 0.4, INF, 500, 1), sample(9.5, 0.4, INF, 500, 2)])
    found = fitted(histogram(lengths, bounds))
    assert found.distance > 0.1
    assert not found.holds


@pytest.mark.parametrize("bounds", [VLLM, SGLANG], ids=["vllm", "sglang"])
def test_a_tail_that_is_ten_times_too_long_is_told(bounds: tuple[float, ...]) -> None:
    """One prompt in a hundred is a book. The distance does not see it."""
    lengths = np.concatenate([sample(5.82, 1.37, INF, 9900, 1), sample(11.4, 0.1, 131_072, 100, 2)])
    found = fitted(histogram(lengths, bounds), 131_072)
    assert found.distance < 0.05
    assert found.tail > 10
    assert not found.holds


def test_a_tail_that_is_cut_short_is_told() -> None:
    """Documents are refused above 9,000 tokens, and the engine does not say so."""
    found = fitted(histogram(sample(7.5, 1.2, 9000, 10_000, 1), VLLM))
    assert found.distance < 0.05
    assert found.tail == INF
    assert not found.holds


def test_ten_prompts_in_the_tail_contradict_nothing() -> None:
    lengths = np.concatenate([sample(5.82, 1.37, 20_000, 9991, 1), np.full(9, 120_000.0)])
    found = fitted(histogram(lengths, VLLM), 131_072)
    assert found.tail == 1
    assert found.holds


def test_an_edge_inside_a_bin_of_another_histogram_is_given_what_the_bin_allows() -> None:
    coarse = [Bin(0, 100, 300.0), Bin(100, 10_000, 600.0), Bin(10_000, INF, 100.0)]
    assert fitted(coarse).distance == pytest.approx(0, abs=1e-6)
    within = [*coarse, Bin(500, 501, 0.0)]
    assert fitted(within).distance == pytest.approx(0, abs=1e-6)
    # Nobody is above 500 but the hundred above 10,000.
    assert fitted([*coarse[::2], Bin(100, 500, 600.0), Bin(500, 10_000, 0.0)]).distance > 0.05


_EDGES = st.lists(
    st.floats(0, 1e7) | st.sampled_from([1.0, 100.0, 131_072.0, INF]), min_size=2, max_size=12, unique=True
)
_COUNTS = st.just(0.0) | st.floats(0, 1e13) | st.integers(0, 1000).map(float) | st.sampled_from([math.nan, INF, -1.0])


@st.composite
def histograms(draw: st.DrawFn) -> list[Bin]:
    edges = sorted(draw(_EDGES))
    return [Bin(low, high, draw(_COUNTS)) for low, high in pairwise(edges)]


_BINS = st.lists(histograms(), min_size=1, max_size=3).map(lambda several: [one for part in several for one in part])
_LONGEST = st.just(INF) | st.floats(1, 1e7) | st.integers(1, 1 << 20).map(float)


@given(_BINS, _LONGEST, st.none() | st.tuples(st.floats(-50, 50), st.floats(1e-6, 50)), st.lists(st.floats(0, 1e8)))
@example([Bin(0, 1, 1e12), Bin(1, 2, 1.0), Bin(1e6, INF, 1.0)], INF, (0.0, 1e-6), [])
def test_whatever_the_bins_a_fit_is_none_or_a_distribution(
    bins: list[Bin], longest: float, start: tuple[float, float] | None, lengths: list[float]
) -> None:
    found = fit(bins, longest, None if start is None else Fit(*start, longest, 1000))
    if found is None:
        return
    assert math.isfinite(found.mu)
    assert 0 < found.sigma <= WIDEST * 1.01
    assert 0 <= found.distance <= 1 + 1e-9
    assert found.tail >= 1
    assert found.holds in (True, False)
    shares = [found.share_above(tokens) for tokens in sorted(lengths)]
    assert all(0 <= share <= 1 for share in shares)
    assert all(longer <= shorter + 1e-9 for shorter, longer in pairwise(shares))


_LOGNORMAL = st.tuples(st.floats(4, 11), st.floats(0.4, 2), st.integers(0, 1000), st.sampled_from([VLLM, SGLANG]))


@given(_LOGNORMAL, st.floats(1e-3, 1e3), st.booleans())
def test_in_another_unit_it_is_the_same_fit(
    drawn: tuple[float, float, int, tuple[float, ...]], unit: float, cut: bool
) -> None:
    mu, sigma, seed, bounds = drawn
    bins = histogram(sample(mu, sigma, 131_072, 1000, seed), bounds)
    longest = 131_072.0 if cut else INF
    wanted = fit(bins, longest)
    assume(wanted is not None)
    assert wanted
    found = fitted([Bin(low * unit, high * unit, n) for low, high, n in bins], longest * unit)
    assert found.mu == pytest.approx(wanted.mu + math.log(unit), abs=1e-6)
    assert found.sigma == pytest.approx(wanted.sigma, rel=1e-6)
    assert found.distance == pytest.approx(wanted.distance, abs=1e-6)


@given(_LOGNORMAL, st.randoms(use_true_random=False))
def test_the_order_of_the_bins_is_of_no_importance(
    drawn: tuple[float, float, int, tuple[float, ...]], random: Random
) -> None:
    mu, sigma, seed, bounds = drawn
    bins = histogram(sample(mu, sigma, 131_072, 1000, seed), bounds)
    wanted = fit(bins, 131_072)
    random.shuffle(bins)
    found = fit(bins, 131_072)
    assert (found is None) == (wanted is None)
    if found and wanted:
        assert astuple(found) == pytest.approx(astuple(wanted), rel=1e-6, abs=1e-9)
