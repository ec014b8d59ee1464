"""Sums of a sliding window."""

import sys

from fakes import FakeClock
from oomcast_collectors.slo.window import Window


def test_what_is_older_than_the_window_is_not_in_it() -> None:
    clock, window = FakeClock(), Window(600.0, 2)
    for _ in range(100):
        window.step(clock.mono)
        window.totals[0] += 1
        clock.advance(10)
    assert window.recent(clock.mono) == [60, 0]
    clock.advance(590)
    assert window.recent(clock.mono) == [1, 0]
    clock.advance(10)
    assert window.recent(clock.mono) == [0, 0]


def test_everything_since_the_beginning_is_in_a_window_that_is_not_full() -> None:
    window = Window(600.0, 1)
    window.step(1000.0)
    window.totals[0] += 5
    assert window.recent(1000.0) == [5]
    assert window.recent(1599.0) == [5]


def test_it_reaches_back_a_step_more_at_most() -> None:
    """With a look a second and one thing each: 600 in 600 seconds, and 10 in a step."""
    window = Window(600.0, 1)
    for second in range(5000):
        window.step(float(second))
        window.totals[0] += 1
        if second > 700:
            assert 600 <= window.recent(float(second))[0] <= 611


def test_memory_is_bounded_by_the_steps() -> None:
    window = Window(3600.0, 20)
    for second in range(20_000):
        window.step(second / 2)
        window.totals[second % 20] += 1
    entries = window._entries
    assert len(entries) <= 62
    assert sum(sys.getsizeof(sums) for _, sums in entries) < 20_000
