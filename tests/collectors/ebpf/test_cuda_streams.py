"""Conflicting writes of the lab's CUDA program: each case's own verdict, and who is accused."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from collectors.ebpf.live import COMMAND, Live
from ebpf_lab.lab import Target, build
from oomcast.contract import Event
from oomcast_collectors.ebpf import metrics
from oomcast_collectors.ebpf.description import SHIPPED
from requires import needs

pytestmark = needs("ebpf", "cc")

NAME = f"cuda{os.getpid()}"
"""Of the program, so that nobody else's is followed."""

TARGETS = {"processes": [NAME]}
Phases = dict[str, dict[str, Any]]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    link = tmp_path / NAME
    link.symlink_to(build("cuda"))
    return link


def run(target: Target, until: str = "closed") -> Phases:
    """What the program said from here to the phase `until`."""
    said: Phases = {}
    while until not in said:
        one = target.step()
        said[one["phase"]] = one
    return said


def told(live: Live, said: Phases) -> dict[str, Event]:
    """The events by the case that they are of."""
    found: dict[str, Event] = {}
    for event in live.events:
        address = int(str(event.fields["address"]), 16)
        of = [name for name, one in said.items() if 0 <= address - one.get("address", 1 << 64) < one["bytes"]]
        assert len(of) == 1, event
        assert of[0] not in found, event
        found[of[0]] = event
    return found


def ready(live: Live, targets: int = 1) -> None:
    """Waits until the program's libraries are probed."""
    live.targets(targets)
    live.until(lambda: live.value(metrics.PROBE_POINTS.name, "cuda_streams") not in (None, 0))


def lost(live: Live) -> dict[str, float]:
    name = metrics.PROBE_LOST.name
    return {table: live.rows[name, (probe, table)] for key, (probe, table) in _pairs(live) if key == name}


def _pairs(live: Live) -> list[tuple[str, tuple[str, str]]]:
    return [
        (key, (labels[0], labels[1])) for key, labels in live.rows if labels[:1] == ("cuda_streams",) and labels[1:]
    ]


def test_each_case_has_its_verdict(program: Path) -> None:
    with Target(program) as target, Live(["cuda_streams"], TARGETS) as live:
        ready(live)
        assert live.value(metrics.CONFLICTS.name, NAME) == 0
        assert live.value(metrics.CONTEXTS.name, NAME) is None
        assert live.value(metrics.STREAMS.name, NAME) is None
        opened = run(target, "contexts")["contexts"]
        live.until(lambda: live.value(metrics.CONTEXTS.name, NAME) == 1)
        assert live.value(metrics.STREAMS.name, NAME) == opened["streams_live"]
        said = run(target)
        live.settle()
        races = {name for name, one in said.items() if one.get("conflicts")}
        events = told(live, said)
        assert set(events) == races
        assert live.value(metrics.CONFLICTS.name, NAME) == len(races)
        assert live.value(metrics.CONTEXTS.name, NAME) == 0
        assert live.value(metrics.STREAMS.name, NAME) == 0
        assert lost(live) == {"calls": 0, "in_flight": 0, "writes": 0}
        assert not live.logs
        _accused(events, target.pid)


def _accused(events: dict[str, Event], pid: int) -> None:
    functions = {"first": "cuMemcpyHtoDAsync_v2", "second": "cuMemcpyDtoDAsync_v2"}
    for name, event in events.items():
        fields = event.fields
        assert (event.kind, fields["process"], fields["pid"]) == ("cuda_stream_conflict", NAME, pid)
        for which in ("first", "second"):
            assert f"; case_{name}+" in f"; {fields[f'{which}_stack']}", event
        assert fields["first_stream"] != fields["second_stream"]
    for which, function in functions.items():
        fields = events["unordered"].fields
        assert fields[f"{which}_function"] == function
        assert str(fields[f"{which}_stack"]).startswith(f"{which}_write+")
        assert fields["bytes"] == 2048
    assert events["one_byte"].fields["bytes"] == 1
    assert events["one_byte"].fields["first_function"] == "cuMemsetD32Async"
    assert events["default_stream_non_blocking"].fields["first_stream"] == "legacy default stream"
    assert events["default_stream_per_thread"].fields["first_stream"] == f"default stream of thread {pid}"


def test_the_same_code_in_two_processes_is_told_once_and_counted_twice(program: Path) -> None:
    with Target(program) as one, Target(program) as other, Live(["cuda_streams"], TARGETS) as live:
        ready(live, 2)
        said = run(one)
        run(other)
        live.settle()
        events = told(live, said)
        assert {event.fields["pid"] for event in events.values()} == {one.pid}
        assert live.value(metrics.CONFLICTS.name, NAME) == 2 * len(events) > 0


def test_a_process_that_is_met_in_the_middle_of_its_life(program: Path) -> None:
    # A child that may have fewer descriptors than there are functions, unless it asks for more.
    command = ("prlimit", "--nofile=64:4096", *COMMAND)
    with Target(program) as target:
        run(target, "contexts")
        with Live(["cuda_streams"], TARGETS, command=command) as live:
            ready(live)
            assert live.value(metrics.PROBE_FAILURES.name, "cuda_streams") == 0
            said = run(target, "columns")
            live.settle()
            # Whether a stream waits for the default stream was said when it was made.
            expected = {name for name, one in said.items() if one.get("conflicts")} - {"default_stream_non_blocking"}
            assert set(told(live, said)) == expected
            assert live.value(metrics.CONTEXTS.name, NAME) is None
            assert live.value(metrics.STREAMS.name, NAME) is None


@pytest.mark.parametrize("stopped_until", ["event", "columns"])
def test_calls_that_are_lost_invent_no_conflict(program: Path, tmp_path: Path, stopped_until: str) -> None:
    (tmp_path / "cuda_streams.c").write_text((SHIPPED / "cuda_streams.c").read_text())
    description = (SHIPPED / "cuda_streams.yaml").read_text()
    assert "EVENT_PAGES: 256" in description
    (tmp_path / "cuda_streams.yaml").write_text(description.replace("EVENT_PAGES: 256", "EVENT_PAGES: 4"))
    with (
        Target(program) as target,
        Live(["cuda_streams"], TARGETS, {"folder": str(tmp_path)}) as live,
    ):
        ready(live)
        run(target, "contexts")
        os.kill(live.pid, signal.SIGSTOP)
        try:
            said = run(target, stopped_until)
        finally:
            os.kill(live.pid, signal.SIGCONT)
        live.settle()
        said |= run(target)
        live.settle()
        assert lost(live)["calls"] > 0
        assert set(told(live, said)) <= {name for name, one in said.items() if one.get("conflicts")}
        if stopped_until != "columns":
            assert live.events, "what comes after the gap is followed again"
