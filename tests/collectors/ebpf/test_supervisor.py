"""A child that does everything a child should not do, seen from the daemon."""

import logging
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from oomcast.clock import SystemClock
from oomcast.contract import Event
from oomcast_collectors.ebpf import metrics
from oomcast_collectors.ebpf.supervisor import Supervisor
from oomcast_collectors.ebpf.wire import LONGEST, Absent, Checked, Failed, Log, Message, Order, Report, Row, encode

CALLS = metrics.ALLOC_CALLS.name
REPORT = Report([Row(CALLS, ("a", "brk"), 5)])
PRELUDE = "import os, signal, sys, time\nsay = sys.stdout.buffer.write\n"
WAIT = "\nsys.stdout.flush()\nsys.stdin.read()\n"


def says(*messages: Message) -> str:
    return f"say({b''.join(map(encode, messages))!r})"


def until(condition: Callable[[], bool], patience: float = 15.0) -> None:
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


@contextmanager
def supervised(script: str, events: list[Event] | None = None) -> Iterator[Supervisor]:
    log = logging.getLogger("test.ebpf")
    heard = events if events is not None else []
    command = (sys.executable, "-c", PRELUDE + script)
    supervisor = Supervisor(Order(), SystemClock(), log, heard.append, command)
    supervisor.start()
    try:
        yield supervisor
    finally:
        supervisor.stop(time.monotonic() + 4)


def total(supervisor: Supervisor) -> float:
    with supervisor.locked():
        return sum(float(sample.value) for sample in supervisor.totals.samples())  # type: ignore[arg-type,misc] # all are numbers


def test_what_it_says_arrives(caplog: pytest.LogCaptureFixture) -> None:
    events: list[Event] = []
    event = Event("crash", 1.5, 2.5, "it crashed", {"pid": 7})
    with supervised(says(Log(logging.WARNING, "a % sign"), event, REPORT) + WAIT, events) as supervisor:
        assert supervisor.wait(15)
        assert (total(supervisor), supervisor.starts, supervisor.ended, events) == (5, 1, "", [event])
        assert supervisor.pid is not None
    assert "a % sign" in caplog.messages
    assert supervisor.pid is None


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("sys.exit(3)", "it closed its output"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "it closed its output"),
        ("say(b'Segmentation fault\\n')" + WAIT, "it said something else than a message: .*'Segmentation fault'"),
        ("say(bytes(range(256)) + b'\\n')" + WAIT, "it said something else than a message"),
        ("say(b'[' * 1_000_000 + b'\\n')" + WAIT, "it said something else than a message"),
        ("say(b'x' * (9 << 20))" + WAIT, "it said a line without end"),
        (says(Report([Row("unknown", (), 1)])) + WAIT, "it said something else than a message: not a series"),
        (says(Checked("crashes", True, "")) + WAIT, "it said something else than a message: not to be said unasked"),
        (says(Report([]))[:-4] + "')", "it closed its output"),
    ],
)
def test_one_that_is_no_good_is_ended_and_told_of(script: str, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    with supervised(script) as supervisor:
        until(lambda: bool(caplog.messages))
        assert supervisor.pid is None
        (message,) = caplog.messages
    assert message.startswith("the eBPF child ended: ")
    assert message.endswith("; it is started again, at last every 60 s")
    assert len(message) < 500
    assert re.search(reason, message)


def test_a_program_that_is_not_there(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("test.ebpf")
    supervisor = Supervisor(Order(), SystemClock(), log, lambda event: None, ("/nowhere/child",))
    supervisor.start()
    until(lambda: bool(caplog.messages))
    supervisor.stop(time.monotonic() + 2)
    assert "it cannot be started" in caplog.messages[0]


def test_restarts_come_ever_more_rarely_and_counters_go_on() -> None:
    begun: list[float] = []
    with supervised(says(REPORT)) as supervisor:
        for number in range(1, 4):
            until(lambda wanted=number: supervisor.starts == wanted)  # type: ignore[misc] # mypy infers no default
            begun.append(time.monotonic())
        assert begun[1] - begun[0] >= 0.9
        assert begun[2] - begun[1] >= 1.9
        until(lambda: total(supervisor) == 15)


def test_one_that_never_reports_is_not_reported() -> None:
    with supervised(WAIT) as supervisor:
        assert not supervisor.wait(0.5)
        assert total(supervisor) == 0


def test_nothing_to_be_had_ends_it_for_good() -> None:
    with supervised(says(Absent("no tracefs"))) as supervisor:
        assert supervisor.wait(15)
        assert supervisor.absent == "no tracefs"
        until(lambda: supervisor.pid is None)
    assert supervisor.starts == 1


@pytest.mark.parametrize(
    "script",
    [
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsay(REPORT)\nsys.stdout.flush()\nwhile True: time.sleep(9)",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsay(REPORT)\nwhile True: say(LOG)",
        "say(REPORT)\nsys.stdout.flush()\nos.close(1)\nsignal.pause()",
        "say(REPORT)\nsys.stdout.flush()\nos.kill(os.getpid(), signal.SIGSTOP)",
    ],
    ids=["ignores SIGTERM", "floods", "closes its output", "is stopped"],
)
def test_stop_keeps_its_deadline(script: str) -> None:
    log = encode(Log(logging.DEBUG, "x" * 1000))
    with supervised(f"REPORT = {encode(REPORT)!r}\nLOG = {log!r}\n{script}") as supervisor:
        assert supervisor.wait(15)
        began = time.monotonic()
        supervisor.stop(began + 2)
        assert time.monotonic() < began + 2.3
        until(lambda: supervisor.pid is None, 1)


def test_stop_in_a_pause_between_two_children_is_at_once() -> None:
    with supervised("sys.exit(0)") as supervisor:
        until(lambda: supervisor.starts == 2 and supervisor.pid is None)
        began = time.monotonic()
        supervisor.stop(began + 5)
        assert time.monotonic() < began + 0.5


def test_a_line_may_be_long_but_comes_in_pieces() -> None:
    rows = [Row(CALLS, (f"process {i}", "brk"), 1) for i in range(2000)]
    line = encode(Report(rows))
    assert len(line) < LONGEST
    script = f"line = {line!r}\nfor i in range(0, len(line), 9999):\n    say(line[i:i+9999])\n    sys.stdout.flush()"
    with supervised(script + WAIT) as supervisor:
        assert supervisor.wait(15)
        assert total(supervisor) == 2000


def test_one_that_says_nothing_any_more_is_started_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oomcast_collectors.ebpf.supervisor._SILENCE", 0.5)
    with supervised(says(REPORT) + WAIT) as supervisor:
        until(lambda: supervisor.starts == 2)
        assert caplog.messages == [
            "the eBPF child ended: it said nothing for 0.5 s; it is started again, at last every 60 s"
        ]


def test_a_flood_of_log_lines_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    flood = says(Log(logging.WARNING, "again")) + "\n"
    with supervised(f"for _ in range(5000): {flood}" + says(REPORT) + WAIT) as supervisor:
        assert supervisor.wait(15)
    assert caplog.messages == ["again"] * 100


def test_what_does_not_work_is_tried_again_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with supervised(says(Failed("no memory"))) as supervisor:
        until(lambda: supervisor.starts >= 2)
        until(lambda: supervisor.ended != "")
        assert (supervisor.ended, supervisor.absent) == ("no memory", "")
    assert caplog.messages == ["the eBPF child ended: no memory; it is started again, at last every 60 s"]
