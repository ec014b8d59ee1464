"""Counters over the lives of several children."""

import math

import pytest

from oomcast_collectors.ebpf import metrics
from oomcast_collectors.ebpf.totals import Totals
from oomcast_collectors.ebpf.wire import Row

CALLS = metrics.ALLOC_CALLS.name
TARGETS = metrics.TARGETS.name


def values(totals: Totals) -> dict[str, tuple[float, float | None]]:
    """Value and created time by what the scrape calls the series."""
    samples = totals.samples()
    return {sample.series.head.strip(): (sample.value, sample.created) for sample in samples}  # type: ignore[misc] # numbers


def calls(value: float, process: str = "a") -> Row:
    return Row(CALLS, (process, "brk"), value)


def test_a_counter_goes_on_after_a_restart() -> None:
    totals = Totals()
    totals.begin()
    totals.take([calls(5)], 100)
    totals.take([calls(7)], 101)
    totals.begin()
    assert values(totals) == {f'{CALLS}{{kind="brk",process="a"}}': (7, 100)}
    totals.take([calls(0)], 110)
    totals.take([calls(3)], 111)
    totals.begin()
    totals.take([calls(1)], 120)
    assert values(totals) == {f'{CALLS}{{kind="brk",process="a"}}': (11, 100)}


def test_a_counter_that_falls_stays() -> None:
    totals = Totals()
    for value in (5, 3, 6):
        totals.take([calls(value)], 100)
    assert list(values(totals).values()) == [(6, 100)]


def test_what_is_gone_of_a_child_stays_when_it_comes_again() -> None:
    totals = Totals()
    totals.take([calls(5), calls(1, "b")], 100)
    totals.take([calls(6)], 101)
    totals.begin()
    totals.take([calls(2, "b")], 102)
    assert sorted(value for value, _ in values(totals).values()) == [3, 6]


def test_gauges_are_of_the_last_report() -> None:
    totals = Totals()
    totals.take([Row(TARGETS, ("a",), 2), Row(TARGETS, ("b",), 1)], 100)
    totals.take([Row(TARGETS, ("b",), 4)], 101)
    assert values(totals) == {f'{TARGETS}{{process="b"}}': (4, None)}
    totals.begin()
    assert values(totals) == {}


def test_rows_of_one_series_are_added_up() -> None:
    totals = Totals()
    totals.take([calls(5), calls(2), Row(TARGETS, ("a",), 1), Row(TARGETS, ("a",), 1)], 100)
    assert sorted(value for value, _ in values(totals).values()) == [2, 7]


@pytest.mark.parametrize(
    "row",
    [
        Row("oomcast_unknown_total", ("a", "brk"), 1),
        Row(CALLS, ("a",), 1),
        Row(CALLS, ("a", "brk", "c"), 1),
        Row(CALLS, ("a", "brk"), math.nan),
        Row(CALLS, ("a", "brk"), math.inf),
        Row(CALLS, ("a", "brk"), -1),
        Row(CALLS, ("a", "brk"), True),
        Row(CALLS, ("a", "brk"), "1"),  # type: ignore[arg-type] # what a child may say
        Row(CALLS, ("a", "brk"), None),  # type: ignore[arg-type] # what a child may say
    ],
)
def test_a_row_that_is_none_costs_the_report(row: Row) -> None:
    totals = Totals()
    totals.take([calls(5)], 100)
    with pytest.raises(ValueError, match="not a series"):
        totals.take([calls(6), row], 101)
    assert list(values(totals).values()) == [(5, 100)]


def test_there_is_an_end_to_series() -> None:
    totals = Totals()
    with pytest.raises(ValueError, match="more than 20000 series"):
        totals.take([Row(TARGETS, (str(i),), 1) for i in range(20_001)], 100)
    assert values(totals) == {}
    totals.take([calls(5)], 101)
    assert list(values(totals).values()) == [(5, 101)]
