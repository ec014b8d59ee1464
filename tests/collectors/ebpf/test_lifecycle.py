"""What is left in the kernel of the collector when it is over, however that came: nothing."""

import contextlib
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from collectors.ebpf.test_generic import COUNTING, MALLOC, probe
from e2e.program import OUR_OWN_OFF, Program, program, until
from ebpf_lab.lab import Target, build
from requires import needs

pytestmark = needs("ebpf", "cc")

HELD = re.compile(r"anon_inode:(\[perf_event\]|bpf-map|bpf-prog|bpf_link|\[bpf)")


def held(pid: int) -> int:
    """How many descriptors of programs, tables and places a process has; -1 without the process."""
    found = 0
    try:
        links = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208 - names are all that is wanted
    except FileNotFoundError:
        return -1
    for link in links:
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found += bool(HELD.match(os.readlink(f"/proc/{pid}/fd/{link}")))  # noqa: PTH115 - it leads to no path
    return found


def child_of(daemon: Program) -> int:
    """The child, 0 without one."""
    for home in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((home / "stat").read_text().rpartition(")")[2].split()[1])
            is_child = b"oomcast_collectors.ebpf.child" in (home / "cmdline").read_bytes()
        except OSError:
            continue
        if parent == daemon.process.pid and is_child:
            return int(home.name)
    return 0


def attached(daemon: Program, name: str = "mallocs") -> bool:
    return (daemon.value("oomcast_ebpf_probe_points", f'probe="{name}"') or 0) > 0


def settings(folder: Path, *, enabled: str = "true", probes: str = "[mallocs]") -> str:
    ebpf = f"enabled: {enabled}, probes: {probes}, folder: {folder}, targets: {{processes: [leak]}}"
    off = OUR_OWN_OFF.replace("ebpf: {enabled: false}", f"ebpf: {{{ebpf}}}")
    return f'http: {{listen: "127.0.0.1:{{port}}"}}\n{off}\n'


def mounts() -> list[str]:
    return Path("/proc/mounts").read_text().splitlines()


def gone(pid: int) -> bool:
    return held(pid) <= 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    own = tmp_path / "probes"
    own.mkdir()
    probe(own, "mallocs", MALLOC, COUNTING)
    return own


def end(daemon: Program) -> None:
    assert daemon.end()[0] == 0


def kill(daemon: Program) -> None:
    daemon.end(signal.SIGKILL)


def end_the_child(daemon: Program) -> None:
    os.kill(child_of(daemon), signal.SIGKILL)


@pytest.mark.parametrize("finish", [end, kill, end_the_child])
def test_nothing_is_left(finish: Callable[[Program], None], tmp_path: Path, folder: Path) -> None:
    before = mounts()
    with Target(build("leak")) as target, program(tmp_path, settings(folder)) as daemon:
        until(lambda: attached(daemon), 40)
        child = child_of(daemon)
        assert held(child) > 5
        assert held(daemon.process.pid) == 0
        target.step()
        finish(daemon)
        until(lambda: gone(child), 5)
        assert mounts() == before
        # It goes on as if nothing had been, in functions that are as they were.
        assert target.step()["phase"] == "calloc"
        if finish is end_the_child:
            until(lambda: daemon.value("oomcast_ebpf_child_starts_total") == 2 and attached(daemon), 40)
            assert child_of(daemon) != child


def test_new_settings_take_a_new_child(tmp_path: Path, folder: Path) -> None:
    probe(folder, "others", MALLOC.replace("symbol: malloc", "symbol: calloc"), COUNTING)
    with Target(build("leak")), program(tmp_path, settings(folder)) as daemon:
        until(lambda: attached(daemon), 40)
        first = child_of(daemon)
        daemon.settings(settings(folder, probes="[others]"))
        daemon.reload()
        until(lambda: attached(daemon, "others"), 40)
        assert gone(first)
        assert not attached(daemon, "mallocs")
        second = child_of(daemon)
        assert second not in (0, first)
        daemon.settings(settings(folder, enabled="false"))
        daemon.reload()
        until(lambda: gone(second), 10)
        assert child_of(daemon) == 0


def test_a_child_that_hangs_is_ended_in_time(tmp_path: Path, folder: Path) -> None:
    with Target(build("leak")), program(tmp_path, settings(folder)) as daemon:
        until(lambda: attached(daemon), 40)
        child = child_of(daemon)
        os.kill(child, signal.SIGSTOP)
        code, seconds = daemon.end()
        assert (code, seconds < 5) == (0, True)
        until(lambda: gone(child), 5)
