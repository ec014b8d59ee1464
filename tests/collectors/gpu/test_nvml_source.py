"""What a run makes of the session: a success, a failure, or an absence, never one for the other."""

import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.gpu.library import FakeLibrary, RunningClock, error
from e2e.program import until
from oomcast.contract import Context, Facts, NotPresent, Roots
from oomcast_collectors.gpu.nvml_source import GpuError, NvmlSource
from oomcast_collectors.gpu.settings import GpuSettings

SETTINGS = GpuSettings.model_validate({"slow_period": 1, "timeout": 1})


class Node:
    def __init__(self, proc: Path) -> None:
        self.clock = RunningClock()
        self.library = FakeLibrary("GPU-a", "GPU-b", clock=self.clock)
        context = Context(Roots(proc=proc), self.clock, logging.getLogger("gpu"), lambda facts: None)
        self.source = NvmlSource(self.library, SETTINGS, context)

    def names(self, facts: Facts, gpu: str) -> set[str]:
        return {s.series.metric.name for s in facts.samples if ("gpu", gpu) in s.series.labels}

    def outcome(self) -> str:
        try:
            self.source.facts()
        except NotPresent:
            return "absent"
        except GpuError as failure:
            return str(failure)
        return "success"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.library.failing.clear()
    made.library.release()
    made.source.stop(made.clock.monotonic() + 20)
    assert not made.library.unsafe


def test_a_machine_without_a_driver_is_never_one_without_gpus(node: Node) -> None:
    node.library.failing["open"] = error("no_driver")
    node.library.hang("open")
    node.source.start()
    until(lambda: bool(node.library.opened_at))
    assert "has not come back from its initialisation" in node.outcome()
    assert not node.source.missing
    node.library.release()
    until(lambda: node.outcome() == "absent")
    assert node.source.missing


def test_before_anything_was_tried_there_is_no_success(node: Node) -> None:
    assert "has not come back from its initialisation" in node.outcome()
    node.source.start()


def test_the_first_run_has_all_there_is(node: Node) -> None:
    node.source.start()
    for gpu in ("GPU-a", "GPU-b"):
        assert node.names(node.source.facts(), gpu) >= {"oomcast_gpu_memory_used_bytes", "oomcast_gpu_info"}


def test_an_initialisation_for_another_time_is_no_failure_unless_it_lasts(node: Node, tmp_path: Path) -> None:
    node.source.start()
    until(lambda: "oomcast_gpu_power_watts" in node.names(node.source.facts(), "GPU-a"))
    node.library.hang("open")
    (tmp_path / "driver/nvidia/gpus/0000:99:00.0").mkdir(parents=True)
    node.clock.ahead += 5
    until(lambda: len(node.library.opened_at) == 2)
    facts = node.source.facts()
    assert "oomcast_gpu_up" in node.names(facts, "GPU-a")
    assert "oomcast_gpu_power_watts" not in node.names(facts, "GPU-a"), "nobody reads it meanwhile"
    node.clock.ahead += 5
    assert "has not come back from its initialisation" in node.outcome()
    node.library.release()
    until(lambda: node.outcome() == "success")


def test_a_run_does_not_wait_for_what_the_kernels_driver_makes_up(node: Node, tmp_path: Path) -> None:
    node.source.start()
    node.source.facts()
    gpu = tmp_path / "driver/nvidia/gpus/0000:10:00.0"
    gpu.mkdir(parents=True)
    os.mkfifo(gpu / "information")  # a read of it does not come back
    found: list[Facts] = []
    run = threading.Thread(target=lambda: found.append(node.source.facts()), daemon=True)
    run.start()
    run.join(3)
    assert not run.is_alive()
    assert {s.series.metric.name: s.value for s in found[0].samples}["oomcast_gpus_expected"] == 1
