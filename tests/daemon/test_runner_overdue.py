"""Runs that are given up: too late, retired, or in the middle of publishing."""

import logging
import threading

import pytest

from daemon.test_runner import LOG, Published, Steps, counts, fine, logged, made
from fakes import FakeClock
from oomcast.contract import Event, Facts
from oomcast.runner import Runner


class Hung:
    """A collector in a thread of its own that waits until it is let go, however often it runs."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.facts = fine

    def collect(self) -> Facts:
        self.entered.release()
        assert self.go.acquire(timeout=10)
        return self.facts()


def hung() -> tuple[Runner, FakeClock, Published, Hung, threading.Thread]:
    clock, sink, collector = FakeClock(), Published(), Hung()
    runner = Runner("test", collector, 5, sink, clock, LOG)
    thread = threading.Thread(target=runner.run)
    thread.start()
    assert collector.entered.acquire(timeout=10)
    return runner, clock, sink, collector, thread


def test_an_overdue_run_is_given_up_once_and_its_late_result_dropped(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    runner, clock, sink, collector, thread = hung()
    clock.advance(4.999)
    runner.expire()
    assert (runner.state, runner.stuck) == (None, False)
    clock.advance(0.001)
    runner.expire()
    assert runner.stuck
    clock.advance(100)
    runner.expire()
    assert counts(runner) == (0, 0, 1, 0)
    assert (runner.state, runner.duration, sink.withdrawn) == ("timeout", None, 1)
    collector.go.release()
    thread.join(10)
    assert not runner.stuck
    assert sink.facts is None
    assert (runner.state, runner.last_success) == ("timeout", None)
    assert counts(runner) == (0, 0, 1, 0)
    assert logged(caplog) == [("WARNING", "collector failed: no result within 5 s; still waiting for it to return")]

    collector.go.release()
    runner.run()
    assert counts(runner) == (1, 0, 1, 0)
    assert sink.facts is not None


def test_a_jump_of_the_wall_clock_is_no_timeout_and_no_duration() -> None:
    runner, clock, _, collector, thread = hung()
    clock.advance(1)
    for jump in (3600, -7200):
        clock.jump(jump)
        runner.expire()
    collector.go.release()
    thread.join(10)
    assert (runner.state, runner.duration, runner.last_success) == ("success", 1, 1_700_000_000 + 1 - 3600)


def test_nothing_comes_of_a_run_that_returns_after_its_retirement() -> None:
    runner, _, sink, collector, thread = hung()
    runner.retire()
    assert sink.withdrawn == 1
    collector.go.release()
    thread.join(10)
    assert sink.facts is None
    assert counts(runner) == (0, 0, 0, 0)


@pytest.mark.parametrize("give_up", ["expire", "retire"])
def test_a_run_that_is_given_up_while_it_publishes_leaves_nothing(give_up: str) -> None:
    runner, clock, sink = made(fine)

    def given_up() -> None:
        clock.advance(5)
        getattr(runner, give_up)()
        assert sink.withdrawn == 1

    sink.hold = given_up
    runner.run()
    assert sink.facts is None
    assert counts(runner) == (0, 0, int(give_up == "expire"), 0)
    assert runner.last_success is None


def test_runs_expiries_and_retirement_in_any_order_count_each_run_once() -> None:
    # Real threads, as many orders as there is time for: every run has exactly one outcome.
    clock, sink = FakeClock(), Published()
    runner = Runner("test", Steps(fine), 0.5, sink, clock, LOG)
    done = threading.Event()

    def expire() -> None:
        while not done.is_set():
            clock.mono += 0.2
            runner.expire()

    thread = threading.Thread(target=expire)
    thread.start()
    for _ in range(3000):
        runner.run()
    done.set()
    thread.join(10)
    assert sum(runner.outcomes.values()) == 3000
    assert (sink.facts is not None) == (runner.state == "success")


@pytest.mark.parametrize(("retired", "noted"), [(False, ["a kill"]), (True, [])])
def test_what_a_late_run_saw_happen_is_not_lost_unless_it_was_replaced(retired: bool, noted: list[str]) -> None:
    runner, clock, sink, collector, thread = hung()
    collector.facts = lambda: Facts(events=[Event("oom_kill", 0, 0, "a kill")])
    clock.advance(6)
    runner.expire()
    if retired:
        runner.retire()
    collector.go.release()
    thread.join(10)
    assert [event.summary for event in sink.noted] == noted
    assert sink.facts is None
