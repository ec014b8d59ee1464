import pytest

from fakes import FakeClock
from oomcast.contract import Event
from oomcast_collectors.gpu.surge import CopySurge

PERIOD = 0.2


class Bench:
    """A GPU whose copy utilisation is read five times a second."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.surge = CopySurge("GPU-0", self.clock)

    def feed(self, ratio: float, seconds: float = PERIOD, period: float = PERIOD) -> list[Event]:
        """The ratio for so long; the events of it."""
        events = []
        for _ in range(round(seconds / period)):
            self.clock.advance(period)
            event = self.surge.add(self.clock.monotonic(), ratio)
            if event is not None:
                events.append(event)
        return events


@pytest.fixture
def bench() -> Bench:
    return Bench()


def baselines(events: list[Event]) -> list[float]:
    return [float(event.fields["baseline"]) for event in events]


def test_four_times_the_baseline_is_an_event_and_less_is_none(bench: Bench) -> None:
    assert bench.feed(0.1, 30) == []
    assert bench.feed(0.39) == []
    (event,) = bench.feed(0.4)
    assert (event.kind, dict(event.fields)) == ("gpu_copy_surge", {"gpu": "GPU-0", "ratio": 0.4, "baseline": 0.1})
    assert (event.time, event.monotonic) == (bench.clock.time(), bench.clock.monotonic())
    assert event.summary == "copy utilisation of GPU GPU-0 rose to 40%, 4.0 times its baseline of 10%"


def test_an_event_has_the_time_of_its_reading(bench: Bench) -> None:
    bench.feed(0.1, 30)
    taken = bench.clock.monotonic()
    bench.clock.advance(1.5)
    event = bench.surge.add(taken, 0.9)
    assert event is not None
    assert (event.monotonic, event.time) == (taken, bench.clock.time() - 1.5)


@pytest.mark.parametrize("percent", range(5, 26))
def test_whole_percents_tie(percent: int) -> None:
    bench = Bench()
    bench.feed(percent / 100, 30)
    assert bench.feed((4 * percent - 1) / 100) == []
    assert len(bench.feed(4 * percent / 100)) == 1


@pytest.mark.parametrize("idle", [0.0, 0.01, 0.04])
def test_a_gpu_that_idles_needs_twenty_percent(bench: Bench, idle: float) -> None:
    bench.feed(idle, 30)
    assert bench.feed(0.19) == []
    assert baselines(bench.feed(0.2)) == [0.05]


def test_nothing_is_said_without_ten_seconds_of_history(bench: Bench) -> None:
    bench.feed(0.1, 9.8)
    assert bench.feed(1.0) == []
    bench.feed(0.1, 2)
    assert len(bench.feed(1.0)) == 1


def test_few_readings_are_no_history_however_long_it_is(bench: Bench) -> None:
    bench.feed(0.0, 30, period=6)
    assert bench.feed(1.0) == []


def test_the_baseline_is_the_median_of_the_last_minute(bench: Bench) -> None:
    bench.feed(0.08, 300)
    bench.feed(0.2, 29)
    assert baselines(bench.feed(0.8)) == [0.08]
    bench.feed(0.2, 120)
    assert baselines(bench.feed(0.8)) == [0.2]


def test_readings_older_than_a_minute_do_not_count(bench: Bench) -> None:
    bench.feed(0.1, 60)
    bench.clock.advance(61)
    assert bench.feed(1.0) == []


def test_slow_readings_have_a_window_of_a_minute_too(bench: Bench) -> None:
    bench.feed(0.1, 120, period=1)
    bench.feed(0.2, 40, period=1)
    assert baselines(bench.feed(0.8)) == [0.2]


def test_one_event_a_surge_which_ends_below_twice_the_baseline(bench: Bench) -> None:
    bench.feed(0.1, 30)
    assert len(bench.feed(0.5, 2)) == 1
    assert bench.feed(0.2, 2) == []
    assert bench.feed(0.9, 2) == []
    assert bench.feed(0.19) == []
    assert len(bench.feed(0.4)) == 1


def test_the_baseline_stands_still_while_a_surge_lasts(bench: Bench) -> None:
    bench.feed(0.1, 30)
    bench.feed(0.6, 40)
    assert bench.feed(0.1, 2) == []
    assert baselines(bench.feed(0.4)) == [0.1]


def test_what_lasts_longer_than_a_minute_is_the_new_baseline(bench: Bench) -> None:
    bench.feed(0.0, 60)
    assert len(bench.feed(0.22, 300)) == 1
    assert baselines(bench.feed(0.9)) == [0.22]


def test_a_climb_slow_enough_for_its_baseline_is_no_surge(bench: Bench) -> None:
    assert [event for percent in range(5, 100) for event in bench.feed(percent / 100, 5)] == []
