"""Exact bytes of real programs: what is counted is what they say of themselves, phase by phase."""

from collections.abc import Iterator
from typing import Any

import pytest

from collectors.ebpf.followed import counted, expect, follow, outstanding, own, program
from collectors.ebpf.live import Live
from requires import needs

pytestmark = needs("ebpf", "cc")

ARENA = {"kind": "arena", "library": "@", "allocate": "arena_alloc", "free": "arena_free"}
POOL = {"kind": "pool", "library": "@", "allocate": "pool_get", "free": "pool_put"}
SETTINGS = {"libc": "full", "budget": 100, "pairs": ["cuda", "cudart", "rust", ARENA, POOL]}
PROGRAMS = ("leak", "stripped", "threads", "reallocs", "pool", "flows", "cuda", "arena", "static", "quick")
LOST = ("blocks", "calls", "ages", "ranges")
"""Not stacks: where two of them meet in a place of the kernel's table the later one is lost. The place is a hash of
addresses, which differ in each run, so that it happens in some runs and not in others; counts and bytes are kept."""


@pytest.fixture(scope="module")
def followed() -> Iterator[Live]:
    targets = {"engines": False, "processes": [own(name) for name in PROGRAMS]}
    with Live(["allocations"], targets, {"allocations": SETTINGS}) as live:
        live.until(lambda: live.reports > 0)
        yield live
        live.settle()
        assert [live.value("oomcast_ebpf_probe_lost_total", "allocations", table) for table in LOST] == [0] * 4
        assert not live.logs


def test_each_function_of_libc(followed: Live) -> None:
    with program("leak") as (process, target):
        follow(followed, process)
        for _ in range(6):
            expect(followed, process, "libc", target.step())
        heap = counted(followed, process, "brk")
        assert 0 < outstanding(followed, process, "brk") == heap["bytes"]


def test_a_program_without_symbols_of_its_own(followed: Live) -> None:
    with program("stripped") as (process, target):
        follow(followed, process)
        said = [target.step() for _ in range(6)]
        expect(followed, process, "libc", said[-1])


def test_threads(followed: Live) -> None:
    with program("threads") as (process, target):
        follow(followed, process)
        expect(followed, process, "libc", target.step())
        expect(followed, process, "libc", target.step())


def test_blocks_that_are_resized_by_threads_at_once(followed: Live) -> None:
    with program("reallocs") as (process, target):
        follow(followed, process)
        expect(followed, process, "libc", target.step())


def flows(live: Live, process: str) -> dict[str, dict[str, Any]]:
    """As the program says it."""
    mmap, brk = counted(live, process, "mmap"), counted(live, process, "brk")
    anonymous = {"mapped_bytes": mmap["bytes"], "unmapped_bytes": mmap["freed_bytes"], "failures": mmap["failures"]}
    heap = {"grown_bytes": brk["bytes"], "shrunk_bytes": brk["freed_bytes"]}
    return {
        "anonymous": {**anonymous, "live_bytes": outstanding(live, process, "mmap")},
        "brk": {**heap, "live_bytes": outstanding(live, process, "brk")},
    }


def test_mappings_and_the_break(followed: Live) -> None:
    with program("flows") as (process, target):
        follow(followed, process)
        for _ in range(8):
            said = target.step()
            wanted = {key: said[key] for key in ("anonymous", "brk")}
            followed.until(lambda wanted=wanted: flows(followed, process) == wanted, 5.0)  # type: ignore[misc] # bound late
        assert counted(followed, process, "brk")["failures"] == 1
        assert followed.value("oomcast_alloc_unknown_frees_total", process, "mmap") == 0


@pytest.mark.parametrize(("phase", "kind"), [("device", "cuda"), ("managed", "cuda_managed"), ("host", "cuda_host")])
def test_what_the_cuda_driver_gives(cuda: dict[str, Any], phase: str, kind: str) -> None:
    said, counts = cuda["said"][phase], cuda["counted"][kind]
    more = cuda["said"]["async"] if kind == "cuda" else dict.fromkeys(said, 0)
    assert counts == {key: said[key] + more[key] for key in counts}


def test_what_the_cuda_runtime_gives(cuda: dict[str, Any]) -> None:
    said, counts = cuda["said"]["runtime"], cuda["counted"]
    kinds = [counts[kind] for kind in ("cudart", "cudart_managed", "cudart_host")]
    assert {key: sum(one[key] for one in kinds) for key in kinds[0]} == {key: said[key] for key in kinds[0]}
    assert [one["allocs"] for one in kinds] == [2, 1, 1]


def test_a_free_that_is_refused_is_of_nothing_known(cuda: dict[str, Any]) -> None:
    assert cuda["unknown"] == 1


@pytest.fixture(scope="module")
def cuda(followed: Live) -> dict[str, Any]:
    """said: by phase; counted: by kind; unknown: frees of device memory that was not given."""
    said: dict[str, Any] = {}
    with program("cuda") as (process, target):
        follow(followed, process)
        while "runtime" not in said:
            one = target.step()
            said[one["phase"]] = one
        followed.settle()
        kinds = ("cuda", "cuda_managed", "cuda_host", "cudart", "cudart_managed", "cudart_host")
        unknown = followed.value("oomcast_alloc_unknown_frees_total", process, "cuda")
        return {"said": said, "counted": {k: counted(followed, process, k) for k in kinds}, "unknown": unknown}


@needs("rustc")
def test_a_pair_of_the_settings(followed: Live) -> None:
    with program("arena") as (process, target):
        follow(followed, process)
        for _ in range(3):
            expect(followed, process, "arena", target.step())
        # The table that the arena keeps its blocks in grew, whatever the names of the functions are mangled to.
        assert (followed.value("oomcast_alloc_calls_total", process, "rust") or 0) > 0
        assert 0 < outstanding(followed, process, "rust") <= outstanding(followed, process, "libc")


def test_calls_within_calls_and_such_that_never_return(followed: Live) -> None:
    with program("pool") as (process, target):
        follow(followed, process)
        expect(followed, process, "pool", target.step())
        expect(followed, process, "pool", target.step())
        # Calls below a frame that was left for ever look as if that one still went on: for 8 of them it may.
        allocs = target.step()["allocs"] - 8
        followed.until(lambda: counted(followed, process, "pool")["allocs"] == allocs, 5.0)
        expect(followed, process, "libc", target.step())


def test_a_program_without_a_library_has_none_of_it(followed: Live) -> None:
    with program("static") as (process, target):
        followed.until(lambda: followed.value("oomcast_ebpf_targets", process) == 1)
        target.step()
        followed.settle()
        of_it = {name for name, labels in followed.rows if process in labels}
        assert of_it == {"oomcast_ebpf_targets"}


def test_processes_that_end_before_they_are_attached_to(followed: Live) -> None:
    for _ in range(5):
        with program("quick") as (_, target):
            target.go()
            target.wait()
    followed.settle()
