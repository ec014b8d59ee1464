"""Peaks, steps, gaps, exhaustion and the plateau, over readings at known times."""

from collections.abc import Iterable

import pytest

from oomcast_collectors.gpu.driver import Memory
from oomcast_collectors.gpu.window import MemoryWindow

GIB = 1 << 30
TOTAL, RESERVED = 80 * GIB, 1 * GIB
USABLE = TOTAL - RESERVED


def memory(used: int) -> Memory:
    return Memory(TOTAL, used, TOTAL - RESERVED - used, RESERVED)


def feed(window: MemoryWindow, readings: Iterable[tuple[float, int]]) -> list[float]:
    """Gives the times at which there was news."""
    return [at for at, used in readings if window.add(at, memory(used))]


def steady(start: float, seconds: float, used: int, period: float = 0.02) -> list[tuple[float, int]]:
    return [(start + i * period, used) for i in range(round(seconds / period))]


@pytest.fixture
def window() -> MemoryWindow:
    return MemoryWindow(15.0, 0.98)


def test_there_is_nothing_before_the_first_reading(window: MemoryWindow) -> None:
    assert window.view(100.0) is None
    assert window.plateau is None


def test_a_single_reading_has_no_period_and_no_step(window: MemoryWindow) -> None:
    window.add(100.0, memory(40 * GIB))
    view = window.view(100.0)
    assert view is not None
    assert (view.peak, view.free_min, view.step, view.period) == (40 * GIB, 39 * GIB, 0, None)


@pytest.mark.parametrize("at", [100.01, 100.99, 101.0, 101.5, 113.3])
def test_one_reading_is_enough_for_a_peak(window: MemoryWindow, at: float) -> None:
    readings = sorted([*steady(100.0, 14, 18 * GIB), (at, 60 * GIB)])
    feed(window, readings)
    view = window.view(114.0)
    assert view is not None
    assert (view.peak, view.free_min, view.step) == (60 * GIB, 19 * GIB, 42 * GIB)


def test_a_peak_stays_for_the_window_and_leaves_within_a_second_of_it(window: MemoryWindow) -> None:
    feed(window, [*steady(100.0, 1, 18 * GIB), (101.0, 60 * GIB)])
    peaks = {}
    for second in range(20):
        feed(window, steady(101.02 + second, 1, 18 * GIB))
        view = window.view(102.0 + second)
        peaks[1 + second] = view.peak // GIB if view else None
    assert [peaks[after] for after in (1, 9, 15)] == [60, 60, 60]
    assert [peaks[after] for after in (17, 18, 20)] == [18, 18, 18]


def test_two_scrapers_see_the_same_peak(window: MemoryWindow) -> None:
    feed(window, [*steady(100.0, 1, 18 * GIB), (101.0, 60 * GIB), *steady(101.02, 1, 18 * GIB)])
    assert window.view(102.0) == window.view(102.0)


def test_the_period_is_the_mean_and_the_gap_the_largest(window: MemoryWindow) -> None:
    feed(window, [*steady(100.0, 2, GIB), *steady(102.5, 2, GIB)])
    view = window.view(104.5)
    assert view is not None
    assert view.period == pytest.approx(4.48 / 199, rel=0.01)
    assert view.largest_gap == pytest.approx(0.52)


def test_the_gap_that_is_still_open_counts(window: MemoryWindow) -> None:
    feed(window, steady(100.0, 1, GIB))
    view = window.view(105.0)
    assert view is not None
    assert view.largest_gap == pytest.approx(4.02)


def test_a_fall_is_no_step(window: MemoryWindow) -> None:
    feed(window, [(100.0, 60 * GIB), (100.02, 20 * GIB), (100.04, 21 * GIB)])
    view = window.view(100.1)
    assert view is not None
    assert view.step == GIB


