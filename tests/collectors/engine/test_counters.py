"""Counters over restarts, late series and label values without end."""

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from collectors.engine.pages import Fed, page
from oomcast_collectors.engine.counters import MAX_VALUES, OTHER, SETTLE
from oomcast_collectors.engine.reading import Count

INF = math.inf


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


def test_an_engine_of_another_kind_counts_from_zero_even_where_it_counts_more() -> None:
    fed = Fed()
    fed.take(page(queries=1000, hits=500))
    assert fed.take(replace(page(queries=1200, preemptions=1), kind="sglang"))
    assert fed.totals("queries", "hits", "preemptions") == [2200, 500, 1]
    assert not fed.take(replace(page(queries=1210, preemptions=1), kind="sglang"))
    assert (fed.counters.restarts, fed.totals("queries")) == (1, [2210])


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
