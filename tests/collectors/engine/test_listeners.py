"""Who listens where, with real servers."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.engine.programs import Program, ending
from fakes import FakeClock
from oomcast.contract import Context, Roots
from oomcast_collectors import descriptors as descriptors_module
from oomcast_collectors.descriptors import descriptors
from oomcast_collectors.engine.listeners import Listener, Listeners
from requires import needs

LOG = logging.getLogger("oomcast.engine")


def make(proc: Path = Path("/proc")) -> Listeners:
    return Listeners(Context(Roots(proc=proc), FakeClock(), LOG, lambda facts: None))


@pytest.fixture
def started() -> Iterator[list[Program]]:
    with ending() as programs:
        yield programs


def start(started: list[Program], folder: Path, **how: object) -> Program:
    started.append(Program(folder, "listener", **how))  # type: ignore[arg-type]
    return started[-1]


@pytest.mark.parametrize(
    ("bound", "how", "address"),
    [
        ("127.0.0.1", "http", "127.0.0.1"),
        ("0.0.0.0", "http", "127.0.0.1"),
        ("::1", "http", "::1"),
        ("::", "http", "::1"),
        ("::", "v6only", "::1"),
    ],
)
def test_a_server_on_this_machine(started: list[Program], tmp_path: Path, bound: str, how: str, address: str) -> None:
    program = start(started, tmp_path, address=bound, how=how)
    (found,) = make().of([program.pid])
    assert found[:3] == (program.pid, address, program.port)
    assert address in found.answers
    assert found.host == (f"[::1]:{program.port}" if ":" in address else f"127.0.0.1:{program.port}")
    assert ("127.0.0.1" in found.answers) == (bound != "::1")


def test_all_ports_of_all_processes_and_no_others(started: list[Program], tmp_path: Path) -> None:
    one, two = start(started, tmp_path, ports=3), start(started, tmp_path)
    found = {(listener.pid, listener.port) for listener in make().of([one.pid, two.pid, os.getppid()])}
    assert found >= {(one.pid, port) for port in one.ports} | {(two.pid, two.port)}
    assert [listener.pid for listener in make().of([two.pid])] == [two.pid]


def test_a_socket_that_was_inherited_is_that_of_both(started: list[Program], tmp_path: Path) -> None:
    program = start(started, tmp_path, how="forked")
    (child,) = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
    assert [listener.pid for listener in make().of([int(child), program.pid])] == sorted([program.pid, int(child)])
    look = make()
    assert look.holder(look.own().at(program.port, ["127.0.0.1"])) == min(program.pid, int(child))


def test_processes_that_ended(started: list[Program], tmp_path: Path) -> None:
    program, other = start(started, tmp_path), start(started, tmp_path)
    program.process.kill()
    os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
    assert make().of([program.pid, other.pid]) == make().of([other.pid])  # a zombie
    program.process.wait()
    assert len(make().of([program.pid, other.pid])) == 1


def test_who_has_a_socket(started: list[Program], tmp_path: Path) -> None:
    program = start(started, tmp_path)
    look = make()
    sockets = look.own().at(program.port, ["127.0.0.1"])
    assert look.holder(sockets) == program.pid
    assert look.own().at(program.port, ["::1"]) == set()
    program.end()
    assert look.own().at(program.port, ["127.0.0.1"]) == set()
    assert look.holder(sockets) is None


POD = ("unshare", "--net")


@needs("netns")
def test_a_pod_is_reached_at_its_own_address(started: list[Program], tmp_path: Path) -> None:
    everywhere = start(started, tmp_path, address="0.0.0.0", around=POD)
    look = make()
    assert (look.of([everywhere.pid]), look.unreachable) == ([], 1)  # it has no address yet
    for command in (
        "ip link set lo up",
        "ip link add eth0 type veth peer name peer0",
        "ip addr add 10.77.0.5/24 dev eth0",
        "ip link set eth0 up",
        "ip link set peer0 up",
        "ip route add default via 10.77.0.1",
    ):
        subprocess.run(["nsenter", "--net", "--target", str(everywhere.pid), *command.split()], check=True)
    both = frozenset({"127.0.0.1", "10.77.0.5"})
    assert look.of([everywhere.pid]) == [Listener(everywhere.pid, "10.77.0.5", everywhere.port, both)]
    assert look.unreachable == 0
    # Ours is not the pod's, though the number is the same.
    assert look.own().at(everywhere.port, ["127.0.0.1", "10.77.0.5"]) == set()


@needs("netns")
def test_loopback_of_a_pod_is_counted(started: list[Program], tmp_path: Path) -> None:
    loopback = ("sh", "-c", 'ip link set lo up && exec "$@"', "sh")
    inner = start(started, tmp_path, around=(*POD, *loopback))
    outer = start(started, tmp_path)
    look = make()
    assert [listener.pid for listener in look.of([inner.pid, outer.pid])] == [outer.pid]
    assert look.unreachable == 1


DENIED = """
import json, logging, os, sys
from pathlib import Path
from fakes import FakeClock
from oomcast.contract import Context, Roots
from oomcast_collectors.engine import listeners
from oomcast_collectors.engine.listeners import Listeners
pid = int(sys.argv[1])
logging.basicConfig(stream=sys.stdout, format="%(message)s")
look = Listeners(Context(Roots(), FakeClock(), logging.getLogger(), lambda facts: None))
if os.geteuid() == 0:
    os.seteuid(65534)
for _ in range(2):
    print(json.dumps([look.of([pid]), look.holder(look.own().at(int(sys.argv[2]), ["127.0.0.1"]))]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="gives up being root")
def test_what_may_not_be_looked_into_is_told_once(started: list[Program], tmp_path: Path) -> None:
    program = start(started, tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", DENIED, str(program.pid), str(program.port)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )
    told, *results = done.stdout.splitlines()
    assert "CAP_SYS_PTRACE" in told
    assert [json.loads(line) for line in results] == [[[], None]] * 2


def test_descriptors_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors_module, "_MOST_DESCRIPTORS", 3)
    folder = tmp_path / "7/fd"
    folder.mkdir(parents=True)
    for number in range(10):
        (folder / str(number)).symlink_to(f"socket:[{number}]")
    assert len(list(descriptors(str(tmp_path), 7))) == 3
