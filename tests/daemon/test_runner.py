import logging
from collections.abc import Callable, Sequence

import pytest

from fakes import FakeClock
from oomcast.contract import Event, Facts, NotPresent
from oomcast.metric import Metric, Sample
from oomcast.runner import Runner

METRIC = Metric("oomcast_test", "gauge", "A test's.")
LOG = logging.getLogger("oomcast.test")


class Steps:
    """A collector that does one thing on each run, the last one for ever."""

    def __init__(self, *steps: Callable[[], Facts]) -> None:
        self.steps = list(steps)

    def collect(self) -> Facts:
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        return step()


class Published:
    """A sink that holds what is published at present. hold: something to do while it accepts."""

    def __init__(self) -> None:
        self.facts: Facts | None = None
        self.withdrawn = 0
        self.noted: list[Event] = []
        self.hold: Callable[[], None] = lambda: None

    def accept(self, source: str, facts: Facts, began: float) -> None:
        assert source == "test"
        self.hold()
        self.facts = facts

    def note(self, events: Sequence[Event]) -> None:
        self.noted += events

    def withdraw(self, source: str) -> None:
        assert source == "test"
        self.withdrawn += 1
        self.facts = None


def fine() -> Facts:
    return Facts([Sample(METRIC.series(), 1)])


def raises(error: BaseException) -> Callable[[], Facts]:
    def step() -> Facts:
        raise error

    return step


def made(*steps: Callable[[], Facts], timeout: float = 5) -> tuple[Runner, FakeClock, Published]:
    clock, sink = FakeClock(), Published()
    return Runner("test", Steps(*steps), timeout, sink, clock, LOG), clock, sink


def counts(runner: Runner) -> tuple[int, int, int, int]:
    return tuple(runner.outcomes[outcome] for outcome in ("success", "failure", "timeout", "absent"))  # type: ignore[return-value]


def logged(caplog: pytest.LogCaptureFixture) -> Sequence[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def test_before_the_first_run_nothing_is_known() -> None:
    runner, clock, _ = made(fine)
    clock.advance(100)
    runner.expire()
    assert counts(runner) == (0, 0, 0, 0)
    assert (runner.state, runner.duration, runner.last_success, runner.period(), runner.largest_gap()) == (None,) * 5


def test_a_success_has_its_duration_and_its_time() -> None:
    clock = FakeClock()

    def takes_two_seconds() -> Facts:
        clock.advance(2)
        return fine()

    sink = Published()
    runner = Runner("test", Steps(takes_two_seconds), 5, sink, clock, LOG)
    runner.run()
    assert (runner.state, runner.reason, runner.duration, runner.last_success) == ("success", "", 2, 1_700_000_002)
    assert runner.finished_from == 1000
    assert counts(runner) == (1, 0, 0, 0)
    assert sink.facts is not None


def test_a_failure_withdraws_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    runner, _, sink = made(
        fine, raises(OSError(5, "I/O error")), raises(OSError(6, "other")), raises(OSError(6, "x")), fine
    )
    runner.run()
    for _ in range(3):
        runner.run()
        assert sink.facts is None
    assert (runner.state, runner.reason) == ("failure", "OSError: [Errno 6] x")
    runner.run()
    assert counts(runner) == (2, 3, 0, 0)
    assert logged(caplog) == [
        ("WARNING", "collector failed: OSError: [Errno 5] I/O error"),
        ("INFO", "collector works again"),
    ]
    assert caplog.records[0].exc_info is not None


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt: "),
        (MemoryError(), "MemoryError: "),
        (Unspeakable(), "Unspeakable: (its text cannot be had: RuntimeError)"),
        (ValueError("a\n\tb"), "ValueError: a b"),
        (ValueError("x" * 100_000), "ValueError: " + "x" * 488 + "…"),
    ],
)
def test_whatever_it_raises_is_a_failure_with_a_line_of_reason(error: BaseException, reason: str) -> None:
    runner, _, _ = made(raises(error))
    runner.run()
    assert runner.state == "failure"
    assert runner.reason == reason.strip()


def test_no_facts_are_a_failure() -> None:
    runner, _, sink = made(lambda: None)  # type: ignore[arg-type, return-value]
    runner.run()
    assert (runner.state, runner.reason) == ("failure", "TypeError: collect() gave a NoneType, no Facts")
    assert sink.withdrawn == 1


def test_facts_that_the_sink_refuses_are_a_failure() -> None:
    runner, _, sink = made(fine)

    def refuse() -> None:
        raise ValueError("not in the table")

    sink.hold = refuse
    runner.run()
    assert (runner.state, runner.reason) == ("failure", "ValueError: not in the table")
    assert counts(runner) == (0, 1, 0, 0)
    assert sink.withdrawn == 1


def test_absence_is_no_failure_until_it_was_there(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    gone, removed = raises(NotPresent("no such file")), raises(NotPresent("unplugged", removed=True))
    runner, _, _ = made(gone, gone, fine, gone, fine, removed, gone, fine, gone)
    seen = []
    for _ in range(9):
        runner.run()
        seen.append(runner.state)
    assert seen == [
        "absent", "absent", "success", "failure", "success", "absent", "absent", "success", "failure",
    ]  # fmt: skip
    assert logged(caplog) == [
        ("INFO", "not on this machine: no such file"),
        ("INFO", "collector works again"),
        ("WARNING", "collector failed: no such file"),
        ("INFO", "collector works again"),
        ("INFO", "not on this machine: unplugged"),
        ("INFO", "collector works again"),
        ("WARNING", "collector failed: no such file"),
    ]


def test_gaps_are_those_between_starts_and_the_open_one() -> None:
    runner, clock, _ = made(fine)
    runner.run()
    clock.advance(1)
    assert runner.period() is None
    runner.run()
    assert (runner.period(), runner.largest_gap()) == (1, 1)
    clock.advance(4)
    assert (runner.period(), runner.largest_gap()) == (1, 4)
    runner.run()
    clock.advance(1)
    runner.run()
    assert (runner.period(), runner.largest_gap()) == (1, 4)


def test_a_gap_is_remembered_for_five_to_ten_minutes() -> None:
    runner, clock, _ = made(fine)
    runner.run()
    clock.advance(7)
    runner.run()
    remembered = 0
    while runner.largest_gap() == 7:
        clock.advance(1)
        runner.run()
        remembered += 1
        assert remembered <= 600
    assert remembered >= 300
    assert runner.largest_gap() == 1


def test_what_was_left_out_is_counted() -> None:
    runner, _, _ = made(fine)
    runner.skipped()
    runner.skipped()
    assert runner.overruns == 2
