"""Which class the violations were of, from the margins alone: against the truth that a simulation knows."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomcast.slo import LengthClass, Slo
from oomcast_collectors.slo.attribution import PATIENCE, Attributed, Attribution
from oomcast_collectors.slo.classes import Bin

INF = math.inf
SLO = Slo(
    classes=(
        LengthClass(up_to=512, prior=0.00001, e2e=9),
        LengthClass(up_to=2048, prior=0.012, e2e=10),
        LengthClass(up_to=65_536, prior=0.386, e2e=50),
        LengthClass(prior=0.386, e2e=100),
    )
)
LENGTHS = (0.0, 512.0, 2048.0, 65_536.0, INF)
EDGES = (10.0, 60.0, 120.0, INF)
LOWS = (0.0, *EDGES[:-1])
LIMITS = (10.0, 10.0, 60.0, 120.0)


def lengths(*counts: float) -> list[Bin]:
    """Of each class."""
    return [(LENGTHS[n], LENGTHS[n + 1], count) for n, count in enumerate(counts) if count]


def latencies(*counts: float) -> list[Bin]:
    """In each bucket."""
    return [(LOWS[n], EDGES[n], count) for n, count in enumerate(counts) if count]


def looked(
    attribution: Attribution, lengths: Sequence[Bin], latencies: Sequence[Bin], edges: Sequence[float] = EDGES
) -> Attributed | None:
    return attribution.look(lengths, latencies, edges, INF)


def attribution() -> Attribution:
    return Attribution(SLO, "e2e")


def test_limits_are_edges() -> None:
    one = attribution()
    assert one.limits == [None] * 4
    assert looked(one, [], []) is None
    assert one.limits == [10.0, 10.0, 60.0, 120.0]
    looked(one, [], [], (20.0, INF))
    assert one.limits == [20.0, 20.0, None, None]


def test_a_look_with_one_class_is_certain() -> None:
    found = looked(attribution(), lengths(0, 0, 5), latencies(1, 1, 2, 1))
    assert found == ([0, 0, 5, 0], [0, 0, 3, 0])


def test_each_class_has_its_own_limit() -> None:
    """All slower than the largest: each of them violates, whatever it is of."""
    assert looked(attribution(), lengths(1, 2, 3, 4), latencies(0, 0, 0, 10)) == ([1, 2, 3, 4], [1, 2, 3, 4])
    assert looked(attribution(), lengths(1, 2, 3, 4), latencies(10)) == ([1, 2, 3, 4], [0, 0, 0, 0])


def test_one_violation_among_two_classes_by_hand() -> None:
    """By the priors: odds of 0.00001 to 0.386/0.614 that the one above 10 s was the short prompt."""
    found = looked(attribution(), lengths(1, 0, 1), latencies(1, 1))
    assert found is not None
    short, long = 0.00001 / 0.99999, 0.386 / 0.614
    assert found.violations == pytest.approx([short / (short + long), 0, 0, 0])
    assert found.requests == pytest.approx([1, 0, 1, 0])


def test_a_class_without_an_objective_takes_violations_away_but_has_none() -> None:
    """A slow request of the class without an objective is not given to the other."""
    slo = Slo(classes=(LengthClass(up_to=512, prior=0.00001, e2e=10), LengthClass(prior=0.999)))
    found = looked(Attribution(slo, "e2e"), lengths(1, 1), latencies(1, 1))
    assert found is not None
    assert found.violations == pytest.approx([0, 0], abs=1e-4)
    assert found.requests == pytest.approx([1, 0])


def test_without_an_objective_nothing_is_kept() -> None:
    one = Attribution(Slo(), "e2e")
    assert looked(one, lengths(5), latencies(5)) is None
    assert one.limits == [None] * 6


def test_a_bucket_with_an_edge_of_a_class_in_it() -> None:
    """(500, 1000] is for 3.4 % below 512: five of a thousand such requests that are fast are of each by that much."""
    found = looked(attribution(), [(500.0, 1000.0, 1000.0)], latencies(1000))
    assert found is not None
    short = math.log(512 / 500) / math.log(2)
    fast = [short * 0.99999, (1 - short) * (1 - 0.012)]
    assert found.requests == pytest.approx([1000 * fast[0] / sum(fast), 1000 * fast[1] / sum(fast), 0, 0])
    found = looked(attribution(), [(500.0, 1000.0, 1.0)], latencies(0, 1))
    assert found is not None
    slow = [short * 0.00001, (1 - short) * 0.012]
    assert found.violations == pytest.approx([slow[0] / sum(slow), slow[1] / sum(slow), 0, 0])


def test_what_comes_a_look_later_is_waited_for() -> None:
    one = attribution()
    assert looked(one, lengths(0, 0, 1), []) is None
    assert looked(one, [], latencies(0, 0, 1)) == ([0, 0, 1, 0], [0, 0, 1, 0])
    assert looked(one, [], latencies(1)) is None
    assert looked(one, lengths(1), []) == ([1, 0, 0, 0], [0, 0, 0, 0])


def test_what_never_comes_is_given_up() -> None:
    one = attribution()
    assert [looked(one, lengths(7), []), *(looked(one, [], []) for _ in range(PATIENCE))] == [None] * (PATIENCE + 1)
    assert looked(one, lengths(0, 0, 1), latencies(0, 0, 1)) == ([0, 0, 1, 0], [0, 0, 1, 0])


def test_what_has_no_match_is_left_out_of_each_class_alike() -> None:
    one = attribution()
    assert [looked(one, lengths(0, 0, 4, 4), latencies(4)) for _ in range(PATIENCE - 1)] == [None] * (PATIENCE - 1)
    assert looked(one, lengths(0, 0, 4, 4), latencies(4)) == ([0, 0, 6, 6], [0, 0, 0, 0])


def test_other_buckets_after_a_restart() -> None:
    one = attribution()
    looked(one, lengths(1), latencies(1))
    found = looked(one, lengths(1), [(20.0, INF, 1.0)], (20.0, INF))
    assert found == ([1, 0, 0, 0], [1, 0, 0, 0])


SHARES = np.array([0.6, 0.3, 0.08, 0.02])
TRUTH = np.array([0.001, 0.02, 0.3, 0.7])


def simulated(seed: int, a_look: float, looks: int, torn: float = 0.0) -> tuple[list[float], list[float], float]:
    """Rates of the classes as attributed and as they were, and the share of the requests that was attributed.

    a_look: requests on average, as many as come by chance. torn: share of looks that miss half of the latencies, which
    the next one has.
    """
    rng = np.random.default_rng(seed)
    one = attribution()
    requests, violations, true_requests, true_violations = (np.zeros(4) for _ in range(4))
    late = np.zeros(4)
    for _ in range(looks):
        counts = rng.poisson(SHARES * a_look)
        missed = rng.binomial(counts, TRUTH)
        true_requests += counts
        true_violations += missed
        bands = late.copy()
        for place, (count, above) in enumerate(zip(counts, missed, strict=True)):
            first = LOWS.index(LIMITS[place])
            bands[first:] += rng.multinomial(above, np.full(4 - first, 1 / (4 - first)))
            bands[:first] += rng.multinomial(count - above, np.full(first, 1 / first))
        late = rng.binomial(bands.astype(int), 0.5).astype(float) if rng.random() < torn else np.zeros(4)
        bands -= late
        found = looked(one, lengths(*counts.tolist()), latencies(*bands.tolist()))
        if found is not None:
            requests += found.requests
            violations += found.violations
    attributed = float(requests.sum() / true_requests.sum())
    return (violations / requests).tolist(), (true_violations / true_requests).tolist(), attributed


@pytest.mark.parametrize(
    ("a_look", "looks", "error"),
    [
        (1, 3600, [0.002, 0.005, 0.02, 0.03]),
        (5, 3600, [0.002, 0.005, 0.02, 0.03]),
        (50, 3600, [0.006, 0.01, 0.03, 0.08]),
    ],
)
def test_it_comes_to_the_truth(a_look: float, looks: int, error: list[float]) -> None:
    """One look a second: an hour. The rarest class has a share of 2 %, the most frequent a rate of 0.1 %."""
    found, truth, attributed = simulated(1, a_look, looks)
    assert attributed == pytest.approx(1)
    for rate, true, most in zip(found, truth, error, strict=True):
        assert rate == pytest.approx(true, abs=most)


@pytest.mark.parametrize("a_look", [1, 20])
def test_it_comes_to_the_truth_where_pages_are_torn(a_look: float) -> None:
    found, truth, attributed = simulated(2, a_look, 3600, torn=0.3)
    assert attributed > 0.98
    for rate, true, most in zip(found, truth, [0.01, 0.01, 0.03, 0.08], strict=True):
        assert rate == pytest.approx(true, abs=most)


_COUNTS = st.lists(st.integers(0, 30) | st.floats(0, 1e9), min_size=4, max_size=4)


@settings(deadline=None)
@given(st.lists(st.tuples(_COUNTS, _COUNTS), max_size=8), st.sampled_from([EDGES, (60.0, INF)]))
def test_any_looks(looks: list[tuple[list[float], list[float]]], edges: tuple[float, ...]) -> None:
    """Nothing is made up: no more violations than requests, no more requests than either histogram has."""
    one = attribution()
    total = 0.0
    for by_class, by_band in looks:
        found = looked(one, lengths(*by_class), latencies(*by_band), edges)
        if found is None:
            continue
        for requests, violations in zip(found.requests, found.violations, strict=True):
            assert -1e-6 <= violations <= requests * (1 + 1e-6) + 1e-6
        total += sum(found.requests)
    most = min(sum(sum(part[side]) for part in looks) for side in (0, 1)) if looks else 0
    assert total <= most * (1 + 1e-6) + 1e-6
