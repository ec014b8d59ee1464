"""Which processes may be engines."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.host.trees import write_process
from fakes import FakeClock
from oomcast.contract import Context, Roots
from oomcast_collectors import gpu_holders, verdicts
from oomcast_collectors.descriptors import descriptors
from oomcast_collectors.engine.candidates import Candidates

LOG = logging.getLogger("oomcast.engine")


def make(proc: Path, *serving: str) -> Candidates:
    return Candidates(Context(Roots(proc=proc), FakeClock(), LOG, lambda facts: None, serving))


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A machine with a GPU and a process, 99, that looks."""
    (tmp_path / "driver/nvidia").mkdir(parents=True)
    (tmp_path / "self").symlink_to("99")
    write(tmp_path, 1, "systemd", 0, cgroup="/init.scope")
    return tmp_path


def write(
    proc: Path, pid: int, comm: str, parent: int, *opened: str, cgroup: str = "/a.service", start: int = 100
) -> None:
    write_process(proc, pid, comm, start=start, cgroup=f"0::{cgroup}\n")
    stat = proc / str(pid) / "stat"
    stat.write_text(stat.read_text().replace(") S 1 ", f") S {parent} "))
    (proc / str(pid) / "fd").mkdir()
    for number, target in enumerate(opened):
        (proc / str(pid) / "fd" / str(number)).symlink_to(target)


def test_by_name_by_gpu_and_parents_in_the_same_cgroup(proc: Path) -> None:
    write(proc, 10, "launcher", 1)
    write(proc, 11, "python", 10)
    write(proc, 12, "worker", 11, "/dev/null", "/dev/nvidia0")
    write(proc, 20, "vllm", 1, cgroup="/b.service", start=7)
    write(proc, 30, "other", 10)
    write(proc, 31, "unprivileged", 10, "/dev/nvidiactl", "/srv/dev/nvidia0", "socket:[1]")
    write(proc, 40, "compute", 41, "/dev/nvidia-uvm", cgroup="/c.scope")
    write(proc, 41, "shell", 1, cgroup="/session.scope")
    assert make(proc, "vllm*").find() == {10: 100, 11: 100, 12: 100, 20: 7, 40: 100}


def test_not_this_process_itself_which_has_the_gpus_open_too(proc: Path) -> None:
    write(proc, 99, "oomcast", 1, "/dev/nvidia0")
    assert make(proc).find() == {}


def test_without_the_driver_nobodys_descriptors_are_read(proc: Path) -> None:
    write(proc, 12, "worker", 1, "/dev/nvidia0")
    (proc / "driver/nvidia").rmdir()
    assert make(proc, "vllm*").find() == {}


def test_parents_end_somewhere(proc: Path) -> None:
    write(proc, 10, "vllm", 11)
    write(proc, 11, "a", 10)  # a pid that was used again while it was read
    write(proc, 20, "vllm", 77)
    for pid in range(30, 50):
        write(proc, pid, "vllm" if pid == 30 else "b", pid + 1)
    assert sorted(make(proc, "vllm").find()) == [10, 11, 20, *range(30, 38)]


def test_a_process_without_a_gpu_is_looked_at_ever_more_rarely(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(proc, 64, "python", 1)
    looked: list[int] = []

    def noted(proc: str, pid: int) -> Iterator[str]:
        looked.append(pid)
        return descriptors(proc, pid)

    monkeypatch.setattr(gpu_holders, "descriptors", noted)
    look = make(proc)
    scans = []
    for scan in range(100):
        looked.clear()
        look.find()
        scans += [scan] * looked.count(64)
    assert scans == [0, 1, 3, 7, 15, 31, 63, 95]
    # What has one stays, and costs nothing here.
    (proc / "64/fd/0").symlink_to("/dev/nvidia3")
    found = [sorted(look.find()) for _ in range(40)]
    assert found[-1] == [64]
    looked.clear()
    assert look.find() == {64: 100}
    assert 64 not in looked


def test_a_crowd_is_looked_at_in_parts(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "_MOST_LOOKS", 50)
    for pid in range(1000, 1070):
        write(proc, pid, "x", 1, "/dev/nvidia0")
    look = make(proc)
    assert 49 <= len(look.find()) <= 50  # pid 1 may be among the first
    assert len(look.find()) == 70


def test_real_processes() -> None:
    name = f"oce{os.getpid()}"
    code = f"open('/proc/self/comm', 'w').write('{name}'); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout
        child.stdout.readline()
        found = make(Path("/proc"), f"{name}*").find()
        assert child.pid in found
        assert os.getpid() not in found  # the parent, but it is who looks
        child.kill()
        child.wait()
        assert child.pid not in make(Path("/proc"), f"{name}*").find()
