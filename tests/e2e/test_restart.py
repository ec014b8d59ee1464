"""A collector asks the real program to execute itself anew, with all that may hang meanwhile."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.program import OUR_OWN_OFF, Program, command, oomcast, plugins, program, until

END = 5.0
SPECS = {"good": "GOOD", "restarts": "RESTARTS"}
HANGING = {"hangs": "HANGS", "hangs_fifo": "HANGS_FIFO", "hangs_in_stop": "HANGS_IN_STOP"}
REASON = 'msg="restarting the whole process: the library was replaced" collector=restarts'
ASKED = 'collector="restarts",outcome="success"'


def images(directory: Path) -> int:
    """How many times the collectors were made."""
    return len((directory / "good-made").read_text())


def signals(daemon: Program) -> list[str]:
    """The dispositions and the mask of the main thread, as the kernel has them."""
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    return re.findall(r"^Sig(?:Blk|Ign|Cgt):.*$", status, re.MULTILINE)


def descriptors(daemon: Program) -> list[str]:
    """What is open, but for sockets: how soon the last scrape's is closed varies."""
    found = []
    for entry in Path(f"/proc/{daemon.process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(re.sub(r"\[.*", "", str(entry.readlink())))
    return sorted(name for name in found if name != "socket:")


def restart(daemon: Program, directory: Path) -> float:
    """Has the plug-in ask, and waits until the new image serves; gives the seconds from the request to its start."""
    before = images(directory)
    daemon.messages.clear()
    (directory / "restart").touch()
    asked = daemon.heard("RELOADING=1")
    until(lambda: images(directory) == before + 1)
    began = time.monotonic()
    daemon.heard("READY=1")
    until(lambda: daemon.value("oomcast_trouble_good_total") is not None)
    return began - asked


def test_the_process_goes_on_as_a_new_one(tmp_path: Path) -> None:
    with program(tmp_path, OUR_OWN_OFF, plugins(tmp_path, SPECS)) as daemon:
        until(lambda: (daemon.value("oomcast_trouble_good_total") or 0) >= 4)
        as_at_first = signals(daemon), descriptors(daemon)
        assert len(as_at_first[0]) == 3
        restart(daemon, tmp_path)
        assert daemon.process.poll() is None
        assert (daemon.value("oomcast_trouble_good_total") or 9) < 4
        kinds = [message.split("\n")[0] for message in daemon.messages]
        assert kinds == ["RELOADING=1", "READY=1"]
        assert re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=\d+", daemon.messages[0])
        assert daemon.log.count(REASON) == 1

        # It asks on: refused, told once, and all goes on.
        until(lambda: (daemon.value("oomcast_collector_runs_total", ASKED) or 0) >= 4)
        assert images(tmp_path) == 2
        assert len(re.findall(r'msg="restart refused, the last one is \d+ s ago: the library', daemon.log)) == 1
        assert (signals(daemon), descriptors(daemon)) == as_at_first

        daemon.reload()
        assert daemon.end()[0] == 0
        daemon.heard("STOPPING=1")


@pytest.fixture
def hung(tmp_path: Path) -> Iterator[Program]:
    """A daemon in which two runs and a stop() hang."""
    with program(tmp_path, OUR_OWN_OFF, plugins(tmp_path, SPECS | HANGING)) as daemon:
        until(lambda: daemon.value("oomcast_collector_up", 'collector="hangs"') == 0)
        until(lambda: daemon.value("oomcast_collector_up", 'collector="hangs_fifo"') == 0)
        yield daemon


def test_what_hangs_does_not_prevent_it(hung: Program, tmp_path: Path) -> None:
    assert restart(hung, tmp_path) < END + 3  # with the start of the interpreter
    assert hung.process.poll() is None
    assert hung.log.count(REASON) == 1
    assert "did not stop in time and is left behind" in hung.log
    code, seconds = hung.end()
    assert code == 0
    assert seconds < END


def test_a_signal_to_end_while_it_stops_calls_it_off(hung: Program, tmp_path: Path) -> None:
    (tmp_path / "restart").touch()
    hung.heard("RELOADING=1")
    code, seconds = hung.end()
    assert code == 0
    assert seconds < END
    assert images(tmp_path) == 1


def test_a_reload_meanwhile_does_not_end_it(tmp_path: Path) -> None:
    with program(tmp_path, OUR_OWN_OFF, plugins(tmp_path, SPECS)) as daemon:
        until(lambda: images(tmp_path) == 1)
        (tmp_path / "restart").touch()
        daemon.heard("RELOADING=1")
        while images(tmp_path) == 1 and daemon.process.poll() is None:
            daemon.process.send_signal(signal.SIGHUP)
            time.sleep(0.01)
        daemon.heard("READY=1")
        until(lambda: daemon.value("oomcast_trouble_good_total") is not None)


def test_an_interpreter_that_is_gone_is_told_with_exit_code_1(tmp_path: Path) -> None:
    config = tmp_path / "oomcast.yaml"
    config.write_text(OUR_OWN_OFF)
    (tmp_path / "restart").touch()
    script = "import sys; sys.executable = '/nonexistent'; from oomcast.cli import run; run(sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", script, "run", "--config", str(config)],
        env={**os.environ, **plugins(tmp_path, SPECS), "OOMCAST_HTTP__LISTEN": "127.0.0.1:0"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert "FileNotFoundError: [Errno 2] No such file or directory" in done.stderr


def fill(pipe: int) -> None:
    os.set_blocking(pipe, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipe, b"x" * 4096)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipe, b"x")
    os.set_blocking(pipe, True)


def executed_anew(pid: int) -> bool:
    try:
        return b"OOMCAST_RESTARTED=" in Path(f"/proc/{pid}/environ").read_bytes()
    except ProcessLookupError:
        return False  # the very moment at which another thread than the first one executes


def test_it_restarts_even_when_nobody_reads_its_log(tmp_path: Path) -> None:
    # The main thread is stuck in a write to the pipe before it has stopped anything.
    read, write = os.pipe()
    address = tmp_path / "notify"
    (tmp_path / "oomcast.yaml").write_text(OUR_OWN_OFF)
    environment = {
        **os.environ,
        **plugins(tmp_path, SPECS),
        "OOMCAST_HTTP__LISTEN": "127.0.0.1:0",
        "NOTIFY_SOCKET": str(address),
    }
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        manager.settimeout(30)
        run = command("run", "--config", str(tmp_path / "oomcast.yaml"))
        child = subprocess.Popen(run, stderr=write, stdout=subprocess.DEVNULL, env=environment)
        try:
            assert manager.recv(4096).startswith(b"READY=1")
            fill(write)
            (tmp_path / "restart").touch()
            began = time.monotonic()
            until(lambda: executed_anew(child.pid))
            assert time.monotonic() - began < END + 1  # the next run, which asks, comes within half a second
            os.read(read, 1 << 16)  # room for the lines of its start
            assert manager.recv(4096).startswith(b"READY=1")
            child.send_signal(signal.SIGTERM)
            assert child.wait(10) == 0
        finally:
            child.kill()
            child.wait()
            os.close(read)
            os.close(write)


@pytest.mark.parametrize("arguments", [("run", "--once"), ("check",), ("snapshot", "--interval", "0.1")])
def test_a_single_run_does_not_restart(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    config = tmp_path / "oomcast.yaml"
    config.write_text(OUR_OWN_OFF)
    (tmp_path / "restart").touch()
    done = oomcast(*arguments, "--config", str(config), environment=plugins(tmp_path, SPECS))
    assert done.returncode == 0
    assert done.stderr.count('msg="only a running daemon restarts: the library was replaced"') == 1
    assert images(tmp_path) == 1
