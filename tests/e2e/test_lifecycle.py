"""From the start of the real program to its end, whatever hangs; with real signals, sockets and children."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from e2e.program import OUR_OWN_OFF, Program, command, group_members, oomcast, plugins, program, until
from e2e.stack import fetch

END = 5.0


@pytest.fixture
def hung(tmp_path: Path) -> Iterator[Program]:
    """A daemon with a collector that hangs in C, one that hangs in stop(), and one whose child hangs with children."""
    specs = {"good": "GOOD", "hangs": "HANGS", "hangs_in_stop": "HANGS_IN_STOP", "parent": "PARENT"}
    with program(tmp_path, OUR_OWN_OFF, plugins(tmp_path, specs)) as running:
        until(lambda: running.value("oomcast_collector_up", 'collector="good"') == 1)
        group = int((tmp_path / "group").read_text())
        until(lambda: len(group_members(group)) == 3)
        yield running
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)  # what ends at once, by a signal or a kill, leaves it behind


@contextmanager
def clients(daemon: Program) -> Iterator[None]:
    """A request whose head never ends, one whose answer is never read, and an idle connection."""
    with contextlib.ExitStack() as opened:
        for _ in range(3):
            slow = opened.enter_context(socket.create_connection(("127.0.0.1", daemon.port), 5))
            slow.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        deaf = opened.enter_context(socket.socket())
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", daemon.port))
        deaf.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 400)
        idle = opened.enter_context(socket.create_connection(("127.0.0.1", daemon.port), 5))
        idle.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
        assert idle.recv(4096).startswith(b"HTTP/1.1 200 ")
        yield


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_within_five_seconds_with_everything_hanging(
    hung: Program, tmp_path: Path, number: signal.Signals
) -> None:
    assert hung.messages == [f"READY=1\nSTATUS=serving {hung.url}"]
    group = int((tmp_path / "group").read_text())
    with clients(hung):
        code, seconds = hung.end(number)
    assert code == 0
    assert seconds < END
    hung.heard("STOPPING=1")
    assert hung.messages[1:] == ["STOPPING=1\nSTATUS=stopping"]
    assert (tmp_path / "stopped").read_text() == "done"
    assert group_members(group) == []


def test_without_anything_hanging_it_ends_at_once(tmp_path: Path) -> None:
    with program(tmp_path, "") as running:
        code, seconds = running.end()
        assert (code, seconds < 2) == (0, True)
        assert running.log.rstrip().endswith("msg=stopped")


def test_a_second_signal_ends_it_at_once(hung: Program) -> None:
    with clients(hung):
        hung.process.send_signal(signal.SIGTERM)
        hung.heard("STOPPING=1")
        code, seconds = hung.end(signal.SIGINT)
    assert code == 1
    assert seconds < 0.5


def test_it_ends_even_when_nobody_reads_its_log(tmp_path: Path) -> None:
    # The main thread is stuck in a write to the pipe, and with it everything that waits for the event loop.
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, b"x" * 4096)
    os.set_blocking(write, True)
    address = tmp_path / "notify"
    environment = {**os.environ, "OOMCAST_HTTP__LISTEN": "127.0.0.1:0", "NOTIFY_SOCKET": str(address)}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        child = subprocess.Popen(command("run"), stderr=write, stdout=subprocess.DEVNULL, env=environment)
        os.read(read, 16384)  # room for the lines of its start
        manager.settimeout(30)
        assert manager.recv(4096).startswith(b"READY=1")
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, b"x")
    os.set_blocking(write, True)
    began = time.monotonic()
    child.send_signal(signal.SIGTERM)
    try:
        assert child.wait(10) == 0
        assert time.monotonic() - began < END
    finally:
        child.kill()
        child.wait()
        os.close(read)
        os.close(write)


def test_after_a_kill_it_starts_again_on_the_same_port(hung: Program, tmp_path: Path) -> None:
    group = int((tmp_path / "group").read_text())
    try:
        with clients(hung):
            code, _ = hung.end(signal.SIGKILL)
            assert code == -9
            hung.restart()
        until(lambda: hung.value("oomcast_trouble_good_total") is not None)
    finally:
        os.killpg(group, signal.SIGKILL)  # nobody was left to do it
    assert hung.end()[0] == 0


def test_an_address_that_is_taken_is_told_with_exit_code_1(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        done = oomcast("run", environment={"OOMCAST_HTTP__LISTEN": listen})
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.endswith(f'msg="cannot start: cannot listen on {listen}: Address already in use"\n')
    assert "Traceback" not in done.stderr


def test_bad_settings_are_told_with_exit_code_2(tmp_path: Path) -> None:
    config = tmp_path / "oomcast.yaml"
    config.write_text("log: {level: loud}\ncollectors: {cgroups: {}}\n")
    done = oomcast("run", "--config", str(config))
    assert done.returncode == 2
    assert done.stdout == ""
    assert [line.replace(str(tmp_path), "") for line in done.stderr.splitlines()] == [
        "/oomcast.yaml:1:7: log.level: should be 'debug', 'info', 'warning' or 'error'",
        "/oomcast.yaml:2:14: collectors.cgroups: unknown collector, did you mean 'cgroup'?",
    ]


def test_a_start_is_one_line_of_what_and_one_of_where(tmp_path: Path) -> None:
    with program(tmp_path, "collectors: {kernel_log: {enabled: false}}") as running:
        lines = [line.partition("logger=")[2] for line in running.log.splitlines() if "logger=oomcast msg=" in line]
        assert lines[0].startswith("oomcast msg=starting version=")
        assert lines[0].endswith(f" settings={running.config}")
        on, off = "cgroup,engine,engine_log,gpu,host,requests", "ebpf,kernel_log"
        assert lines[1] == f"oomcast msg=listening url={running.url} collectors={on} off={off}"
        assert running.url in running.log.replace(lines[1], "").splitlines()


def test_nobody_needs_to_read_its_standard_output(tmp_path: Path) -> None:
    log = tmp_path / "log"
    read, write = os.pipe()
    os.close(read)
    environment = {**os.environ, "OOMCAST_HTTP__LISTEN": "127.0.0.1:0"}
    with log.open("wb") as out:
        broken = subprocess.Popen(command("run"), stdout=write, stderr=out, env=environment)
        closed = subprocess.Popen(["sh", "-c", 'exec "$@" >&-', "sh", *command("run")], stderr=out, env=environment)
    os.close(write)
    try:
        until(lambda: log.read_text().count("msg=listening") == 2)
        assert broken.poll() is None
        assert closed.poll() is None
    finally:
        for child in (broken, closed):
            child.terminate()
            assert child.wait(10) == 0


def test_the_watchdog_is_fed_in_time(tmp_path: Path) -> None:
    with program(tmp_path, OUR_OWN_OFF, {"WATCHDOG_USEC": "600000"}) as running:
        times = [running.heard("WATCHDOG=1") for _ in range(8)]
        gaps = [after - before for before, after in pairwise(times)]
        assert sum(gaps) / len(gaps) == pytest.approx(0.3, abs=0.15)
        assert max(gaps) < 0.6


def test_busy_cpus_give_no_false_timeouts(tmp_path: Path) -> None:
    hogs = [
        subprocess.Popen(
            [sys.executable, "-c", "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"]
        )
        for _ in range(3)
    ]
    try:
        with program(tmp_path, "") as running:
            until(lambda: fetch_ready(running))
            time.sleep(10)
            for collector in ("cgroup", "engine", "engine_log", "gpu", "host", "kernel_log", "requests"):
                labels = f'collector="{collector}",outcome="timeout"'
                assert running.value("oomcast_collector_runs_total", labels) == 0
            for collector in ("cgroup", "host"):
                gap = running.value("oomcast_collector_largest_gap_seconds", f'collector="{collector}"')
                assert gap is not None
                assert gap < 3
            age = running.value("oomcast_scheduler_loop_age_seconds")
            assert age is not None
            assert age < 3
            assert running.end()[0] == 0
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def fetch_ready(running: Program) -> bool:
    try:
        return fetch(f"{running.url}/-/ready") == "all collectors ran\n"
    except OSError:
        return False
