"""A model load is no way to exhaustion, a leak is one; what is close is told ten times a second."""

import pytest

from oomcast_collectors.gpu.driver import Memory
from oomcast_collectors.gpu.outlook import Outlook
from oomcast_collectors.gpu.track import Track

GIB = 1 << 30
USABLE = 79 * GIB


class Life:
    """A GPU that is read ten times and looked at once a second. newest: when the newest process came."""

    def __init__(self) -> None:
        self.track = Track(60.0, 0.98)
        self.outlook = Outlook(self.track, "gpu_memory", "GPU-1", 600.0)
        self.now = 1000.0
        self.newest: float | None = None
        self.told = 0
        self.pushed = 0

    def hold(self, seconds: int, used: float, rate: float = 0.0) -> None:
        """used, rate: GiB, GiB/s."""
        self.told = self.pushed = 0
        for i in range(10 * seconds):
            value = round((used + rate * i / 10) * GIB)
            self.track.take(self.now, Memory(80 * GIB, value, USABLE - value, GIB))
            self.pushed += self.outlook.due(self.now) and self.outlook.level(self.now) is not None
            self.now += 0.1
            if i % 10 == 9:
                self.told += self.outlook.look(self.now, self.newest) is not None


@pytest.fixture
def life() -> Life:
    return Life()


def test_an_empty_gpu_has_no_forecast(life: Life) -> None:
    life.hold(120, 0.5)
    assert life.told == 0


def test_a_load_from_empty_has_none_until_memory_stands(life: Life) -> None:
    life.hold(10, 0.5)
    life.hold(35, 0.5, 2.0)
    assert life.told == 0
    life.hold(60, 70.5)
    assert life.told == 0
    life.hold(30, 70.5)
    assert life.told > 10


def test_a_new_process_on_a_gpu_that_is_in_use_may_load_too(life: Life) -> None:
    life.hold(120, 30)
    assert life.told == 120
    life.newest = life.now
    life.hold(20, 30, 1.0)
    assert life.told == 0
    life.hold(90, 50)
    assert life.told > 0


def test_a_ramp_of_an_old_process_is_told_ten_times_a_second_when_it_is_close(life: Life) -> None:
    life.newest = life.now - 3600
    life.hold(70, 18)
    assert (life.told, life.pushed) == (70, 0)
    life.hold(20, 18, 0.5)
    assert (life.told, life.pushed) == (20, 0)
    life.hold(40, 28, 1.0)
    assert life.told == 40
    assert life.pushed > 180  # of 400: the last 20 seconds, within a minute of the end


def test_a_rise_that_never_comes_to_rest_counts_after_the_grace(life: Life) -> None:
    life.hold(10, 0.5)
    life.hold(590, 5, 0.1)
    assert life.told == 0
    life.hold(50, 64, 0.1)
    assert life.told > 30


def test_without_readings_there_is_no_level(life: Life) -> None:
    life.hold(30, 30)
    assert life.outlook.level(life.now) is not None
    life.track.lose()
    assert life.outlook.level(life.now) is None
    assert life.outlook.look(life.now, None) is None
