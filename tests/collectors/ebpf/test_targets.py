"""Who is followed, from a /proc that a test writes: names that are hostile, pids that are used again."""

from pathlib import Path

import pytest

from fakes import FakeClock
from oomcast.contract import Roots
from oomcast_collectors.ebpf.child.part import Process
from oomcast_collectors.ebpf.child.targets import OTHER, Targets
from oomcast_collectors.ebpf.settings import Targets as Settings

STAT = b"%d (%s) %s %d 1 1 0 -1 %d 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0 0\n"
EXITING, KERNEL = 0x4, 0x200000


class Machine:
    """A /proc, the targets in it, and what they told: +name or -name, with the pid."""

    def __init__(self, root: Path, settings: Settings, serving: tuple[str, ...] = ()) -> None:
        self.proc = root / "proc"
        self.proc.mkdir()
        self.told: list[tuple[str, int]] = []
        roots = Roots(proc=self.proc, pods=root / "pods")
        self.targets = Targets(settings, serving, roots, FakeClock(), self._changed)

    def _changed(self, process: Process, came: bool) -> None:
        self.told.append((f"{'+' if came else '-'}{process.name}", process.pid))

    def process(
        self, pid: int, comm: bytes, *, start: int = 100, parent: int = 1, flags: int = 0, cgroup: str = "0::/a\n"
    ) -> None:
        home = self.proc / str(pid)
        home.mkdir(exist_ok=True)
        (home / "stat").write_bytes(STAT % (pid, comm, b"S", parent, flags, start))
        (home / "cmdline").write_bytes(comm + b"\0")
        (home / "cgroup").write_text(cgroup)

    def end(self, pid: int) -> None:
        for file in (self.proc / str(pid)).iterdir():
            file.unlink()
        (self.proc / str(pid)).rmdir()

    def scan(self) -> list[tuple[str, int]]:
        self.targets.scan()
        return self.said()

    def said(self) -> list[tuple[str, int]]:
        told, self.told = self.told, []
        return told


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, Settings.model_validate({"processes": ["*server*"]}))


def test_they_come_and_go(machine: Machine) -> None:
    machine.process(7, b"server")
    machine.process(8, b"other")
    assert machine.scan() == [("+server", 7)]
    assert machine.scan() == []
    machine.end(7)
    assert machine.scan() == [("-server", 7)]
    assert len(machine.targets) == 0


def test_engines_are_followed_unless_they_are_not_wanted(tmp_path: Path) -> None:
    for name, engines, told in (("a", True, [("+server", 7)]), ("b", False, [])):
        (tmp_path / name).mkdir()
        machine = Machine(tmp_path / name, Settings.model_validate({"engines": engines}), ("server",))
        machine.process(7, b"server")
        assert machine.scan() == told


def test_a_pid_that_is_used_again_is_another_process(machine: Machine) -> None:
    machine.process(7, b"server")
    machine.scan()
    machine.process(7, b"server", start=200)
    assert machine.scan() == [("-server", 7), ("+server", 7)]
    machine.process(7, b"innocent", start=300)
    assert machine.scan() == [("-server", 7)]


def test_what_a_target_forks_is_followed_under_its_name(machine: Machine) -> None:
    machine.process(7, b"server")
    machine.scan()
    machine.process(9, b"worker", parent=7)
    machine.targets.forked(7, 9)
    assert machine.said() == [("+server", 9)]
    machine.targets.forked(7, 9)
    machine.targets.forked(8, 10)
    machine.targets.forked(7, 11)  # gone already
    assert machine.said() == []
    assert machine.scan() == []
    machine.targets.executed(9)
    assert machine.said() == [("-server", 9), ("+server", 9)]


def test_one_that_executes_something_else_stays(machine: Machine) -> None:
    machine.process(7, b"server")
    machine.scan()
    machine.process(7, b"python")
    machine.targets.executed(7)
    assert machine.said() == [("-server", 7), ("+server", 7)]
    assert machine.scan() == []


def test_the_first_thread_ends_and_another_executes_something(machine: Machine) -> None:
    machine.process(7, b"server")
    machine.scan()
    machine.process(7, b"server", flags=EXITING)
    machine.targets.ended(7)
    assert machine.said() == [("-server", 7)]
    machine.process(7, b"python")
    machine.targets.executed(7)
    assert machine.said() == [("+server", 7)]


