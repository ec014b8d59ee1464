"""The kernel of this machine kills, crashes and is lied to: what its log says of it, through the whole collector."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

import pytest

from collectors.kernel_log.support import Bench, values
from host import memory_mount
from oomcast.contract import Event, Roots
from oomcast_collectors.kernel_log import KernelLogCollector
from requires import needs, require

LIMIT = 32 << 20
HOG = "input()\nhoard = []\nwhile True: hoard.append(bytearray(b'x') * (1 << 20))"


@pytest.fixture
def kernel_log(bench: Bench) -> KernelLogCollector:
    """A started collector over this machine's log."""
    require("kmsg")
    collector = bench.collector(Roots())
    collector.start()
    return collector


@pytest.fixture
def limited() -> Iterator[tuple[Path, Path]]:
    """A cgroup with a limit of LIMIT bytes and one below it, both empty at the end."""
    mount = memory_mount()
    assert mount is not None
    version, root = mount
    parent = root / f"oomcast-kernel-log-{os.getpid()}"
    child = parent / "a b,task=x"
    parent.mkdir()
    try:
        if version == 2:
            (parent / "cgroup.subtree_control").write_text("+memory")
        (parent / ("memory.limit_in_bytes" if version == 1 else "memory.max")).write_text(str(LIMIT))
        swap = parent / ("memory.memsw.limit_in_bytes" if version == 1 else "memory.swap.max")
        if swap.exists():
            swap.write_text(str(LIMIT if version == 1 else 0))
        child.mkdir()
        yield parent, child
    finally:
        for directory in (child, parent):
            remove(directory)


def remove(directory: Path) -> None:
    """The kernel takes a moment to let go of the dead."""
    for _ in range(100):
        try:
            directory.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.02)
    directory.rmdir()


def event_of(bench: Bench, pid: int) -> Event:
    """The event about `pid`, within two seconds of it or of the one before: the log is the whole machine's."""
    while (event := bench.event(timeout=2.0)).fields.get("pid") != pid:
        pass
    return event


@needs("cgroup")
def test_a_kill_is_known_with_its_victim_and_cgroups(
    bench: Bench, kernel_log: KernelLogCollector, limited: tuple[Path, Path]
) -> None:
    parent, child = limited
    hog = subprocess.Popen([sys.executable, "-c", HOG], stdin=PIPE)
    assert hog.stdin is not None
    try:
        (child / "cgroup.procs").write_text(str(hog.pid))
        comm = Path(f"/proc/{hog.pid}/comm").read_text().removesuffix("\n")
        begin = time.monotonic()
        hog.communicate(b"\n", timeout=20)
    finally:
        hog.kill()
        hog.wait()
    assert hog.returncode == -signal.SIGKILL
    event = event_of(bench, hog.pid)
    now = time.monotonic()
    fields = dict(event.fields)
    assert event.kind == "oom_kill"
    # What it touched before it was moved here was charged elsewhere, and so are most of its files.
    assert 0.8 * LIMIT < int(fields.pop("anon_bytes")) < 1.5 * LIMIT
    assert int(fields.pop("file_bytes")) > 0
    # The kernel prints the whole path, this mount may begin further down.
    assert str(fields.pop("cgroup")).endswith(f"/{parent.name}/a b,task=x")
    assert str(fields.pop("limit_cgroup")).endswith(f"/{parent.name}")
    assert fields == {
        "pid": hog.pid,
        "comm": comm,
        "constraint": "memcg",
        "shmem_bytes": 0,
        "uid": 0,
        "oom_score_adj": 0,
    }
    assert begin <= event.monotonic <= now
    assert values(kernel_log)["oom_kills_total"] >= 1


def test_a_crash_is_known_with_its_address(bench: Bench, kernel_log: KernelLogCollector) -> None:
    before = values(kernel_log)
    crashed = subprocess.Popen([sys.executable, "-c", "import ctypes; ctypes.string_at(0x1234)"])
    assert crashed.wait(timeout=10) == -signal.SIGSEGV
    event = event_of(bench, crashed.pid)
    assert event.kind == "segfault"
    if os.uname().machine == "x86_64":
        assert (event.fields["cause"], event.fields["address"]) == ("segfault", "1234")
    name = f'segfaults_total{{module="{event.fields["module"]}"}}'
    assert values(kernel_log)[name] >= before.get(name, 0) + 1


def test_a_forged_kill_is_not_believed(bench: Bench, kernel_log: KernelLogCollector) -> None:
    before = values(kernel_log)
    forged = b"<3>Out of memory: Killed process 4242 (oomcast-test) total-vm:1kB, anon-rss:1kB, file-rss:0kB\n"
    with Path("/dev/kmsg").open("wb", buffering=0) as log:
        log.write(forged)
    deadline = time.monotonic() + 10
    while values(kernel_log)["ignored_records_total"] == before["ignored_records_total"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    while not bench.no_event():
        assert bench.event().fields.get("pid") != 4242
