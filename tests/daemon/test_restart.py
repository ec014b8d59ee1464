import logging
import os
import subprocess
import sys

import pytest

from fakes import FakeClock
from oomcast.restart import INTERVAL, VARIABLE, Restart


class Made:
    def __init__(self, last: str | None = None) -> None:
        self.clock = FakeClock()
        self.restart = Restart({} if last is None else {VARIABLE: last}, self.clock)
        self.begun = 0

    def begin(self) -> None:
        self.begun += 1

    def ask(self, times: int = 1, reason: str = "new library") -> bool:
        with self.restart.possible(self.begin):
            for _ in range(times):
                self.restart.ask("gpu", reason)
        return self.restart.due


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [f"{record.levelname} {record.getMessage()}" for record in caplog.records]


def test_the_first_request_is_granted_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    made = Made()
    assert not made.restart.due
    assert made.ask(times=3)
    assert made.begun == 1
    assert logged(caplog) == ["WARNING restarting the whole process: new library"]


def test_a_second_one_within_ten_minutes_is_refused_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    made = Made(last="700.5")
    assert not made.ask(times=3)
    made.clock.advance(INTERVAL - 299.6)
    assert not made.ask(reason="still")
    assert logged(caplog) == ["WARNING restart refused, the last one is 300 s ago: new library"]
    made.clock.advance(0.1)
    assert made.ask(reason="still")
    assert made.begun == 1
    assert logged(caplog)[1:] == ["WARNING restarting the whole process: still"]


@pytest.mark.parametrize("last", ["", "soon", "nan", "inf", "-1", "1000.1", "1e999", "9" * 5000])
def test_a_last_time_that_cannot_be_is_none(last: str) -> None:
    assert Made(last).ask()


def test_where_no_daemon_runs_it_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    made = Made()
    for _ in range(2):
        made.restart.ask("gpu", "new library")
    assert not made.restart.due
    made.ask()
    made.restart.ask("gpu", "again")
    assert made.begun == 1
    assert logged(caplog) == [
        "INFO only a running daemon restarts: new library",
        "WARNING restarting the whole process: new library",
    ]


def test_what_was_told_to_end_does_not_restart(caplog: pytest.LogCaptureFixture) -> None:
    asked = Made()
    assert asked.ask()
    asked.restart.call_off()
    assert not asked.restart.due
    ending = Made()
    ending.restart.call_off()
    assert not ending.ask()
    assert ending.begun == 0
    assert len(caplog.records) == 1


PROGRAM = """
import os, signal, sys, threading
from fakes import FakeClock
from oomcast.restart import Restart

if "OOMCAST_RESTARTED" not in os.environ:
    print(os.getpid(), flush=True)
    restart = Restart(os.environ, FakeClock())
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    os.set_inheritable(os.open("/dev/zero", os.O_RDONLY), True)
    threading.Thread(target=threading.Event().wait).start()
    restart.execute()
print(os.getpid(), sys.argv[1:], os.environ["OOMCAST_RESTARTED"], os.environ["OTHER"])
print(signal.pthread_sigmask(signal.SIG_BLOCK, ()), threading.active_count())
print([fd for fd in range(3, 100) if os.path.realpath(f"/proc/self/fd/{fd}") == "/dev/zero"])
"""


def test_the_new_image_has_everything_but_threads_descriptors_and_what_was_done_to_the_mask() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OTHER": "b"}
    argv = [sys.executable, "-c", PROGRAM, "x", "y z"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=30, check=True)
    pid, *after = done.stdout.splitlines()
    assert after == [f"{pid} ['x', 'y z'] 1000.0 b", "set() 1", "[]"]


def test_an_interpreter_that_is_gone_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(FileNotFoundError):
        Made().restart.execute()