def test_only_a_peak_well_above_the_one_told_is_news(window: MemoryWindow) -> None:
    feed(window, steady(100.0, 1, 20 * GIB))
    assert window.view(101.0)
    assert feed(window, [(101.0, 20 * GIB), (101.02, 20 * GIB + USABLE // 200)]) == []
    assert feed(window, [(101.04, 22 * GIB)]) == [101.04]
    assert window.view(101.05)
    assert feed(window, [(101.06, 22 * GIB)]) == []


FULL = int(0.98 * USABLE) + 1


@pytest.mark.parametrize(
    ("spells", "seconds", "episodes"),
    [
        pytest.param([(FULL, 0.4)], 0.4, 0, id="too short to count"),
        pytest.param([(FULL, 0.6)], 0.6, 1, id="long enough"),
        pytest.param([(FULL - 2, 2.0)], 0.0, 0, id="just below"),
        pytest.param([(FULL, 3.0)], 3.0, 1, id="one episode counts once"),
        pytest.param([(FULL, 0.6), (GIB, 0.1), (FULL, 0.7)], 1.3, 2, id="two episodes"),
        pytest.param([(FULL, 0.3), (GIB, 0.1), (FULL, 0.3)], 0.6, 0, id="two halves make no episode"),
        pytest.param([(USABLE, 1.0)], 1.0, 1, id="to the brim"),
    ],
)
def test_time_exhausted(window: MemoryWindow, spells: list[tuple[int, float]], seconds: float, episodes: int) -> None:
    at = 100.0
    for used, length in [(GIB, 0.5), *spells, (GIB, 0.5)]:
        feed(window, steady(at, length, used))
        at += length
    assert window.exhausted_seconds == pytest.approx(seconds, abs=0.05)
    assert window.exhaustions == episodes


def test_an_episode_is_news_when_it_counts(window: MemoryWindow) -> None:
    feed(window, steady(100.0, 0.1, FULL))
    assert feed(window, steady(100.1, 2, FULL)) == [pytest.approx(100.5)]


def test_nobody_knows_what_was_in_a_gap(window: MemoryWindow) -> None:
    feed(window, [*steady(100.0, 0.4, FULL), *steady(160.0, 0.4, FULL)])
    assert window.exhausted_seconds == pytest.approx(0.76, abs=0.05)
    assert window.exhaustions == 0


def test_v1_has_no_reserved_and_its_used_counts_against_the_total(window: MemoryWindow) -> None:
    for at, _ in steady(100.0, 1, 0):
        window.add(at, Memory(TOTAL, int(0.985 * TOTAL), TOTAL - int(0.985 * TOTAL), None))
    assert window.usable == TOTAL
    assert window.exhaustions == 1


def test_a_plateau_is_found_after_a_minute_and_stands_through_bursts(window: MemoryWindow) -> None:
    feed(window, steady(100.0, 59, 70 * GIB, 0.1))
    assert window.plateau is None
    at = 159.0
    feed(window, steady(at, 22, 70 * GIB, 0.1))
    assert window.plateau == 70 * GIB
    feed(window, [(182.0 + i * 0.1, (78 if i % 10 < 7 else 70) * GIB) for i in range(300)])
    assert window.plateau == 70 * GIB


def test_a_ratchet_takes_the_plateau_along(window: MemoryWindow) -> None:
    feed(window, [(100.0 + i * 0.1, 40 * GIB + i * GIB // 2000) for i in range(3000)])
    assert window.plateau is not None
    assert 41 * GIB < window.plateau < 41.6 * GIB


def test_a_ramp_leaves_the_plateau_where_it_was(window: MemoryWindow) -> None:
    feed(window, [(100.0 + i * 0.1, 18 * GIB) for i in range(800)])
    feed(window, [(180.0 + i * 0.1, 18 * GIB + i * GIB // 10) for i in range(500)])
    assert window.plateau == 18 * GIB


def test_a_plateau_ends_when_memory_comes_free(window: MemoryWindow) -> None:
    feed(window, [(100.0 + i * 0.1, 70 * GIB) for i in range(800)])
    feed(window, [(180.0 + i * 0.1, 2 * GIB) for i in range(250)])
    assert window.plateau is None


def test_after_an_interruption_nothing_old_is_left_but_the_counters(window: MemoryWindow) -> None:
    feed(window, steady(100.0, 61, FULL, 0.1))
    assert window.exhaustions == 1
    window.interrupt()
    assert window.view(161.0) is None
    assert window.plateau is None
    feed(window, [(300.0, GIB), (300.02, GIB)])
    view = window.view(300.03)
    assert view is not None
    assert (view.peak, view.step) == (GIB, 0)
    assert view.largest_gap == pytest.approx(0.02)
    assert window.exhaustions == 1
