"""Real kills of the kernel, in a cgroup of the test's own."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.ebpf.live import Live
from host import memory_mount
from oomcast.contract import Event
from oomcast_collectors.ebpf import metrics
from oomcast_collectors.ebpf.child.deaths.oom_kills import detailed
from oomcast_collectors.ebpf.description import SHIPPED
from requires import needs

VICTIMS = metrics.VICTIMS.name
LIMIT = 32 << 20
GREEDY = "import sys; sys.stdin.read(1); bytearray(200 << 20)"

DETAILED = """name: mark_victim
ID: 609
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:int pid;\toffset:8;\tsize:4;\tsigned:1;
\tfield:__data_loc char[] comm;\toffset:12;\tsize:4;\tsigned:0;
\tfield:unsigned long total_vm;\toffset:16;\tsize:8;\tsigned:0;
\tfield:unsigned long anon_rss;\toffset:24;\tsize:8;\tsigned:0;
\tfield:unsigned long file_rss;\toffset:32;\tsize:8;\tsigned:0;
\tfield:unsigned long shmem_rss;\toffset:40;\tsize:8;\tsigned:0;
\tfield:uid_t uid;\toffset:48;\tsize:4;\tsigned:0;
"""


@pytest.fixture
def cgroup() -> Iterator[Path]:
    mount = memory_mount()
    assert mount
    version, root = mount
    path = root / f"oomcast-ebpf-{os.getpid()}"
    path.mkdir()
    (path / ("memory.limit_in_bytes" if version == 1 else "memory.max")).write_text(str(LIMIT))
    yield path
    path.rmdir()


def greedy(cgroup: Path) -> subprocess.Popen[bytes]:
    """A process in the cgroup that takes too much once it is given a byte."""
    process = subprocess.Popen([sys.executable, "-c", GREEDY], stdin=subprocess.PIPE)
    (cgroup / "cgroup.procs").write_text(str(process.pid))
    return process


def killed(live: Live, process: subprocess.Popen[bytes]) -> Event:
    process.communicate(b"x")
    assert process.returncode == -signal.SIGKILL

    def told() -> list[Event]:
        return [event for event in live.events if event.fields["pid"] == process.pid]

    live.until(lambda: bool(told()))
    live.settle()
    (event,) = told()
    return event


@pytest.mark.parametrize("followed", [False, True])
@needs("ebpf", "cgroup")
def test_a_victim_is_told_with_its_cgroup_and_memory(cgroup: Path, followed: bool) -> None:
    targets = {"engines": False, "processes": ["python*"] if followed else []}
    process = greedy(cgroup)
    with Live(["oom_kills"], targets) as live:
        live.settle()
        before = live.value(VICTIMS)
        assert before is not None
        event = killed(live, process)
        after = live.value(VICTIMS)
        assert after is not None
        assert after > before
    assert event.kind == "oom_kill"
    assert event.fields["witness"] == "ebpf"
    assert str(event.fields["comm"]).startswith("python")
    assert "limit_cgroup" not in event.fields
    if "anon_bytes" in event.fields:  # the kernel tells them
        assert (
            LIMIT / 2 < int(event.fields["anon_bytes"]) < 2 * LIMIT
        )  # what it took before it came here is not charged
        assert event.fields["uid"] == os.getuid()
    # Read while it is dying, or known before; of a stranger that was quick nothing is known, and nothing false is told.
    assert event.fields.get("cgroup", "") in ({f"/{cgroup.name}"} if followed else {"", f"/{cgroup.name}"})


@needs("ebpf", "cgroup")
def test_a_kill_by_others_is_none(cgroup: Path) -> None:
    process = greedy(cgroup)
    with Live(["oom_kills"], {"engines": False}) as live:
        live.settle()
        process.kill()
        process.communicate()
        live.settle()
        assert [event for event in live.events if event.fields["pid"] == process.pid] == []


@needs("ebpf", "cgroup")
def test_a_kernel_that_tells_the_pid_alone(cgroup: Path, tmp_path: Path) -> None:
    shutil.copy(SHIPPED / "oom_kills.yaml", tmp_path)
    program = (SHIPPED / "oom_kills.c").read_text()
    (tmp_path / "oom_kills.c").write_text(f"#undef DETAILED\n#define DETAILED 0\n{program}")
    process = greedy(cgroup)
    targets = {"engines": False, "processes": ["python*"]}
    with Live(["oom_kills"], targets, {"folder": str(tmp_path)}) as live:
        live.settle()
        event = killed(live, process)
    assert event.fields["cgroup"] == f"/{cgroup.name}"
    assert str(event.fields["comm"]).startswith("python")
    assert "anon_bytes" not in event.fields


@pytest.mark.parametrize(
    ("text", "is_detailed"),
    [
        (DETAILED, True),
        (DETAILED.partition("\tfield:__data_loc")[0], False),
        (DETAILED.replace("offset:24", "offset:32"), False),
        ("", False),
    ],
)
def test_the_format_decides(text: str, is_detailed: bool) -> None:
    assert detailed(text) == is_detailed