def test_a_pid_that_is_used_again_at_once(machine: Machine) -> None:
    machine.process(7, b"server")
    machine.scan()
    machine.process(7, b"innocent", start=101)
    machine.targets.ended(7)
    assert machine.said() == [("-server", 7)]
    machine.targets.executed(7)
    assert machine.said() == []


def test_an_end_that_is_none_yet(machine: Machine) -> None:
    machine.process(7, b"server")
    machine.scan()
    machine.targets.ended(7)
    assert machine.said() == []
    machine.process(7, b"server", flags=EXITING)
    machine.targets.ended(7)
    machine.targets.ended(7)
    assert machine.said() == [("-server", 7)]


@pytest.mark.parametrize("flags", [EXITING, KERNEL])
def test_what_cannot_be_followed(machine: Machine, flags: int) -> None:
    machine.process(7, b"server", flags=flags)
    assert machine.scan() == []


@pytest.mark.parametrize("text", [b"", b"7", b"7 (server", b"7 (server) S x\n", b"\xff" * 5000])
def test_a_stat_that_is_none(machine: Machine, text: bytes) -> None:
    machine.process(7, b"server")
    machine.process(8, b"server")
    (machine.proc / "7" / "stat").write_bytes(text)
    assert machine.scan() == [("+server", 8)]


@pytest.mark.parametrize(
    "comm", [b'server"} 1', b"server\nx 1", b"server) R 1 1", b"server\xff\xfe", b"server\\", b"server\xc3"]
)
def test_names_that_are_made_to_break_something(machine: Machine, comm: bytes) -> None:
    machine.process(7, comm)
    assert machine.scan() == [("+server", 7)]
    (process,) = machine.targets
    assert process.comm.encode().decode() == process.comm


def test_there_is_an_end_to_names(tmp_path: Path) -> None:
    machine = Machine(tmp_path, Settings.model_validate({"processes": ["*"], "most": 1000}))
    for pid in range(2, 302):
        machine.process(pid, b"server-%d" % pid)
    names = {name for name, _ in machine.scan()}
    assert len(names) == 65
    assert f"+{OTHER}" in names
    assert len(machine.targets) == 300


def test_there_is_an_end_to_processes_and_the_oldest_come_first(tmp_path: Path) -> None:
    machine = Machine(tmp_path, Settings.model_validate({"processes": ["server"], "most": 3}))
    for pid, start in ((11, 500), (12, 400), (13, 300), (14, 200), (15, 100)):
        machine.process(pid, b"server", start=start)
    assert [pid for _, pid in machine.scan()] == [15, 14, 13]
    machine.process(20, b"server")
    machine.targets.forked(15, 20)
    assert machine.said() == []
    machine.end(14)
    machine.scan()
    assert len(machine.targets) == 3


def test_containers(tmp_path: Path) -> None:
    machine = Machine(tmp_path, Settings.model_validate({"engines": False, "containers": ["web-*", "abc*"]}))
    ident = "abc" + "0" * 61
    machine.process(7, b"python", cgroup=f"0::/system.slice/docker-{ident}.scope\n")
    machine.process(8, b"python", cgroup=f"0::/system.slice/docker-{'d' * 64}.scope\n")
    machine.process(9, b"python", cgroup="garbage")
    assert [pid for _, pid in machine.scan()] == [7]
    assert next(iter(machine.targets)).cgroup == f"/system.slice/docker-{ident}.scope"


def test_forks_make_room_for_whoever_is_named(tmp_path: Path) -> None:
    machine = Machine(tmp_path, Settings.model_validate({"processes": ["server"], "most": 3}))
    machine.process(7, b"server")
    machine.scan()
    for pid, start in ((20, 200), (21, 300), (22, 400)):
        machine.process(pid, b"worker", start=start, parent=7)
        machine.targets.forked(7, pid)
    assert machine.said() == [("+server", 20), ("+server", 21)]
    machine.process(9, b"server", start=500)
    assert machine.scan() == [("-server", 21), ("+server", 9)]
    machine.process(10, b"server", start=600)
    machine.process(11, b"server", start=700)
    assert machine.scan() == [("-server", 20), ("+server", 10)]
