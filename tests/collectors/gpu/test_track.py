"""Which readings of a memory are believed, and for how long."""

import pytest

from oomcast_collectors.gpu.driver import Memory
from oomcast_collectors.gpu.track import Track

GIB = 1 << 30
SOUND = Memory(80 * GIB, 30 * GIB, 49 * GIB, GIB)


@pytest.fixture
def track() -> Track:
    return Track(60.0, 0.98)


def test_a_sound_reading_is_shown_while_it_is_fresh(track: Track) -> None:
    track.take(100.0, SOUND)
    assert track.fresh(100.5) == SOUND
    assert track.fresh(101.1) is None


def test_a_slow_driver_is_given_twice_its_period_more(track: Track) -> None:
    for i in range(10):
        track.take(100.0 + 3 * i, SOUND)
    track.view(127.0)
    assert track.fresh(133.0) == SOUND
    assert track.fresh(134.5) is None


@pytest.mark.parametrize(
    "reading",
    [
        pytest.param(Memory(0, 0, 0, 0), id="no total"),
        pytest.param(Memory(80 * GIB, 90 * GIB, 0, GIB), id="more used than there is"),
        pytest.param(Memory(80 * GIB, 30 * GIB, 30 * GIB, GIB), id="parts that do not add up"),
        pytest.param(Memory(80 * GIB, 81 * GIB, -GIB, None), id="less than nothing free"),
        pytest.param(Memory(80 * GIB, 2**64 - 1, 49 * GIB, GIB), id="all ones"),
    ],
)
def test_what_cannot_be_true_is_dropped_and_counted(track: Track, reading: Memory) -> None:
    track.take(100.0, SOUND)
    assert not track.take(100.1, reading)
    assert track.invalid == 1
    assert track.fresh(100.2) == SOUND
    view = track.view(100.2)
    assert view is not None
    assert view.peak == SOUND.used


def test_parts_may_be_off_by_a_little(track: Track) -> None:
    track.take(100.0, Memory(143771 << 20, 32362 << 20, 110796 << 20, 614 << 20))
    assert track.invalid == 0


def test_another_total_is_garbage_until_it_has_lasted(track: Track) -> None:
    track.take(100.0, SOUND)
    smaller = Memory(70 * GIB, 30 * GIB, 39 * GIB, GIB)
    for i in range(30):
        track.take(100.1 + i / 10, smaller)
    assert track.invalid == 30
    track.take(103.15, smaller)
    assert track.fresh(103.2) == smaller
    track.take(103.3, SOUND)
    assert track.fresh(103.4) == smaller


def test_a_total_that_flickers_is_never_believed(track: Track) -> None:
    track.take(100.0, SOUND)
    for i in range(100):
        track.take(100.1 + i / 10, Memory((70 + i % 2) * GIB, 30 * GIB, (39 + i % 2) * GIB, GIB))
    assert track.fresh(110.0) is None
    assert track.invalid == 100


def test_a_total_that_comes_and_goes_is_never_believed(track: Track) -> None:
    for i in range(50):
        track.take(100.0 + i / 5, SOUND)
        track.take(100.1 + i / 5, Memory(70 * GIB, 30 * GIB, 39 * GIB, GIB))
    assert track.fresh(110.0) == SOUND
    assert track.invalid == 50


def test_what_was_lost_is_not_shown(track: Track) -> None:
    track.take(100.0, SOUND)
    track.lose()
    assert track.fresh(100.1) is None
    assert track.view(100.1) is None
    assert track.ever_read
