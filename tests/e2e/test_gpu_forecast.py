"""What the daemon says of GPUs that fill up, load a model, stand, copy and change hands, all on one driver."""

import math
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from collectors.gpu.driver import FakeDriver, Value, uuid
from e2e.gpus import Gpus, gpus
from e2e.program import until
from oomcast.clock import SystemClock
from requires import needs

pytestmark = needs("cc")

CLOCK = SystemClock()
GB = 10**9
TOTAL, RESERVED = 80 * GB, GB
USABLE = TOTAL - RESERVED

RAMP, LOAD, FULL, COPY, STEP = range(5)
"""The GPUs, by what happens on them."""

GRACE = 25.0
"""The setting load_grace: longer than the load below takes, shorter than what the process of the ramp waits."""

STEADY, RATE = 18_200_000_000, 2 * GB
LOADED, LOAD_SECONDS = 70 * GB, 20.0
ALMOST_FULL = int(0.995 * USABLE)
SURGE_AFTER, PLATEAU_AFTER = 13.0, 61.0


class Reading(NamedTuple):
    """A scrape. asked, answered: seconds since the epoch."""

    asked: float
    answered: float
    values: Mapping[tuple[str, frozenset[tuple[str, str]]], float]

    def of(self, name: str, number: int, **labels: str) -> float | None:
        """Of oomcast_<name> with exactly these labels and that of the GPU."""
        return self.values.get((f"oomcast_{name}", frozenset({("gpu", uuid(number)), *labels.items()})))

    def forecast(self, number: int) -> float | None:
        return self.of("time_to_exhaustion_seconds", number, resource="gpu_memory")

    def held(self, number: int) -> Mapping[str, float]:
        """Bytes by pid."""
        found = (
            (dict(labels), v) for (name, labels), v in self.values.items() if name == "oomcast_gpu_process_memory_bytes"
        )
        return {labels["pid"]: value for labels, value in found if labels["gpu"] == uuid(number)}

    def events(self) -> Mapping[str, float]:
        """By kind."""
        return {dict(labels)["kind"]: v for (name, labels), v in self.values.items() if name == "oomcast_events_total"}


class Past(NamedTuple):
    """readings: five a second, the last one at the end. ramp_full, load_began: seconds since the epoch. grew, stayed:
    pids of processes with memory. step, end, surge: what was read before and after."""

    readings: Sequence[Reading]
    ramp_full: float
    load_began: float
    grew: int
    stayed: int
    step: tuple[Reading, Reading]
    end: tuple[Reading, Reading]
    surge: tuple[Reading, Reading]


@pytest.fixture(scope="module")
def past(nvml_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    """A bit more than a minute of one daemon."""
    directory = tmp_path_factory.mktemp("forecast")
    driver = FakeDriver(directory, nvml_library, gpus=5)
    with ExitStack() as running:
        engine, other, model = (running.enter_context(sleeping()) for _ in range(3))
        for gpu in driver.gpus:
            gpu.set(total=TOTAL, reserved=RESERVED)
        driver.gpus[RAMP].set(used=STEADY, proc=(engine.pid, STEADY))
        driver.gpus[FULL].set(used=ALMOST_FULL)
        driver.gpus[COPY].set(memutil=5)
        driver.gpus[STEP].set(used=35 * GB, proc=[(engine.pid, 20 * GB), (other.pid, 14 * GB)])
        driver.write()
        node = running.enter_context(gpus(driver, directory, f"slow_period: 1, load_grace: {GRACE}"))
        began = CLOCK.time()
        readings = running.enter_context(watched(node))
        until(lambda: len(read(node).held(STEP)) == 2, 10)

        before = read(node)
        change(node, STEP, used=43 * GB, proc=[(engine.pid, 28 * GB), (other.pid, 14 * GB)])
        step = before, after(node, "gpu_memory_step")

        load_began = CLOCK.time()
        change(node, LOAD, proc=(model.pid, GB), ramp=(LOADED / LOAD_SECONDS, f"{load_began:.3f}", LOADED))
        other.kill()
        other.wait()
        before = read(node)
        change(node, STEP, used=29 * GB, proc=(engine.pid, 28 * GB))
        end = before, after(node, "gpu_process_ended")

        sleep_until(began + SURGE_AFTER)
        before = read(node)
        change(node, COPY, memutil=60)
        surge = before, after(node, "gpu_copy_surge")

        sleep_until(load_began + LOAD_SECONDS)
        change(node, LOAD, proc=(model.pid, LOADED))
        ramp_began = max(CLOCK.time(), began + GRACE) + 2
        change(node, RAMP, ramp=(RATE, f"{ramp_began:.3f}", USABLE))
        ramp_full = ramp_began + (USABLE - STEADY) / RATE
        sleep_until(max(began + PLATEAU_AFTER, ramp_full + 2))
        until(lambda: read(node).of("gpu_memory_plateau_bytes", FULL) is not None, 5)
        readings.append(read(node))
        yield Past(list(readings), ramp_full, load_began, engine.pid, other.pid, step, end, surge)


@contextmanager
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "300"]) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def watched(node: Gpus) -> Iterator[list[Reading]]:
    """Reads five times a second into a list."""
    readings: list[Reading] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.2):
            readings.append(read(node))

    thread = threading.Thread(target=watch, name="test-watch", daemon=True)
    thread.start()
    try:
        yield readings
    finally:
        ended.set()
        thread.join(15)


