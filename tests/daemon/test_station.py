import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from oomcast.clock import SystemClock
from oomcast.contract import Collector, CollectorSettings, CollectorSpec, Context, Facts, NotPresent, Roots
from oomcast.core import Core
from oomcast.metric import Metric, Sample
from oomcast.settings import Settings, load

A = Metric("oomcast_a", "gauge", "A's.")


class Watcher:
    """A collector that notes what is done to it."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.told: list[str] = []
        self.stopping: Callable[[float], object] = lambda deadline: None

    def start(self) -> None:
        self.told.append(f"start in {threading.current_thread().name}")

    def stop(self, deadline: float) -> None:
        self.told.append("stop")
        self.stopping(deadline)

    def collect(self) -> Facts:
        return Facts([Sample(A.series(), 1)])


class Made:
    """A core of two collectors. watchers: those of "a" in the order in which they were made."""

    def __init__(self, create: Callable[[Context], Collector] | None = None) -> None:
        self.watchers: list[Watcher] = []
        self.create = create
        self.specs = (
            CollectorSpec("a", "watches a", CollectorSettings, (A,), self._make),
            CollectorSpec("b", "watches b", CollectorSettings, (), lambda s, c: Watcher(c)),
        )
        self.core = Core(self.specs, Roots(), SystemClock())

    def _make(self, settings: CollectorSettings, context: Context) -> Collector:
        if self.create:
            return self.create(context)
        self.watchers.append(Watcher(context))
        return self.watchers[-1]

    def settings(self, **variables: str) -> Settings:
        return load(None, {f"OOMCAST_{name}": value for name, value in variables.items()}, self.specs)

    def apply(self, **variables: str) -> None:
        self.core.station.apply(self.settings(**variables), time.monotonic() + 0.3)

    def names(self) -> list[str]:
        return [runner.name for runner in self.core.station.runners]


def test_each_is_made_started_once_and_stopped_once() -> None:
    made = Made()
    made.apply()
    assert made.names() == ["a", "b"]
    assert made.watchers[0].told == ["start in MainThread"]
    made.core.station.stop(time.monotonic() + 1)
    assert made.watchers[0].told == ["start in MainThread", "stop"]


def test_the_same_settings_change_nothing() -> None:
    made = Made()
    made.apply()
    before = made.core.station.runners
    made.apply()
    assert [id(runner) for runner in made.core.station.runners] == [id(runner) for runner in before]
    assert len(made.watchers) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("COLLECTORS__A__INTERVAL", "2"),
        ("COLLECTORS__A__TIMEOUT", "2"),
        ("SERVING_PROCESSES", "[llama*]"),
        ("PATHS__PROC", "/host/proc"),
    ],
)
def test_what_concerns_a_collector_makes_it_anew(name: str, value: str) -> None:
    made = Made()
    made.apply()
    made.apply(**{name: value})
    first, second = made.watchers
    assert first.told == ["start in MainThread", "stop"]
    assert second.told == ["start in MainThread"]
    assert second.context.serving == (("llama*",) if name == "SERVING_PROCESSES" else first.context.serving)
    assert second.context.roots.proc == Path("/host/proc" if name == "PATHS__PROC" else "/proc")


def test_one_that_is_switched_off_loses_its_series_and_keeps_its_row() -> None:
    made = Made()
    made.apply()
    made.core.station.runners[0].run()
    assert made.core.store.count("a") == 1
    made.apply(COLLECTORS__A__ENABLED="false")
    assert made.names() == ["b"]
    assert made.core.store.count("a") == 0
    assert [spec.name for spec in made.core.station.off] == ["a"]
    assert [(row.name, row.state, row.help) for row in made.core.station.rows()] == [
        ("a", "disabled", "watches a"),
        ("b", "pending", "watches b"),
    ]
    made.apply()
    assert sorted(made.names()) == ["a", "b"]
    assert len(made.watchers) == 2


def test_one_that_does_not_stop_is_left_behind_in_time(caplog: pytest.LogCaptureFixture) -> None:
    made = Made()
    made.apply()
    made.watchers[0].stopping = lambda deadline: threading.Event().wait(30)
    began = time.monotonic()
    made.apply(COLLECTORS__A__INTERVAL="2", COLLECTORS__B__INTERVAL="2")
    assert 0.3 <= time.monotonic() - began < 0.8
    assert made.names() == ["a", "b"]
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        ("oomcast.a", "did not stop in time and is left behind")
    ]


def test_one_that_fails_to_stop_is_told_and_keeps_nobody(caplog: pytest.LogCaptureFixture) -> None:
    made = Made()
    made.apply()

    def fail(deadline: float) -> None:
        raise OSError("no")

    made.watchers[0].stopping = fail
    made.apply(COLLECTORS__A__ENABLED="false")
    assert made.names() == ["b"]
    assert [(record.name, record.getMessage()) for record in caplog.records] == [("oomcast.a", "stopping failed")]


def test_one_that_cannot_be_made_fails_on_each_run_without_a_growing_trace() -> None:
    def create(context: Context) -> Collector:
        raise ImportError("no such library")

    made = Made(create)
    made.apply()
    runner = made.core.station.runners[0]
    depths = []
    for _ in range(3):
        runner.run()
        depths.append(_depth(made.core.station._posts["a"].collector))
    assert (runner.state, runner.reason) == ("failure", "ImportError: no such library")
    assert runner.outcomes["failure"] == 3
    assert depths == [depths[0]] * 3


def _depth(collector: Collector) -> int:
    try:
        collector.collect()
    except ImportError as error:
        depth, trace = 0, error.__traceback__
        while trace:
            depth, trace = depth + 1, trace.tb_next
        return depth
    raise AssertionError


def test_one_that_finds_nothing_while_it_is_made_is_absent() -> None:
    def create(context: Context) -> Collector:
        raise NotPresent("no GPU")

    made = Made(create)
    made.apply()
    runner = made.core.station.runners[0]
    runner.run()
    assert (runner.state, runner.reason) == ("absent", "no GPU")


def test_its_log_is_its_own() -> None:
    made = Made()
    made.apply()
    assert made.watchers[0].context.log is logging.getLogger("oomcast.a")
