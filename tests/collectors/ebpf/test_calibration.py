"""What the child says that allocations cost, against what they do cost a real program."""

import itertools
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from collectors.ebpf.live import COMMAND, Live
from ebpf_lab.lab import Target, build
from requires import needs

pytestmark = needs("ebpf", "cc")

_PAIRS = 1_000
# The process to measure on cannot be started there.
_NO_CALLER = (
    sys.executable,
    "-c",
    "import os, pathlib\n"
    "from oomcast_collectors.ebpf.child.cost import calibration\n"
    "calibration._CALLER = pathlib.Path('/nowhere')\n"
    "from oomcast_collectors.ebpf.child.__main__ import main\nos._exit(main())",
)


def _live(allocations: Mapping[str, Any], command: tuple[str, ...] = COMMAND, target: str = "bench") -> Live:
    return Live(["allocations"], {"processes": [target]}, {"allocations": allocations}, command=command)


def _pair(allocate: str, free: str, size: int) -> Mapping[str, Any]:
    return {"kind": "own", "library": "libc.so*", "allocate": allocate, "free": free, "size": size}


def _cost(live: Live, name: str, kind: str = "libc") -> float | None:
    return live.value(f"oomcast_ebpf_cost_{name}", "allocations", kind)


def _quickest(target: Target, steps: int = 10) -> float:
    """Nanoseconds of a pair."""
    return min(float(target.step()["ns_per_pair"]) for _ in range(steps))


@pytest.mark.parametrize(
    ("kind", "allocations"),
    [("libc", {"libc": "full", "budget": 100}), ("own", {"pairs": [_pair("malloc", "free", 1)]})],
    ids=["libc", "a pair"],
)
def test_what_it_says_is_what_a_program_pays(kind: str, allocations: Mapping[str, Any]) -> None:
    with Target(build("bench"), str(_PAIRS)) as target:
        plain = _quickest(target)
        with _live(allocations) as live:
            live.targets(1)
            live.settle()
            paid = (_quickest(target) - plain) * 1e-9
            live.settle()
            calls = live.value("oomcast_alloc_calls_total", "bench", kind)
            per_call, seconds = _cost(live, "per_call_seconds", kind), _cost(live, "seconds_total", kind)
            assert calls is not None
            assert per_call is not None
            # Machines are shared: it is the order of magnitude that must be right in each single run.
            assert paid / 2.5 < 2 * per_call < paid * 2.5
            assert seconds == pytest.approx(calls * 2 * per_call, rel=0.02)
            assert (_cost(live, "ratio", kind) or 0) > 0


def test_functions_that_cannot_be_probed_cheaply_are_told_to_cost_more() -> None:
    # Both begin with an instruction that the kernel does not emulate.
    with (
        Target(build("flows")) as target,
        _live({"pairs": [_pair("mmap", "munmap", 2)]}, target="flows") as live,
    ):
        live.targets(1)
        live.settle()
        target.step()
        live.settle()
        calls = live.value("oomcast_alloc_calls_total", "flows", "own") or 0
        frees = live.value("oomcast_alloc_frees_total", "flows", "own") or 0
        assert calls + frees > 0
        plain = (_cost(live, "per_call_seconds", "own") or 0) * (calls + frees)
        assert (_cost(live, "seconds_total", "own") or 0) > 1.2 * plain > 0


def test_what_is_always_followed_has_a_cost_too() -> None:
    with Target(build("bench"), str(_PAIRS)), _live({}) as live:
        live.targets(1)
        live.settle()
        for kind in ("brk", "mmap"):
            assert 1e-7 < (_cost(live, "per_call_seconds", kind) or 0) < 1e-4
            assert _cost(live, "seconds_total", kind) is not None
        assert _cost(live, "per_call_seconds") is None
        # The process that was measured on is none that anything is told of.
        assert {labels[0] for (name, labels) in live.rows if name == "oomcast_alloc_calls_total"} <= {"bench"}


def test_above_the_budget_nobody_pays_any_more() -> None:
    with Target(build("bench"), "20000") as target:
        plain = _quickest(target)
        with _live({"libc": "full", "budget": 0.1}) as live:
            live.targets(1)
            live.settle()
            followed = live.value("oomcast_ebpf_probe_points", "allocations")
            target.step()
            live.until(lambda: live.value("oomcast_alloc_followed_ratio", "libc") == 0)
            assert followed is not None
            assert (live.value("oomcast_ebpf_probe_points", "allocations") or 0) < followed
            assert [event.kind for event in live.events] == ["ebpf_budget"]
            assert live.value("oomcast_alloc_followed_ratio", "mmap") == 1
            assert _quickest(target) < 5 * plain


def test_sampling_attaches_and_detaches() -> None:
    with Target(build("bench"), str(_PAIRS)), _live({"libc": "sampled", "libc_share": 0.5}) as live:
        live.targets(1)
        points: list[float] = []

        def switched() -> bool:
            points.append(live.value("oomcast_ebpf_probe_points", "allocations") or 0)
            changes = sum(before != after for before, after in itertools.pairwise(points))
            return changes >= 2

        live.until(switched)
        share = live.value("oomcast_alloc_followed_ratio", "libc")
        assert share == pytest.approx(0.5, abs=0.3)


def test_where_it_cannot_be_measured_nothing_is_made_up() -> None:
    with Target(build("bench"), str(_PAIRS)) as target, _live({"libc": "full"}, _NO_CALLER) as live:
        live.targets(1)
        live.settle()
        target.step()
        live.settle()
        assert live.value("oomcast_alloc_calls_total", "bench", "libc") is not None
        assert not [name for (name, _) in live.rows if name.startswith("oomcast_ebpf_cost_")]
        assert sum("could not be measured" in text for text in live.logs) == 2
