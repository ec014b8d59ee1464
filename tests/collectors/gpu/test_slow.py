"""The slow job: a part that fails costs no other one, and GPUs without memory of their own have it speak for them."""

import logging
import threading
from pathlib import Path

import pytest

from collectors.gpu.library import FakeDevice, FakeLibrary, error
from collectors.gpu.test_sampling import Part
from fakes import FakeClock
from oomcast.contract import Context, Facts, Roots
from oomcast_collectors.gpu.card import Card
from oomcast_collectors.gpu.driver import DriverError, Fault
from oomcast_collectors.gpu.processes import Processes
from oomcast_collectors.gpu.settings import GpuSettings
from oomcast_collectors.gpu.slow import SlowJob

PARTS = ("identity", "fields", "processes", "instances")


class Bench:
    def __init__(self, proc: Path) -> None:
        settings = GpuSettings.model_validate({})
        self.clock = FakeClock()
        self.pushed: list[Facts] = []
        self.refused: list[DriverError] = []
        self.library = FakeLibrary("GPU-a", clock=self.clock)
        self.library.mig["GPU-a"] = [Part("MIG-a", 1)]
        context = Context(Roots(proc=proc), self.clock, logging.getLogger("slow"), self.pushed.append)
        self.processes = Processes(settings, context)
        self.job = SlowJob(settings, self.clock, proc, self.processes, self.pushed.append, self.refused.append)
        self.card = Card("GPU-a", settings, self.clock)
        self.card.attach(FakeDevice(self.library, "GPU-a"))

    def visit(self) -> None:
        self.clock.advance(2.0)
        self.job.visit(self.card)

    def known(self) -> set[str]:
        """Of which parts there is something to show."""
        found = {
            "identity": self.card.identity is not None,
            "fields": bool(self.card.fields.samples()),
            "processes": bool(self.processes.samples()),
            "instances": bool(self.card.slices),
        }
        return {part for part, there in found.items() if there}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_all_is_known_after_one_visit(bench: Bench) -> None:
    bench.visit()
    assert bench.known() == set(PARTS)
    assert [event.kind for facts in bench.pushed for event in facts.events] == ["gpu_seen"]
    bench.visit()
    assert len(bench.pushed) == 1


@pytest.mark.parametrize("part", ["fields", "processes"])
def test_a_part_that_fails_costs_itself_only(bench: Bench, part: str) -> None:
    bench.visit()
    bench.library.failing[part] = error("transient")
    bench.visit()
    assert bench.known() == set(PARTS) - {part}
    assert bench.card.state == "ok"
    assert bench.card.all_errors == {part: 1}
    bench.library.failing.clear()
    bench.visit()
    assert bench.known() == set(PARTS)


def test_what_stays_the_same_stays_when_it_is_not_told(bench: Bench) -> None:
    bench.visit()
    bench.library.failing.update({"identity": error("transient"), "instances": error("transient")})
    bench.clock.advance(60)
    bench.visit()
    assert bench.known() == set(PARTS)


def test_processes_that_are_not_supported_are_not_asked_for_again(bench: Bench) -> None:
    bench.library.failing["processes"] = error("unsupported")
    bench.visit()
    bench.visit()
    assert bench.library.calls["processes"] == 1
    assert "processes" not in bench.known()
    bench.card.attach(FakeDevice(bench.library, "GPU-a"))
    bench.visit()
    assert bench.library.calls["processes"] == 2


@pytest.mark.parametrize(
    ("fault", "state", "refused"),
    [("lost", "lost", False), ("transient", "unreadable", False), ("session", "unreadable", True)],
)
def test_it_speaks_for_a_gpu_without_memory_of_its_own(bench: Bench, fault: Fault, state: str, refused: bool) -> None:
    bench.card.unsupported.add("memory")
    bench.visit()
    assert bench.card.state == "ok"
    bench.library.failing["fields"] = error(fault)
    for _ in range(3):
        bench.visit()
    assert bench.card.state == state
    assert bool(bench.refused) == refused
    bench.library.failing.clear()
    bench.visit()
    assert bench.card.state == "ok"


def test_a_gpu_that_went_during_a_visit_is_forgotten_too(bench: Bench) -> None:
    bench.visit()
    bench.job.keep({"GPU-a"})
    assert "processes" in bench.known()
    bench.job.keep(set())
    assert "processes" not in bench.known()
    bench.visit()
    bench.job.keep(set())
    assert "processes" not in bench.known()


def test_nobody_waits_for_a_look_at_processes(bench: Bench, tmp_path: Path) -> None:
    bench.visit()
    bench.job._lock.acquire()
    keeping = threading.Thread(target=bench.job.keep, args=(set(),), daemon=True)
    keeping.start()
    keeping.join(5)
    assert not keeping.is_alive()
    bench.job._lock.release()
    assert "processes" in bench.known()
    bench.job.keep(set())
    assert "processes" not in bench.known()
