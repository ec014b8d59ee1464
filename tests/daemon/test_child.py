"""Real children with children of their own."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from e2e.program import group_members, until
from oomcast.child import Child
from oomcast.clock import SystemClock

CLOCK = SystemClock()


def stop(child: Child, seconds: float) -> float:
    began = time.monotonic()
    child.stop(CLOCK.monotonic() + seconds)
    return time.monotonic() - began


def test_what_it_says_is_read() -> None:
    child = Child(["echo", "hello"], CLOCK)
    assert child.stdout.read() == b"hello\n"
    assert stop(child, 2) < 1


def test_a_polite_child_ends_at_the_first_signal() -> None:
    child = Child(["sh", "-c", "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.02; done"], CLOCK)
    assert child.stdout.read(6) == b"ready\n"
    assert stop(child, 10) < 4
    assert group_members(child.pid) == []


def test_a_stubborn_group_is_killed_in_time_and_nothing_of_it_survives() -> None:
    child = Child(["sh", "-c", "trap '' TERM; sleep 1000 & sleep 1000 & echo ready; wait; wait; sleep 1000"], CLOCK)
    assert child.stdout.read(6) == b"ready\n"
    until(lambda: len(group_members(child.pid)) == 3)
    assert 0.9 < stop(child, 2) < 2
    until(lambda: group_members(child.pid) == [], 1)


def test_children_that_outlive_their_leader_end_too() -> None:
    child = Child(["sh", "-c", "trap '' TERM; sleep 1000 & echo ready"], CLOCK)
    assert child.stdout.read(6) == b"ready\n"
    until(lambda: len(group_members(child.pid)) == 1)
    assert stop(child, 2) < 1.5
    until(lambda: group_members(child.pid) == [], 1)


def test_a_reader_does_not_keep_stop() -> None:
    # One that left the group has the pipe open for ever; whoever reads it waits for that.
    child = Child(["sh", "-c", "setsid sleep 30 & echo $!; wait"], CLOCK)
    stray = int(child.stdout.readline())
    reader = threading.Thread(target=child.stdout.read, args=(1,), daemon=True)
    reader.start()
    try:
        assert stop(child, 2) < 2
    finally:
        os.kill(stray, signal.SIGKILL)
    reader.join(10)


def test_stopping_twice_or_after_its_end_is_nothing() -> None:
    child = Child(["true"], CLOCK)
    child.stdout.read()
    assert stop(child, 2) < 1
    assert stop(child, 2) < 1


def test_it_has_none_of_our_descriptors_and_no_input(tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as ours:
        os.set_inheritable(ours.fileno(), True)
        child = Child(["ls", "-l", "/proc/self/fd"], CLOCK)
        shown = child.stdout.read().decode()
    stop(child, 2)
    assert str(tmp_path) not in shown
    assert "0 -> /dev/null" in shown


def test_a_program_that_is_not_there_is_told() -> None:
    with pytest.raises(FileNotFoundError):
        Child(["/nonexistent/program"], CLOCK)


def test_a_deadline_that_has_passed_still_kills() -> None:
    child = Child(["sleep", "1000"], CLOCK)
    assert stop(child, -1) < 1
    until(lambda: group_members(child.pid) == [], 1)
