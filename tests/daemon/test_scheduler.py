"""The real APScheduler with real threads; what jumps is the wall clock that it and we read."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, tzinfo
from itertools import pairwise

import apscheduler.schedulers.base
import pytest

from oomcast.contract import Event, Facts
from oomcast.runner import Runner
from oomcast.scheduler import Scheduler

LOG = logging.getLogger("oomcast.test")


class SetClock:
    """The machine's clock, whose time of day somebody sets."""

    def __init__(self) -> None:
        self.offset = 0.0

    def time(self) -> float:
        return datetime.now().timestamp() + self.offset

    def monotonic(self) -> float:
        return time.monotonic()


class Nowhere:
    def accept(self, source: str, facts: Facts, began: float) -> None:
        pass

    def note(self, events: Sequence[Event]) -> None:
        raise AssertionError("no run is late here")

    def withdraw(self, source: str) -> None:
        pass


class Noted:
    """Notes when its runs begin. does: what each run does."""

    def __init__(self, does: Callable[[], object] = lambda: None) -> None:
        self.starts: list[float] = []
        self._does = does

    def collect(self) -> Facts:
        self.starts.append(time.monotonic())
        self._does()
        return Facts()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    clock = SetClock()

    class Set(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Set":
            return cls.fromtimestamp(clock.time(), tz)

    monkeypatch.setattr(apscheduler.schedulers.base, "datetime", Set)
    return clock


@pytest.fixture
def scheduler(clock: SetClock) -> Iterator[Scheduler]:
    scheduler = Scheduler(clock, LOG)
    scheduler.start()
    yield scheduler
    scheduler.stop()


def add(
    scheduler: Scheduler,
    clock: SetClock,
    collector: Noted,
    interval: float = 0.2,
    timeout: float = 5,
    name: str = "test",
) -> Runner:
    runner = Runner(name, collector, timeout, Nowhere(), clock, LOG)
    scheduler.add(runner, interval)
    return runner


def spend(seconds: float, scheduler: Scheduler) -> None:
    """Lets time pass, with the daemon's tick of each second (here four in a second)."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.25)
        scheduler.tick()


def test_runs_begin_at_once_and_keep_their_interval(scheduler: Scheduler, clock: SetClock) -> None:
    collector, began = Noted(), time.monotonic()
    add(scheduler, clock, collector)
    spend(2, scheduler)
    assert collector.starts[0] - began < 0.5
    assert 8 <= len(collector.starts) <= 11
    assert scheduler.age() < 2


def test_all_are_on_one_phase(scheduler: Scheduler, clock: SetClock) -> None:
    first, second = Noted(), Noted()
    add(scheduler, clock, first, name="first")
    time.sleep(0.13)
    add(scheduler, clock, second, name="second")
    spend(1.5, scheduler)
    apart = [min(abs(at - other) for other in first.starts) for at in second.starts[2:]]
    assert sorted(apart)[len(apart) // 2] < 0.05


def test_one_that_hangs_keeps_nobody_and_its_runs_are_left_out(scheduler: Scheduler, clock: SetClock) -> None:
    go = threading.Event()
    stuck, well = Noted(lambda: go.wait(10)), Noted()
    hung = add(scheduler, clock, stuck, timeout=0.5, name="stuck")
    add(scheduler, clock, well, name="well")
    spend(2, scheduler)
    assert hung.stuck
    assert hung.outcomes["timeout"] == 1
    assert 5 <= hung.overruns <= 10
    assert len(well.starts) >= 8
    go.set()
    spend(1, scheduler)
    # What was left out is not made up for.
    assert len(stuck.starts) <= 7
    assert hung.state == "success"


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_jump_of_the_wall_clock_neither_stops_nor_bursts_the_schedule(
    scheduler: Scheduler, clock: SetClock, jump: float, caplog: pytest.LogCaptureFixture
) -> None:
    collector = Noted()
    runner = add(scheduler, clock, collector)
    spend(1, scheduler)
    jumped = time.monotonic()
    clock.offset = jump
    spend(3, scheduler)
    since = [at for at in collector.starts if at > jumped]
    assert since[0] - jumped < 2
    assert 10 <= len(since) <= 17
    assert max(after - before for before, after in pairwise(collector.starts)) < 2
    assert runner.outcomes["timeout"] == 0
    assert runner.outcomes["success"] == len(collector.starts)
    assert runner.duration is not None
    assert 0 <= runner.duration < 0.2
    assert scheduler.age() < 2
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "the wall clock jumped; the schedule starts anew"
    ]


def test_small_corrections_of_the_clock_change_nothing(scheduler: Scheduler, clock: SetClock) -> None:
    collector = Noted()
    add(scheduler, clock, collector)
    for _ in range(8):
        clock.offset += 0.02
        spend(0.25, scheduler)
    assert 8 <= len(collector.starts) <= 12


def test_what_was_removed_runs_no_more_and_its_name_is_free(scheduler: Scheduler, clock: SetClock) -> None:
    go = threading.Event()
    stuck = Noted(lambda: go.wait(10))
    add(scheduler, clock, stuck)
    spend(0.5, scheduler)
    scheduler.remove("test")
    successor = Noted()
    add(scheduler, clock, successor)
    spend(1, scheduler)
    assert len(stuck.starts) == 1
    assert len(successor.starts) >= 4
    go.set()


def test_a_restart_runs_everybody_now(scheduler: Scheduler, clock: SetClock) -> None:
    collector = Noted()
    add(scheduler, clock, collector, interval=3600)
    spend(0.5, scheduler)
    assert len(collector.starts) == 1
    scheduler.restart()
    spend(0.5, scheduler)
    assert len(collector.starts) == 2


def test_a_stuck_loop_grows_old_and_does_not_keep_stop(clock: SetClock) -> None:
    scheduler = Scheduler(clock, LOG)
    scheduler.start()
    # The loop's own thread waits in here for ever, as it would for a lock that never comes free.
    scheduler._scheduler.add_job(threading.Event().wait, executor="heartbeat")
    time.sleep(1.5)
    assert scheduler.age() > 1.2
    began = time.monotonic()
    scheduler.stop()
    assert time.monotonic() - began < 1
