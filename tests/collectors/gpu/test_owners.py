"""From a pid to a process, its cgroup and its owner."""

import logging
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.cgroup import trees
from collectors.cgroup.conftest import MakeBench, bench
from collectors.host.trees import write_process
from fakes import FakeClock
from oomcast.contract import Context, Roots
from oomcast_collectors.cgroup_names import below
from oomcast_collectors.gpu import owners
from oomcast_collectors.gpu.owners import Owners, Process
from oomcast_collectors.host.files import read_once
from oomcast_collectors.membership import memory_cgroup

__all__ = ["bench"]
LOG = logging.getLogger("oomcast.gpu")


def make(roots: Roots, clock: FakeClock | None = None) -> Owners:
    return Owners(Context(roots, clock or FakeClock(), LOG, lambda facts: None))


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files of /proc that are read, from now on."""
    seen: list[str] = []

    def noted(path: str, limit: int) -> bytes:
        seen.append(path)
        return read_once(path, limit)

    monkeypatch.setattr(owners, "read_once", noted)
    return seen


def test_a_real_process_lives_and_dies(child: "subprocess.Popen[bytes]") -> None:
    own = make(Roots())
    found = own.process(child.pid)
    start = int(Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19])
    path = memory_cgroup(Path("/proc/self/cgroup").read_bytes())
    assert (found.pid, found.start, found.name, found.path) == (child.pid, start, "sleep", path)
    assert own.alive(found) is True
    assert 0 <= own.age(found) < 60
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert own.alive(found) is False  # a zombie
    assert Path(f"/proc/{child.pid}").exists()
    child.wait()
    assert own.alive(found) is False
    # While the driver lists it, it is who it was.
    assert own.process(child.pid) == found
    own.keep(set())
    assert own.process(child.pid) == Process(child.pid)


def test_a_known_process_costs_one_read(tmp_path: Path, reads: list[str]) -> None:
    write_process(tmp_path, 7, "vllm")
    own = make(Roots(proc=tmp_path))
    first = own.process(7)
    reads.clear()
    assert own.process(7) is first
    assert reads == [f"{tmp_path}/7/stat"]


def test_a_pid_that_is_not_there_is_asked_for_again_after_ten_seconds(tmp_path: Path, reads: list[str]) -> None:
    clock = FakeClock()
    own = make(Roots(proc=tmp_path), clock)
    assert own.process(7) == Process(7)
    write_process(tmp_path, 7, "vllm", start=5)
    clock.advance(9.9)
    own.keep({7})
    assert own.process(7).start is None
    assert len(reads) == 1
    clock.advance(0.1)
    assert own.process(7) == Process(7, 5, "vllm", "/system.slice/x.service", "/system.slice/x.service")


def test_a_pid_that_left_the_list_is_asked_for_at_once(tmp_path: Path) -> None:
    own = make(Roots(proc=tmp_path))
    assert own.process(7).start is None
    write_process(tmp_path, 7, "vllm", start=5)
    own.keep(set())
    assert own.process(7).start == 5


def test_a_reused_pid_is_another_process(tmp_path: Path) -> None:
    write_process(tmp_path, 7, "vllm", start=5)
    own = make(Roots(proc=tmp_path))
    first = own.process(7)
    write_process(tmp_path, 7, "bash", start=6, cgroup="0::/b\n")
    assert (own.process(7).start, own.process(7).name, own.process(7).cgroup) == (6, "bash", "/b")
    assert own.alive(first) is False


def test_a_process_that_became_another_program(tmp_path: Path) -> None:
    write_process(tmp_path, 7, "bash", cgroup="0::/a\n")
    own = make(Roots(proc=tmp_path))
    own.process(7)
    write_process(tmp_path, 7, "vllm", cgroup="0::/b\n")
    assert own.process(7) == Process(7, 100, "vllm", "/b", "/b")


def test_one_that_is_ending_is_not_alive(tmp_path: Path) -> None:
    write_process(tmp_path, 7, "vllm")
    own = make(Roots(proc=tmp_path))
    found = own.process(7)
    write_process(tmp_path, 7, "vllm", flags=0x400004)
    assert own.alive(found) is False
    assert own.alive(Process(8)) is None


def test_a_kernel_thread_holds_nothing(tmp_path: Path) -> None:
    write_process(tmp_path, 7, "kworker/0:1", flags=0x200040)
    assert make(Roots(proc=tmp_path)).process(7) == Process(7)


@pytest.mark.parametrize("stat", [b"", b"7 (x", b"\xff" * 9000])
def test_garbage_is_no_process(tmp_path: Path, stat: bytes) -> None:
    write_process(tmp_path, 7, "x")
    (tmp_path / "7/stat").write_bytes(stat)
    assert make(Roots(proc=tmp_path)).process(7) == Process(7)


def test_a_process_without_a_readable_cgroup_has_its_name_and_gets_its_cgroup_later(tmp_path: Path) -> None:
    write_process(tmp_path, 7, "vllm")
    cgroup = tmp_path / "7/cgroup"
    kept = cgroup.rename(tmp_path / "kept")
    own = make(Roots(proc=tmp_path))
    assert own.process(7) == Process(7, 100, "vllm")
    assert own.owner(own.process(7)) == ""
    kept.rename(cgroup)
    assert own.process(7).cgroup == "/system.slice/x.service"


def test_what_cannot_be_looked_at_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for pid in (7, 8):
        (tmp_path / str(pid) / "stat").mkdir(parents=True)
    own = make(Roots(proc=tmp_path))
    assert [own.process(pid).start for pid in (7, 8)] == [None, None]
    assert [r.getMessage() for r in caplog.records] == [
        "a process of a GPU cannot be looked at: [Errno 21] Is a directory"
    ]
    assert own.alive(Process(7, 100)) is None


def test_the_age_by_the_uptime(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    own = make(Roots(proc=tmp_path))
    assert [own.age(Process(7, 60 * ticks)) for _ in range(2)] == [0, 0]
    assert len(caplog.records) == 1
    (tmp_path / "uptime").write_text("100.00 7\n")
    assert [own.age(Process(7, start)) for start in (60 * ticks, 200 * ticks, None)] == [40, 0, 0]


@pytest.mark.parametrize(
    ("tree", "line", "path", "label"),
    [
        ("v2-k8s", "0::{}", trees.SERVER, trees.SERVER),
        ("hybrid", "4:memory:{}\n0::/elsewhere", "/system.slice/vllm.service", None),
        ("v1-docker", "4:memory:/outer{}", f"/docker/{trees.SERVER_ID}", f"/docker/{trees.SERVER_ID}"),
        ("v1-docker", "4:memory:/elsewhere{}", f"/docker/{trees.SERVER_ID}", ""),
    ],
)
def test_the_label_is_that_of_the_cgroup_collector(
    tmp_path: Path, bench: MakeBench, tree: trees.TreeName, line: str, path: str, label: str | None
) -> None:
    host = trees.copy(tree, tmp_path)
    if tree == "v1-docker":
        table = host.proc / "self/mountinfo"
        table.write_text(table.read_text().replace(" / /sys/fs/cgroup/memory ", " /outer /sys/fs/cgroup/memory "))
    shown = bench(host).run().shown()
    path = path if label is not None else min(shown)
    write_process(host.proc, 7, "vllm", cgroup=line.format(path) + "\n")
    found = make(Roots(proc=host.proc, pods=host.pods, host=host.root)).process(7)
    assert found.cgroup == (path if label is None else label)
    assert (found.cgroup in shown) is (label != "")


def test_the_owner_is_a_pod_once_its_name_is_known(tmp_path: Path) -> None:
    host = trees.copy("v2-k8s", tmp_path)
    write_process(host.proc, 7, "vllm", cgroup=f"0::{trees.SERVER}\n")
    clock = FakeClock()
    own = make(Roots(proc=host.proc, pods=host.pods, host=host.root), clock)
    host.pods.rename(tmp_path / "later")
    assert own.owner(own.process(7)) == f"pod:{trees.POD_UID}/{trees.SERVER_ID[:12]}"
    (tmp_path / "later").rename(host.pods)
    clock.advance(10)
    assert own.owner(own.process(7)) == "llm/vllm-0/server"


def test_the_owner_of_one_outside_of_the_mount(tmp_path: Path) -> None:
    path = f"/docker/{trees.SERVER_ID}"
    assert make(Roots(proc=tmp_path)).owner(Process(7, 100, "x", "", path)) == f"docker:{trees.SERVER_ID[:12]}"


def test_the_mount_table_is_read_once_a_minute_and_only_for_new_processes(tmp_path: Path) -> None:
    host = trees.copy("v2-root", tmp_path)
    table = (host.proc / "self/mountinfo").read_text()
    clock = FakeClock()
    own = make(Roots(proc=host.proc, host=host.root), clock)
    for pid in (7, 8, 9):
        write_process(host.proc, pid, "vllm", cgroup="0::/a/b\n")
    assert own.process(7).cgroup == "/a/b"
    host.mountinfo(table.replace(" / /sys/fs/cgroup ", " /a /sys/fs/cgroup "))
    clock.advance(59)
    assert own.process(8).cgroup == "/a/b"
    clock.advance(1)
    assert own.process(9).cgroup == "/b"
    shutil.rmtree(host.proc / "self")
    clock.advance(60)
    own.keep({7})
    assert own.process(9).cgroup == "/b"


@pytest.mark.parametrize(
    ("path", "mounted", "shown"),
    [
        ("/a/b", "/", "/a/b"),
        ("/", "/", "/"),
        ("/docker/1", "/docker/1", "/"),
        ("/docker/1/x", "/docker/1", "/x"),
        ("/docker/12", "/docker/1", ""),
        ("/../../a", "/../..", "/a"),
        ("/../a", "/../..", ""),
        ("/../../../a", "/../..", ""),
        ("/../a", "/", ""),
        ("/..a", "/", "/..a"),
        ("", "/", ""),
    ],
)
def test_paths_in_a_mount(path: str, mounted: str, shown: str) -> None:
    assert below(path, mounted) == shown