def read(node: Gpus) -> Reading:
    asked = CLOCK.time()
    values = node.scrape()
    return Reading(asked, CLOCK.time(), values)


def change(node: Gpus, number: int, **values: Value) -> None:
    node.driver.gpus[number].set(**values)
    node.driver.write()


def after(node: Gpus, event: str) -> Reading:
    """What is read two runs after the first event of this kind was counted."""
    until(lambda: event in read(node).events(), 30)
    settled = runs(node) + 2
    until(lambda: runs(node) >= settled, 10)
    return read(node)


def runs(node: Gpus) -> float:
    return node.value("collector_runs_total", collector="gpu", outcome="success") or 0


def sleep_until(moment: float) -> None:
    time.sleep(max(moment - CLOCK.time(), 0))


def test_a_ramp_is_foreseen_to_its_end(past: Past) -> None:
    last = [r for r in past.readings if past.ramp_full - 5 <= r.asked and r.answered <= past.ramp_full]
    assert len(last) >= 15
    for reading in last:
        told = reading.forecast(RAMP)
        assert told is not None
        # The truth went by while the scrape was on its way.
        assert 0.8 * (past.ramp_full - reading.answered) - 0.3 <= told <= 1.2 * (past.ramp_full - reading.asked) + 0.3
    before = next(r for r in past.readings if r.asked > past.ramp_full - 5)
    exhausted = [r.of("gpu_memory_exhausted_seconds_total", RAMP) for r in (before, past.readings[-1])]
    assert exhausted[0] == 0
    assert (exhausted[1] or 0) > 1
    assert [r.of("gpu_memory_exhaustions_total", RAMP) for r in (before, past.readings[-1])] == [0, 1]


def finite(past: Past, number: int) -> Mapping[float, float]:
    """Forecasts that were no +Inf, by when they were read."""
    told = {reading.asked: reading.forecast(number) for reading in past.readings}
    return {asked: value for asked, value in told.items() if value is not None and value < math.inf}


def test_a_gpu_that_stands_until_its_ramp_is_no_alarm_until_then(past: Past) -> None:
    assert min(finite(past, RAMP)) > past.ramp_full - (USABLE - STEADY) / RATE


def test_a_model_that_is_loaded_is_no_way_to_exhaustion(past: Past) -> None:
    used = [reading.of("gpu_memory_used_bytes", LOAD) or 0 for reading in past.readings]
    assert min(used) == 0
    assert used[-1] == LOADED
    assert finite(past, LOAD) == {}
    # Not because nobody looks any more.
    assert past.readings[-1].forecast(LOAD) == math.inf
    assert past.readings[-1].asked > past.load_began + GRACE


def test_a_gpu_that_stands_almost_full_has_a_plateau_and_no_end(past: Past) -> None:
    assert finite(past, FULL) == {}
    end = past.readings[-1]
    assert end.forecast(FULL) == math.inf
    assert end.of("gpu_memory_plateau_bytes", FULL) == ALMOST_FULL
    assert end.of("gpu_memory_plateau_headroom_bytes", FULL) == USABLE - ALMOST_FULL
    assert past.readings[0].of("gpu_memory_plateau_bytes", FULL) is None
    assert end.of("gpu_memory_exhaustions_total", FULL) == 1
    exhausted = [r.of("gpu_memory_exhausted_seconds_total", FULL) or 0 for r in (past.readings[0], end)]
    assert exhausted[1] - exhausted[0] == pytest.approx(end.asked - past.readings[0].asked, abs=2.5)


def test_a_surge_of_copying_is_an_event(past: Past) -> None:
    before, now = past.surge
    assert before.events().get("gpu_copy_surge") is None
    assert now.events()["gpu_copy_surge"] == 1
    assert past.readings[-1].events()["gpu_copy_surge"] == 1


def test_two_scrapes_tell_who_took_the_memory(past: Past) -> None:
    before, now = past.step
    assert before.events().get("gpu_memory_step") is None
    assert now.events()["gpu_memory_step"] == 1
    assert (before.of("gpu_memory_used_bytes", STEP), now.of("gpu_memory_used_bytes", STEP)) == (35 * GB, 43 * GB)
    grown = {pid: held - before.held(STEP)[pid] for pid, held in now.held(STEP).items()}
    assert grown == {str(past.grew): 8 * GB, str(past.stayed): 0}


def test_a_process_that_ends_is_an_event(past: Past) -> None:
    before, now = past.end
    assert before.events().get("gpu_process_ended") is None
    assert now.events()["gpu_process_ended"] == 1
    assert now.held(STEP).keys() == {str(past.grew)}
    assert now.of("gpu_memory_unattributed_bytes", STEP) == GB
