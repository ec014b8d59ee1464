"""Uprobes on targets that are hostile, or only unlike a program that is there all the time."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from collectors.ebpf.live import Live
from collectors.ebpf.test_generic import COUNTING, MALLOC, attached, hits, probe
from ebpf_lab.lab import Target, build
from ebpf_lab.own_libc import in_root, own_libc_root, replace_libc
from oomcast_collectors.ebpf import metrics
from requires import needs

pytestmark = needs("ebpf", "cc")

OF_THE_PROGRAM = MALLOC.replace("libc.so*", "@").replace("symbol: malloc", "symbol: leak_small")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    own = tmp_path / "probes"
    own.mkdir()
    probe(own, "mallocs", MALLOC, COUNTING)
    probe(own, "leaks", OF_THE_PROGRAM, COUNTING)
    return own


@contextmanager
def storm(script: str) -> Iterator[subprocess.Popen[bytes]]:
    """A shell that is called stormy and runs a script; all that it started is ended with it."""
    with subprocess.Popen(
        ["stormy", "-c", script],
        executable="/bin/sh",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def go(process: subprocess.Popen[bytes]) -> None:
    """Has it begin, and waits until it has done what its script says."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"\n")
    assert process.stdout.readline() == b"done\n"


def live(folder: Path, *processes: str, probes: tuple[str, ...] = ("mallocs",), most: int = 100) -> Live:
    return Live(list(probes), {"processes": list(processes), "most": most}, {"folder": str(folder)})


def points(of: Live, name: str = "mallocs") -> float | None:
    return of.value(metrics.PROBE_POINTS.name, name)


@needs("netns")
def test_a_library_in_another_mount_namespace_and_one_that_was_replaced(tmp_path: Path, folder: Path) -> None:
    root = own_libc_root(tmp_path / "root", build("leak"))
    with in_root(root, "leak") as target:
        replace_libc(root)
        with in_root(root, "leak") as newer, live(folder, "leak") as watching:
            watching.targets(2)
            watching.until(lambda: points(watching) == 2)
            said = target.step()["allocs"] + newer.step()["allocs"]
            watching.settle()
            assert hits(watching, "by_process")["leak"] >= said
            assert attached(watching, "mallocs") == (1, 0)


@pytest.mark.parametrize(("name", "expected"), [("leak", 1), ("static", 1), ("stripped", 0)])
def test_functions_of_the_program_itself(name: str, expected: int, folder: Path) -> None:
    with Target(build(name)) as target, live(folder, name, probes=("leaks", "mallocs")) as watching:
        watching.targets(1)
        # A static program has no library; a stripped one still has the names of the libraries it uses.
        places = [expected, int(name != "static")]
        watching.until(lambda: [points(watching, "leaks"), points(watching)] == places)
        while target.step()["phase"] != "leaks":
            pass
        watching.settle()
        assert bool(hits(watching, "by_process")) == (name != "static" or expected == 1)


def test_targets_that_end_while_they_are_attached_to(folder: Path) -> None:
    script = "read x; i=0; while [ $i -lt 300 ]; do /bin/true; i=$((i+1)); done; echo done; read x"
    with storm(script) as process, live(folder, "stormy") as watching:
        watching.targets(1)
        go(process)
        watching.until(lambda: points(watching) == 1)
        watching.targets(1)
        assert watching.value(metrics.PROBE_ATTACHED.name, "mallocs") == 1


def test_a_thousand_forks_are_not_the_end_of_reports(folder: Path) -> None:
    script = "read x; i=0; while [ $i -lt 1000 ]; do (sleep 60)& i=$((i+1)); done; echo done; read x"
    with storm(script) as process, live(folder, "stormy", most=50) as watching:
        watching.targets(1)
        before, reports = cpu_seconds(watching.pid), watching.reports
        go(process)
        watching.until(lambda: points(watching) == 50)
        watching.targets(50)
        assert watching.reports > reports
        assert cpu_seconds(watching.pid) - before < 5


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    before = Path("/proc/mounts").read_text()
    yield
    assert Path("/proc/mounts").read_text() == before
