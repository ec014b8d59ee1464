"""Memory that is read every few seconds or minutes: from a dcgm-exporter, by the settings, or of a slow driver."""

import pytest

from oomcast_collectors.gpu.driver import Memory
from oomcast_collectors.gpu.track import Track
from oomcast_collectors.gpu.window import MemoryWindow

GIB = 1 << 30
SOUND = Memory(80 * GIB, 30 * GIB, 49 * GIB, GIB)
FULL = Memory(80 * GIB, 79 * GIB, 0, GIB)


def test_the_first_reading_is_shown_until_the_next_is_due() -> None:
    track = Track(60.0, 0.98, 5.0)
    track.take(100.0, SOUND)
    assert track.fresh(105.5) == SOUND
    assert track.fresh(111.1) is None


def test_a_slow_driver_needs_nobody_to_look_for_its_readings_to_be_shown() -> None:
    track = Track(60.0, 0.98, 0.02)
    for i in range(3):
        track.take(100.0 + 3 * i, SOUND)
    assert track.fresh(112.9) == SOUND
    assert track.fresh(113.1) is None


def test_a_long_silence_is_no_period() -> None:
    track = Track(60.0, 0.98, 0.02)
    track.take(100.0, SOUND)
    track.take(400.0, SOUND)
    assert track.fresh(420.0) == SOUND
    assert track.fresh(421.1) is None
    track.take(500.0, SOUND)
    track.take(500.02, SOUND)
    assert track.fresh(501.1) is None


@pytest.mark.parametrize("period", [1.5, 5.0, 30.0, 300.0])
def test_time_exhausted_is_counted_at_any_pace(period: float) -> None:
    window = MemoryWindow(60.0, 0.98)
    news = [window.add(100.0 + i * period, FULL if 10 <= i <= 20 else SOUND) for i in range(30)]
    assert window.exhausted_seconds == pytest.approx(10 * period)
    assert window.exhaustions == 1
    assert news[11]


def test_a_gap_that_is_long_for_the_pace_is_still_one() -> None:
    window = MemoryWindow(60.0, 0.98)
    for at in (100.0, 105.0, 110.0, 125.0, 130.0):
        window.add(at, FULL)
    assert window.exhausted_seconds == pytest.approx(10.0)


@pytest.mark.parametrize("now", [110.0, 115.0, 119.9])
def test_a_window_that_is_shorter_than_the_period_has_the_last_reading(now: float) -> None:
    window = MemoryWindow(1.0, 0.98)
    window.add(100.0, FULL)
    window.add(110.0, SOUND)
    view = window.view(now)
    assert view is not None
    assert (view.peak, view.free_min, view.period) == (30 * GIB, 49 * GIB, None)
    assert view.largest_gap == 10.0
