"""The memory job: what a reading does to its GPU, what is told at once, and how the driver's time is kept in bounds."""

from dataclasses import dataclass, field
from functools import partial

import pytest

from collectors.gpu.library import GIB, FakeDevice, FakeLibrary, error
from fakes import FakeClock
from oomcast.contract import Facts
from oomcast_collectors.gpu.card import Card
from oomcast_collectors.gpu.driver import DriverError, Fault, Identity, Memory
from oomcast_collectors.gpu.sampling import MemoryJob
from oomcast_collectors.gpu.settings import GpuSettings

SETTINGS = GpuSettings.model_validate({})
MIG = Identity("GPU-a", 0, "NVIDIA H200", "0000:10:00.0", "v2", "", None, mig=True)


@dataclass
class Part:
    """A MIG GPU instance."""

    uuid: str
    instance: int
    profile: str = "3g.71gb"
    used: int = 10 * GIB
    fault: DriverError | None = None

    def memory(self) -> Memory:
        if self.fault:
            raise self.fault
        return Memory(71 * GIB, self.used, 71 * GIB - self.used, 0)


@dataclass
class Bench:
    clock: FakeClock = field(default_factory=FakeClock)
    pushed: list[Facts] = field(default_factory=list)
    refused: list[DriverError] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.library = FakeLibrary("GPU-a", clock=self.clock)
        self.job = MemoryJob(SETTINGS, self.clock, self.pushed.append, self.refused.append, lambda card: [])
        self.card = Card("GPU-a", SETTINGS, self.clock)
        self.card.attach(FakeDevice(self.library, "GPU-a"))

    def visit(self, times: int = 1) -> None:
        for _ in range(times):
            self.clock.advance(0.1)
            self.job.visit(self.card)

    def levels(self) -> set[str]:
        """What was pushed as able to run out."""
        return {level.resource for facts in self.pushed for level in facts.levels}


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_reading_is_there_at_once(bench: Bench) -> None:
    bench.visit()
    memory = bench.card.track.fresh(bench.clock.monotonic())
    assert memory is not None
    assert memory.used == 30 * GIB
    assert bench.card.utilization() == (0.5, 0.2)


@pytest.mark.parametrize(
    ("fault", "state", "refused"),
    [
        ("transient", "unreadable", False),
        ("lost", "lost", False),
        ("reset_required", "reset_required", False),
        ("not_permitted", "not_permitted", False),
        ("session", "unreadable", True),
        ("mismatch", "unreadable", True),
        ("no_driver", "unreadable", True),
        ("unsupported", "ok", False),
    ],
)
def test_what_a_failure_says_of_the_gpu_and_of_the_library(
    bench: Bench, fault: Fault, state: str, refused: bool
) -> None:
    bench.visit()
    bench.library.failing["memory"] = error(fault)
    bench.visit(35)
    assert bench.card.state == state
    assert bool(bench.refused) == refused
    assert bench.card.track.fresh(bench.clock.monotonic()) is None
    bench.library.failing.clear()
    bench.visit()
    assert bench.card.state == "ok"


@pytest.mark.parametrize("fault", ["lost", "transient"])
def test_where_memory_is_not_supported_a_round_is_no_answer(bench: Bench, fault: Fault) -> None:
    bench.library.failing["memory"] = error("unsupported")
    bench.visit()
    for _ in range(35):
        bench.card.failed(error(fault), "fields")
        bench.visit()
    assert bench.card.state == ("lost" if fault == "lost" else "unreadable")


def test_utilization_is_not_shown_when_it_is_old(bench: Bench) -> None:
    bench.visit(5)
    bench.library.failing["utilization"] = error("transient")
    bench.visit(12)
    assert bench.card.utilization() == (0.5, 0.2)
    bench.visit(3)
    assert bench.card.utilization() == (None, None)
    assert bench.card.all_errors["utilization"] > 3


def test_an_instance_that_fails_once_keeps_its_peak(bench: Bench) -> None:
    part = Part("MIG-a", 1, used=60 * GIB)
    bench.card.cut([part])
    bench.visit(5)
    part.used, part.fault = 10 * GIB, error("transient")
    bench.visit()
    part.fault = None
    bench.visit(5)
    view = bench.card.slices[0].track.view(bench.clock.monotonic())
    assert view is not None
    assert view.peak == 60 * GIB
    assert bench.card.all_errors == {"mig_memory": 1}


def test_an_instance_that_stays_silent_is_not_shown(bench: Bench) -> None:
    part = Part("MIG-a", 1)
    bench.card.cut([part])
    bench.visit(5)
    part.fault = error("transient")
    bench.visit(15)
    assert bench.card.slices[0].track.fresh(bench.clock.monotonic()) is None


def test_counts_outlive_the_instance(bench: Bench) -> None:
    part, other = Part("MIG-a", 1, used=-GIB), Part("MIG-b", 2, used=-GIB)
    bench.card.cut([part, other])
    bench.visit(3)
    assert bench.card.all_invalid == {"mig_memory": 6}
    bench.card.cut([other])
    assert bench.card.all_invalid == {"mig_memory": 6}
    bench.card.forget()
    assert bench.card.all_invalid == {"mig_memory": 6}
    bench.card.cut([Part("MIG-a", 1)])
    bench.visit()
    assert bench.card.all_invalid == {"mig_memory": 6}


def foresee(bench: Bench) -> None:
    """A second, and what a collector's run does in it."""
    bench.clock.advance(1.0)
    bench.job.visit(bench.card)
    for outlook in bench.card.outlooks:
        outlook.look(bench.clock.monotonic(), None)


def test_once_a_gpu_is_cut_up_only_its_instances_run_out(bench: Bench) -> None:
    for used in range(20, 50, 5):
        bench.library.memory = Memory(80 * GIB, used * GIB, (79 - used) * GIB, GIB)
        foresee(bench)
    bench.visit(5)
    assert bench.levels() == {"gpu_memory"}
    part = Part("MIG-a", 1)
    bench.card.identity = MIG
    bench.card.cut([part])
    bench.pushed.clear()
    for used in range(20, 50, 5):
        part.used = used * GIB
        foresee(bench)
    bench.visit(5)
    assert bench.levels() == {"gpu_mig_memory"}


def test_an_exhaustion_is_told_once(bench: Bench) -> None:
    bench.library.memory = Memory(80 * GIB, 79 * GIB, 0, GIB)
    bench.visit(20)
    told = [event for facts in bench.pushed for event in facts.events]
    assert [event.kind for event in told] == ["gpu_memory_exhausted"]
    assert told[0].fields == {"gpu": "GPU-a", "usable_bytes": 79 * GIB}


def test_the_period_is_stretched_for_a_slow_driver_but_not_for_one_slow_call(bench: Bench) -> None:
    for seconds in (0.0, 0.0, 30.0, 0.0):
        bench.library.working = partial(bench.clock.advance, seconds)
        bench.visit()
        assert bench.job.pause() == SETTINGS.sampling_period
    bench.library.working = partial(bench.clock.advance, 0.01)
    for _ in range(30):
        bench.visit()
        pause = bench.job.pause()
    assert pause == pytest.approx(0.01 / SETTINGS.driver_share)
