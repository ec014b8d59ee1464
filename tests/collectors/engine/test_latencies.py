"""Gains of histograms from look to look."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from oomcast_collectors.engine.counters import SETTLE
from oomcast_collectors.engine.latencies import Bin, Gains, Latencies
from oomcast_collectors.engine.reading import Lengths

INF = math.inf


def histogram(*counts: float, bounds: tuple[float, ...] = (1.0, 10.0, INF)) -> Lengths:
    """counts: of each bucket, not cumulative."""
    total, buckets = 0.0, []
    for bound, count in zip(bounds, counts, strict=True):
        total += count
        buckets.append((bound, total))
    return Lengths(tuple(buckets), total, total)


class Engine:
    def __init__(self) -> None:
        self.latencies = Latencies()
        self.at = 1000.0

    def look(self, lengths: Lengths | None, *, restarted: bool = False, after: float = 1.0) -> list[Bin] | None:
        self.at += after
        found = self.latencies.look({} if lengths is None else {"e2e": lengths}, restarted, self.at)
        return found["e2e"].bins if "e2e" in found else None


def test_what_was_counted_before_the_first_look_is_no_gain() -> None:
    assert Engine().look(histogram(5, 3, 1)) == []


def test_gains_are_told_once_with_their_bucket() -> None:
    engine = Engine()
    engine.look(histogram(5, 3, 1))
    assert engine.look(histogram(6, 3, 3)) == [(0.0, 1.0, 1), (10.0, INF, 2)]
    assert engine.look(histogram(6, 3, 3)) == []


def test_edges_are_those_of_now() -> None:
    engine = Latencies()
    assert engine.look({"ttft": histogram(0, 0, 0)}, False, 0.0)["ttft"].edges == (1.0, 10.0, INF)
    other = histogram(0, 0, bounds=(2.0, INF))
    assert engine.look({"ttft": other}, True, 1.0)["ttft"].edges == (2.0, INF)


def test_a_restart_counts_from_nothing() -> None:
    engine = Engine()
    engine.look(histogram(5, 3, 1))
    assert engine.look(histogram(1, 0, 0), restarted=True) == [(0.0, 1.0, 1)]
    assert engine.look(histogram(1, 1, 0)) == [(1.0, 10.0, 1)]


def test_a_restart_is_remembered_until_there_is_a_histogram_again() -> None:
    engine = Engine()
    engine.look(histogram(5, 3, 1))
    assert engine.look(None, restarted=True) is None
    assert engine.look(histogram(2, 0, 0)) == [(0.0, 1.0, 2)]


def test_other_buckets_after_a_restart() -> None:
    engine = Engine()
    engine.look(histogram(5, 3, 1))
    assert engine.look(histogram(2, 1, bounds=(5.0, INF)), restarted=True) == [(0.0, 5.0, 2), (5.0, INF, 1)]


def test_a_page_that_lacks_a_process_for_a_moment_gains_nothing_twice() -> None:
    engine = Engine()
    engine.look(histogram(50, 30, 10))
    assert engine.look(histogram(20, 10, 5)) == []
    assert engine.look(histogram(51, 30, 10)) == [(0.0, 1.0, 1)]


def test_what_stays_low_has_begun_anew_and_is_no_gain() -> None:
    engine = Engine()
    engine.look(histogram(50, 30, 10))
    assert engine.look(histogram(20, 10, 5)) == []
    assert engine.look(histogram(20, 10, 5), after=SETTLE) == []
    assert engine.look(histogram(20, 11, 5)) == [(1.0, 10.0, 1)]


def test_a_bucket_that_lags_makes_no_request_of_its_own() -> None:
    """Read while one was counted: in the first bucket and not yet in the second, which has both on the next page."""
    engine = Engine()
    engine.look(histogram(0, 0, 0))
    torn = Lengths(((1.0, 1.0), (10.0, 1.0), (INF, 1.0)), 1.0, 1.0)
    engine.look(torn)
    gained = engine.look(Lengths(((1.0, 1.0), (10.0, 2.0), (INF, 2.0)), 1.0, 1.0))
    assert gained == [(1.0, 10.0, 1)]


def test_a_bucket_that_catches_up_moves_no_request_twice() -> None:
    """The first bucket lagged behind; when it has the one, another has come above all buckets."""
    engine = Engine()
    engine.look(histogram(0, 0, 0))
    assert engine.look(Lengths(((1.0, 0.0), (10.0, 1.0), (INF, 1.0)), 1.0, 1.0)) == [(1.0, 10.0, 1)]
    gained = engine.look(Lengths(((1.0, 1.0), (10.0, 1.0), (INF, 2.0)), 1.0, 2.0))
    assert gained is not None
    assert sum(count for _, _, count in gained) == 1


def test_nonsense_is_no_histogram() -> None:
    engine = Engine()
    engine.look(histogram(5, 3, 1))
    falling = Lengths(((1.0, 5.0), (10.0, 3.0), (INF, 9.0)), 9.0, 9.0)
    assert engine.look(falling) is None
    assert engine.look(Lengths((), 0.0, 0.0)) is None
    assert engine.look(histogram(6, 3, 1)) == [(0.0, 1.0, 1)]


def test_totals_that_are_gone_for_a_look_gain_nothing_twice() -> None:
    gains = Gains()
    bounds = (1.0, 10.0, INF)
    gains.look({bounds: histogram(5, 3, 1)})
    assert gains.look({}) == []
    assert gains.look({bounds: histogram(5, 4, 1)}) == [(1.0, 10.0, 1)]


@settings(deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 5)] * 3, st.booleans()), max_size=20))
def test_all_gains_together_are_what_was_counted_since_the_first_look(
    looks: list[tuple[int, int, int, bool]],
) -> None:
    """The last says whether the engine restarted before it, which shows where it counted less since than before."""
    engine, life = Engine(), [0, 0, 0]
    truth, told = [0] * 3, [0.0] * 3
    engine.look(histogram(0, 0, 0))
    for *counted, restarted in looks:
        anew = restarted and sum(counted) < sum(life)
        life = list(counted) if anew else [old + new for old, new in zip(life, counted, strict=True)]
        truth = [old + new for old, new in zip(truth, counted, strict=True)]
        for low, _, count in engine.look(histogram(*life), restarted=anew) or ():
            told[(0.0, 1.0, 10.0).index(low)] += count
    assert told == truth
