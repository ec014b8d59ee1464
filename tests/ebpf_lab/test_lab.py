"""The programs without a tracer: each compiles, goes through its phases, and what it says of itself holds."""

import itertools
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ebpf_lab.lab import Target, TargetError, build
from ebpf_lab.recipes import CRASHES
from requires import needs

pytestmark = needs("cc")

LEAK_PHASES = ["malloc", "calloc", "realloc", "aligned", "failing", "leaks", "leaks"]


def steps(target: Target, count: int) -> list[dict[str, Any]]:
    return [target.step() for _ in range(count)]


def live(said: dict[str, Any]) -> int:
    return int(said["bytes"]) - int(said["freed_bytes"])


def status(pid: int) -> dict[str, str]:
    """/proc/PID/status by key."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def mapped(pid: int) -> int:
    """Bytes of address space."""
    return int(status(pid)["VmSize"].removesuffix(" kB")) * 1024


@pytest.mark.parametrize("name", ["leak", "static", "stripped", "nofp"])
def test_leak(name: str) -> None:
    with Target(build(name)) as target:
        said = steps(target, len(LEAK_PHASES))
        assert [one["phase"] for one in said] == LEAK_PHASES
        assert [one["failures"] for one in said] == [0, 0, 0, 0, 7, 7, 7]
        assert all(a["allocs"] <= b["allocs"] and a["frees"] <= b["frees"] for a, b in itertools.pairwise(said))
        first, second = said[-2:]
        small, big = (second["outstanding"][function] for function in ("leak_small", "leak_big"))
        assert small["bytes"] < big["bytes"]
        assert small["blocks"] > big["blocks"]
        assert live(second) - live(first) == (small["bytes"] + big["bytes"]) // 2
        assert ("libc.so" in Path(f"/proc/{target.pid}/maps").read_text()) == (name != "static")


def test_how_the_leaks_differ() -> None:
    def first_instructions(name: str) -> str:
        command = ["objdump", "-d", "--no-show-raw-insn", "--disassemble=leak_small", str(build(name))]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "push   %rbp" in first_instructions("leak")
    assert "push   %rbp" not in first_instructions("nofp")
    said = subprocess.run(["nm", str(build("stripped"))], capture_output=True, text=True, check=True)
    assert (said.stdout, said.stderr.endswith(": no symbols\n")) == ("", True)


def test_ages() -> None:
    with Target(build("ages"), "+100x4096", "+10x100", "-0x30", "-1") as target:
        old, young, thinned, gone = (one["generations"] for one in steps(target, 4))
    assert [(one["blocks"], one["bytes"]) for one in young] == [(100, 409600), (10, 1000)]
    assert [(one["blocks"], one["bytes"]) for one in thinned] == [(70, 286720), (10, 1000)]
    assert [(one["blocks"], one["bytes"]) for one in gone] == [(70, 286720), (0, 0)]
    moments = [*gone[0]["born_ns"], *gone[1]["born_ns"]]
    assert moments == sorted(moments)
    assert gone[0]["born_ns"] == old[0]["born_ns"]


def test_flows_are_the_kernels() -> None:
    with Target(build("flows")) as target:
        before = mapped(target.pid)
        for _ in range(8):
            said = target.step()
            kinds = [said[kind]["live_bytes"] for kind in ("anonymous", "file", "brk")]
            assert mapped(target.pid) - before == sum(kinds), said
    assert said["phase"] == "break"
    assert said["anonymous"]["failures"] == 4
    assert min(kinds) > 0


def test_threads() -> None:
    with Target(build("threads")) as target:
        assert status(target.pid)["Threads"] == "9"
        allocated, freed = steps(target, 2)
    assert allocated["allocs"] == 8000
    assert freed["frees"] == 4000
    assert freed["freed_bytes"] * 2 == freed["bytes"] == allocated["bytes"]


def test_forks() -> None:
    with Target(build("forks"), "3") as target:
        parent, forked, allocated, exited, burst, execed, exec_allocated, exec_exited = steps_of_forks(target)
    assert parent["allocs"] == exec_exited["allocs"] == 100
    assert len({*forked["children"], *burst["children"], *execed["children"]}) == 7
    assert forked["children"] == allocated["children"] == exited["children"]
    assert execed["children"] == exec_allocated["children"] == exec_exited["children"]


def steps_of_forks(target: Target) -> list[dict[str, Any]]:
    """All steps, while the children are seen to be there in those that say so."""
    said = []
    for phase in ("parent", "forked", "allocated", "exited", "burst", "execed", "exec_allocated", "exec_exited"):
        said.append(target.step())
        assert said[-1]["phase"] == phase
        there = [Path(f"/proc/{pid}").exists() for pid in said[-1]["children"]]
        assert there == [phase in ("forked", "allocated", "execed", "exec_allocated")] * len(there)
    return said


def test_quick() -> None:
    with Target(build("quick")) as target:
        target.go()
        assert target.wait() == 0


def test_storm() -> None:
    with Target(build("storm"), "20000") as target:
        said = target.step()
    assert (said["allocs"], said["bytes"], said["frees"]) == (20000, 1280000, 0)
    assert said["ns"] >= 199e6  # 20,000 blocks, 100 each millisecond


def test_bench() -> None:
    with Target(build("bench"), "10000") as target:
        for said in steps(target, 2):
            assert said["pairs"] == 50000
            assert 1 < said["ns_per_pair"] < 10000


@pytest.mark.parametrize("kind", CRASHES)
def test_crash(kind: str) -> None:
    expected = CRASHES[kind]
    with Target(build("crash"), kind) as target:
        target.go()
        if expected is None:
            assert target.said() == {"phase": "survived"}
            target.go()
        assert target.wait() == -(expected or 0)


def test_a_crash_with_a_delay() -> None:
    with Target(build("crash"), "abort", "60000", patience=0.1) as target:
        target.go()
        with pytest.raises(TargetError, match="said nothing"):
            target.said()


def test_faults(tmp_path_on_disk: Path) -> None:
    names = ["weights.safetensors", "libweights.so.1", "other"]
    for name in names:
        (tmp_path_on_disk / name).write_bytes(os.urandom(300_000))
    with Target(build("faults"), *(tmp_path_on_disk / name for name in names)) as target:
        for said in steps(target, len(names)):
            assert said["major_faults"] == said["pages"] == 74


@pytest.mark.parametrize(
    ("command", "reason"),
    [(("true",), "is gone"), (("sleep", "60"), "said nothing for 0.5 s"), (("echo", "ready"), "said b'ready'")],
)
def test_what_is_no_target(command: tuple[str, ...], reason: str) -> None:
    with pytest.raises(TargetError, match=reason):
        Target(*command, patience=0.5)


def test_a_target_that_is_gone_tells_its_last_words() -> None:
    script = 'echo "{\\"pid\\": $$}"; read step; echo gave up >&2'
    with Target("sh", "-c", script) as target, pytest.raises(TargetError, match="is gone: gave up"):
        target.step()
