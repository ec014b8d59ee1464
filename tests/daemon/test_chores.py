import logging

import pytest

from fakes import FakeClock
from oomcast.chores import FAILURES, Chores


class Work:
    """What has to be done, and whether it fails."""

    def __init__(self) -> None:
        self.done = 0
        self.error: Exception | None = None

    def __call__(self) -> None:
        if self.error:
            raise self.error
        self.done += 1


def counted(chores: Chores) -> dict[str, float]:
    samples = chores.samples()
    assert {sample.series.metric for sample in samples} == {FAILURES}
    return {dict(sample.series.labels)["chore"]: float(sample.value) for sample in samples}  # type: ignore[arg-type]


def test_one_that_fails_is_logged_once_counted_each_time_and_costs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock, first, second = FakeClock(), Work(), Work()
    chores = Chores({"first": first, "second": second}, clock, logging.getLogger("test"))
    assert counted(chores) == {"first": 0, "second": 0}
    chores.run()
    first.error = RuntimeError("broken")
    for _ in range(20):
        clock.advance(1)
        chores.run()
    assert second.done == 21
    assert counted(chores) == {"first": 20, "second": 0}
    assert chores.undone() == (20, "first")
    first.error = None
    clock.advance(1)
    chores.run()
    assert chores.undone()[0] == 0
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", "the daemon's own work fails: first"),
        ("INFO", "the daemon's own work is done again: first"),
    ]
    assert caplog.records[0].exc_info is not None


def test_what_was_never_done_is_as_old_as_the_daemon() -> None:
    clock = FakeClock()
    chores = Chores({"one": Work()}, clock, logging.getLogger("test"))
    clock.advance(12)
    assert chores.undone() == (12, "one")
