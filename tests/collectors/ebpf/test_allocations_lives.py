"""What processes do in their lives: begin before anybody looks, fork, execute, end, and allocate more than is kept."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from collectors.ebpf.followed import counted, expect, follow, outstanding, own, program
from collectors.ebpf.live import Live
from ebpf_lab.lab import Target
from oomcast.contract import Event
from requires import needs

pytestmark = needs("ebpf", "cc")

LIVE = 4096
SETTINGS = {"libc": "full", "budget": 100, "live": LIVE, "ages": [0.5, 2.0], "leak_age": 0.5, "leak_bytes": 1_500_000}
PROGRAMS = ("threads", "leak", "leaks", "forks", "execs", "ages", "storm")
LATENCY = 2.5
"""Seconds between two reports, and between two looks at ages, at most, on a busy machine."""


@pytest.fixture(scope="module")
def early() -> Iterator[Target]:
    """Allocates before it is followed."""
    with program("threads") as (_, target):
        target.step()
        yield target


@pytest.fixture(scope="module")
def followed(early: Target) -> Iterator[Live]:
    targets = {"engines": False, "processes": [own(name) for name in PROGRAMS]}
    with Live(["allocations"], targets, {"allocations": SETTINGS}) as live:
        follow(live, own("threads"))
        yield live


def libc(live: Live, name: str) -> Mapping[str, Any]:
    return counted(live, own(name), "libc")


def test_what_was_given_before_is_not_known(early: Target, followed: Live) -> None:
    said = early.step()
    unknown = "oomcast_alloc_unknown_frees_total", own("threads"), "libc"
    followed.until(lambda: followed.value(*unknown) == said["frees"], 5.0)
    nothing = {"allocs": 0, "bytes": 0, "frees": 0, "freed_bytes": 0, "failures": 0}
    assert libc(followed, "threads") == nothing
    assert outstanding(followed, own("threads"), "libc") == 0


def leaks(live: Live, pid: int) -> list[Event]:
    return [event for event in live.events if event.fields.get("pid") == pid and event.fields["kind"] == "libc"]


def test_a_leak_is_told_with_its_stacks(followed: Live) -> None:
    with program("leak") as (name, target):
        follow(followed, name)
        said = [target.step() for _ in range(6)][-1]
        left, pid = said["bytes"] - said["freed_bytes"], target.pid
        followed.until(lambda: any(event.fields["bytes"] == left for event in leaks(followed, pid)), 10.0)
    event = leaks(followed, pid)[-1]
    assert (event.kind, event.fields["process"]) == ("allocation_leak", name)
    large, small = said["outstanding"]["leak_big"], said["outstanding"]["leak_small"]
    stacks = [str(value).splitlines() for key, value in event.fields.items() if key.startswith("stack_")]
    functions = {lines[0]: [line.split("+")[0] for line in lines[1:4]] for lines in stacks}
    assert functions[f"{large['bytes']} bytes in {large['blocks']} blocks"] == ["leak_big", "leak_both", "main"]
    assert functions[f"{small['bytes']} bytes in {small['blocks']} blocks"] == ["leak_small", "leak_both", "main"]


def test_a_leak_is_told_again_when_it_has_grown_by_half(followed: Live) -> None:
    with program("leak", called="leaks") as (name, target):
        follow(followed, name)
        for _ in range(6):
            target.step()
        followed.until(lambda: bool(leaks(followed, target.pid)), 10.0)
        followed.settle()
        told = len(leaks(followed, target.pid))
        followed.settle()
        assert len(leaks(followed, target.pid)) == told
        target.step()
        followed.until(lambda: len(leaks(followed, target.pid)) > told, 10.0)


def test_children(followed: Live) -> None:
    with program("forks", "5") as (name, target):
        follow(followed, name)
        expect(followed, name, "libc", target.step())
        target.step()
        follow(followed, name, 6)
        said = target.step()
        wanted = said["bytes"] + 5 * said["child"]["bytes"]
        followed.until(lambda: libc(followed, "forks")["bytes"] == wanted, 5.0)
        assert libc(followed, "forks")["allocs"] == said["allocs"] + 5 * said["child"]["allocs"]
        assert outstanding(followed, name, "libc") == wanted
        target.step()
        follow(followed, name, 1)
        followed.settle()
        # What the children counted stays; what they held is gone with them.
        assert libc(followed, "forks")["bytes"] == wanted
        assert outstanding(followed, name, "libc") == said["bytes"]


def test_a_child_that_executes_another_program(followed: Live) -> None:
    with program("forks", "1", called="execs") as (name, target):
        follow(followed, name)
        for _ in range(6):
            said = target.step()
        assert said["phase"] == "execed"
        follow(followed, name, 2)
        followed.settle()
        before = libc(followed, "execs")
        said = target.step()
        wanted = before["bytes"] + said["child"]["bytes"]
        followed.until(lambda: libc(followed, "execs")["bytes"] == wanted, 5.0)
        assert libc(followed, "execs")["allocs"] == before["allocs"] + said["child"]["allocs"]
        assert outstanding(followed, name, "libc") == said["bytes"] + said["child"]["bytes"]


def of_age(live: Live, name: str, older_than: str) -> float | None:
    return live.value("oomcast_alloc_outstanding_bytes", name, "libc", older_than)


def test_classes_of_age(followed: Live) -> None:
    with program("ages", "+7x1000", "+5x300", "-0x3") as (name, target):
        follow(followed, name)
        born = target.step()["generations"][0]["born_ns"][1] / 1e9
        followed.until(lambda: of_age(followed, name, "2") != 0)
        assert born + 2 <= time.monotonic() <= born + 2 + LATENCY
        assert [of_age(followed, name, age) for age in ("0", "0.5", "2")] == [0, 0, 7000]
        born = target.step()["generations"][1]["born_ns"][1] / 1e9
        followed.until(lambda: of_age(followed, name, "0.5") != 0)
        assert born + 0.5 <= time.monotonic() <= born + 0.5 + LATENCY
        assert [of_age(followed, name, age) for age in ("0", "0.5", "2")] == [0, 1500, 7000]
        target.step()
        followed.until(lambda: of_age(followed, name, "2") == 7000 - 3000 + 1500, 5.0)


def test_more_blocks_than_are_kept(followed: Live) -> None:
    with program("storm", str(3 * LIVE)) as (name, target):
        follow(followed, name)
        kept = sum(value for (m, _), value in followed.rows.items() if m == "oomcast_alloc_outstanding_blocks")
        expected = {key: value for key, value in target.step().items() if key in ("allocs", "bytes", "failures")}
        followed.until(lambda: libc(followed, "storm")["allocs"] == expected["allocs"], 5.0)
        followed.settle()
        assert {key: libc(followed, "storm")[key] for key in expected} == expected
        blocks = outstanding(followed, name, "libc", "blocks")
        assert outstanding(followed, name, "libc") == blocks * 64
        assert LIVE - kept - 50 < blocks <= LIVE
        lost = followed.value("oomcast_ebpf_probe_lost_total", "allocations", "blocks") or 0
        # The heap grows for them, and its parts are blocks of the same table.
        assert 0 <= lost - (expected["allocs"] - blocks) <= 20
