"""Counters over restarts, late series and label values without end."""

import math
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from oomcast_collectors.engine.counters import MAX_VALUES, OTHER, SETTLE, Counters
from oomcast_collectors.engine.reading import Count, Lengths, Reading

INF = math.inf


def page(
    started: float | None = None, lengths: Lengths | None = None, **counts: float | Mapping[str, float]
) -> Reading:
    named = {name: value if isinstance(value, Mapping) else {"": value} for name, value in counts.items()}
    return Reading("vllm", started=started, counts=named, lengths=lengths)  # type: ignore[arg-type]


def histogram(**below: float) -> Lengths:
    """below: cumulative counts by bound, b100=3; the sum is 10 for each."""
    buckets = tuple((INF if name == "inf" else float(name[1:]), count) for name, count in below.items())
    return Lengths(buckets, 10 * buckets[-1][1], buckets[-1][1])


class Fed:
    """Counters and the moment."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.at = 1000.0

    def take(self, reading: Reading | None, after: float = 1.0) -> bool:
        self.at += after
        return self.counters.look(reading, self.at)

    def totals(self, *names: Count) -> list[float | None]:
        return [self.counters.total(name) for name in names]


def test_the_first_values_are_taken_as_they_are() -> None:
    fed = Fed()
    assert not fed.take(page(queries=1e6, hits=5))
    assert fed.totals("queries", "hits", "evicted") == [1e6, 5, None]
    assert (fed.counters.restarts, fed.counters.restarted) == (0, None)


def test_counters_that_fall_to_nothing_are_a_restart() -> None:
    fed = Fed()
    fed.take(page(queries=1000, hits=500, preemptions=2))
    for _ in range(40):
        fed.take(None)
    assert fed.take(page(queries=30, hits=0, preemptions=2))
    assert fed.totals("queries", "hits", "preemptions") == [1030, 500, 4]
    assert (fed.counters.restarts, fed.counters.restarted) == (1, fed.at)
    assert not fed.take(page(queries=40, hits=10, preemptions=2))
    assert fed.totals("queries", "hits") == [1040, 510]


def test_a_new_start_time_is_a_restart_even_of_an_idle_engine() -> None:
    fed = Fed()
    fed.take(page(started=100.0, queries=0))
    assert not fed.take(page(started=101.0, queries=0))
    assert fed.take(page(started=160.0, queries=0))
    fed.take(page(queries=0))
    assert not fed.take(page(started=160.0, queries=0))
    assert fed.counters.restarts == 1


def test_a_restart_that_was_seen_by_its_counters_is_not_seen_again_by_its_start_time() -> None:
    fed = Fed()
    fed.take(page(started=100.0, queries=1000))
    assert fed.take(page(queries=1))
    assert not fed.take(page(started=160.0, queries=2))
    assert fed.totals("queries") == [1002]


def test_counts_that_went_on_over_a_restart_are_not_counted_twice() -> None:
    """A directory of a multiprocess engine that nobody cleared gives the old values to the new process."""
    fed = Fed()
    fed.take(page(started=100.0, queries=1000, hits=500))
    assert fed.take(page(started=160.0, queries=1010, hits=505))
    assert fed.totals("queries", "hits") == [1010, 505]


def test_a_page_that_grows_after_a_restart_is_counted_from_zero() -> None:
    fed = Fed()
    fed.take(page(started=100.0, queries=1000, preemptions=50))
    assert fed.take(page(started=160.0))
    fed.take(page(started=160.0, queries=7))
    fed.take(page(started=160.0, queries=8, preemptions=60))
    assert fed.totals("queries", "preemptions") == [1008, 110]
    assert fed.counters.restarts == 1


def test_a_series_that_is_late_once_moves_nothing() -> None:
    fed = Fed()
    fed.take(page(queries=1000, hits=500, finished={"stop": 9, "length": 3}))
    assert not fed.take(page(queries=10, hits=510, finished={"stop": 9}))
    assert fed.totals("queries", "hits", "finished") == [1000, 510, 12]
    fed.take(page(queries=1020, hits=520, finished={"stop": 9, "length": 4}))
    assert fed.totals("queries", "hits", "finished") == [1020, 520, 13]
    assert fed.counters.restarts == 0


def test_a_rank_that_is_late_once_is_no_restart() -> None:
    fed = Fed()
    fed.take(page(queries=1000, hits=500, preemptions=8))
    for _ in range(3):
        assert not fed.take(page(queries=500, hits=250, preemptions=4))
    assert fed.totals("queries", "hits") == [1000, 500]
    fed.take(page(queries=1001, hits=501, preemptions=8))
    assert fed.totals("queries", "hits") == [1001, 501]
    assert fed.counters.restarts == 0


def test_a_process_that_did_not_start_anew_must_stay_low_to_have_restarted() -> None:
    fed = Fed()
    fed.take(page(started=100.0, queries=1000, hits=500))
    assert not fed.take(page(started=100.0, queries=0, hits=0))
    fed.take(page(started=100.0, queries=1001, hits=500))
    assert fed.totals("queries", "hits") == [1001, 500]
    assert fed.counters.restarts == 0


def test_what_stays_low_is_a_restart_in_the_end() -> None:
    fed = Fed()
    fed.take(page(queries=1000, hits=500))
    seen = [fed.take(page(queries=500 + n, hits=250)) for n in range(20)]
    assert seen.index(True) == SETTLE - 1
    assert fed.totals("queries", "hits") == [1519, 750]
    assert fed.counters.restarts == 1


def test_a_fall_across_a_long_gap_is_a_restart_at_once() -> None:
    fed = Fed()
    fed.take(page(queries=1000, hits=500))
    assert fed.take(page(queries=600, hits=300), after=300)
    assert fed.totals("queries", "hits") == [1600, 800]


def test_one_counter_that_stays_low_goes_on_without_a_jump() -> None:
    fed = Fed()
    fed.take(page(queries=1000, hits=500, preemptions=8))
    for _ in range(20):
        fed.take(page(queries=2, hits=501, preemptions=8))
    fed.take(page(queries=5, hits=501, preemptions=8))
    assert fed.totals("queries") == [1003]
    assert fed.counters.restarts == 0


def test_label_values_that_vanish_stay() -> None:
    fed = Fed()
    fed.take(page(http={"200": 5, "500": 2}))
    fed.take(page(http={"200": 6}))
    assert fed.counters.values("http") == {"200": 6, "500": 2}


def test_label_values_without_end_are_counted_together() -> None:
    fed = Fed()
    fed.take(page(http={str(n): 1 for n in range(MAX_VALUES)}))
    for n in range(1, 30):
        fed.take(page(http={str(n): 1 for n in range(MAX_VALUES + 100 * n)}))
    values = fed.counters.values("http")
    assert len(values) == MAX_VALUES + 1
    assert values[OTHER] == 2900
    assert fed.counters.restarts == 0


def test_numbers_that_no_counter_has_are_left_out() -> None:
    fed = Fed()
    fed.take(page(queries={"a": math.nan, "b": INF, "c": -1, "d": 4}))
    assert fed.counters.values("queries") == {"d": 4}


def test_a_failed_look_changes_nothing() -> None:
    fed = Fed()
    fed.take(page(queries=10))
    assert not fed.take(None)
    assert fed.totals("queries") == [10]


def test_lengths_go_on_over_a_restart_with_other_buckets() -> None:
    fed = Fed()
    fed.take(page(queries=100, lengths=histogram(b100=2, b1000=5, inf=6)))
    fed.take(page(queries=120, lengths=histogram(b100=2, b1000=6, inf=8)))
    assert fed.take(page(queries=1, lengths=histogram(b100=1, b1000=1, b5000=1, inf=1)), after=60)
    total = fed.counters.lengths
    # The two that were longer than 1000 may have been longer than 5000.
    assert total == Lengths(((100.0, 3), (1000.0, 7), (5000.0, 7), (INF, 9)), 90, 9)
    fed.take(page(queries=0, lengths=histogram(b100=1, b1000=2, inf=2)), after=60)
    assert fed.counters.lengths == Lengths(((100.0, 4), (1000.0, 9), (INF, 11)), 110, 11)
    assert len(fed.counters.length_parts) == 2


def test_a_histogram_that_is_late_once_moves_nothing() -> None:
    fed = Fed()
    fed.take(page(queries=100, hits=1, http=1, lengths=histogram(b100=2, b1000=5, inf=6)))
    before = fed.counters.lengths
    fed.take(page(queries=100, hits=1, http=1, lengths=histogram(b100=1, b1000=1, inf=1)))
    fed.take(page(queries=100, hits=1, http=1, lengths=histogram(b1000=6, inf=7)))
    fed.take(page(queries=100, hits=1, http=1))
    assert fed.counters.lengths == before
    fed.take(page(queries=100, hits=1, http=1, lengths=histogram(b100=2, b1000=6, inf=7)))
    assert fed.counters.lengths == Lengths(((100.0, 2), (1000.0, 6), (INF, 7)), 70, 7)


def test_buckets_that_changed_for_good_go_on_without_a_jump() -> None:
    fed = Fed()
    fed.take(page(queries=100, hits=1, http=1, lengths=histogram(b100=2, b1000=5, inf=6)))
    for _ in range(20):
        fed.take(page(queries=100, hits=1, http=1, lengths=histogram(b100=2, b500=4, inf=7)))
    fed.take(page(queries=100, hits=1, http=1, lengths=histogram(b100=2, b500=5, inf=8)))
    total = fed.counters.lengths
    assert total is not None
    assert (total.count, total.sum) == (7, 70)
    assert fed.counters.restarts == 0


def test_histograms_that_are_none_are_left_out() -> None:
    for broken in (
        Lengths((), 0, 0),
        Lengths(((100.0, 1),), 1, 1),
        Lengths(((100.0, 2), (INF, 1)), 1, 1),
        Lengths(((100.0, 1), (50.0, 1), (INF, 1)), 1, 1),
        Lengths(((100.0, math.nan), (INF, 1)), 1, 1),
        Lengths(((INF, 1),), math.nan, 1),
        Lengths((*((float(n), 1.0) for n in range(300)), (INF, 1.0)), 1, 1),
    ):
        fed = Fed()
        fed.take(page(queries=1, lengths=broken))
        assert fed.counters.lengths is None


def test_buckets_that_change_with_each_restart_are_bounded() -> None:
    fed = Fed()
    for bound in range(1, 40):
        lengths = Lengths(((float(bound), 1.0), (INF, 2.0)), 20, 2)
        fed.take(page(started=1000.0 * bound, queries=1, lengths=lengths), after=60)
    total = fed.counters.lengths
    assert total is not None
    assert (total.count, total.sum) == (78, 780)
    assert len(fed.counters.length_parts) <= 9


_PAGES = st.lists(
    st.one_of(
        st.none(),
        st.fixed_dictionaries(
            {}, optional={name: st.integers(0, 1000).map(float) for name in ("queries", "hits", "finished")}
        ),
    ),
    max_size=30,
)


@given(_PAGES, st.sampled_from([1.0, 20.0]))
def test_no_total_ever_falls(pages: list[dict[str, float] | None], step: float) -> None:
    fed = Fed()
    names: tuple[Count, ...] = ("queries", "hits", "finished")
    last = [0.0] * 3
    for counts in pages:
        fed.take(None if counts is None else page(**counts), step)  # type: ignore[arg-type]
        now = [total or 0.0 for total in fed.totals(*names)]
        assert all(high >= low for high, low in zip(now, last, strict=True))
        last = now


_HISTOGRAMS = st.lists(
    st.tuples(st.sampled_from([(100.0,), (100.0, 1000.0), (50.0, 2000.0)]), st.lists(st.integers(0, 9), min_size=3)),
    max_size=20,
)


@given(_HISTOGRAMS, st.sampled_from([1.0, 20.0]))
def test_no_bucket_ever_falls_and_each_holds_the_smaller_ones(
    pages: list[tuple[tuple[float, ...], list[int]]], step: float
) -> None:
    fed = Fed()
    highest: dict[float, float] = {}
    for bounds, gains in pages:
        bounds = (*bounds, INF)
        counts = [float(sum(gains[: n + 1])) for n in range(len(bounds))]
        fed.take(page(lengths=Lengths(tuple(zip(bounds, counts, strict=True)), counts[-1], counts[-1])), step)
        total = fed.counters.lengths
        assert total is not None
        shown = [count for _, count in total.buckets]
        assert shown == sorted(shown)
        for bound, count in total.buckets:
            assert count >= highest.get(bound, 0.0)
            highest[bound] = count
