"""The scripted driver itself: what the tests of others lean on, seen through nvidia-ml-py in a process of its own."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from collectors.gpu.driver import FakeDriver, uuid
from collectors.gpu.program import Program
from requires import needs

pytestmark = needs("cc")
GIB = 1 << 30
RELEASE = 0.2
"""Seconds within which a waiting call comes back; 10 ms, and time for a busy machine."""

Launch = Callable[..., Program]


@pytest.fixture
def launch(driver: FakeDriver) -> Iterator[Launch]:
    """launch(VARIABLE=value ..): a program that has not initialised the library."""
    with ExitStack() as programs:

        def start(**environment: str) -> Program:
            program = Program(driver, **environment)
            programs.callback(program.close)
            return program

        yield start


@pytest.fixture
def program(launch: Launch) -> Program:
    made = launch()
    assert made("nvmlInit()") is None
    made.keep("gpu", "nvmlDeviceGetHandleByIndex(0)")
    return made


def code(number: int) -> dict[str, int]:
    return {"code": number}


def used(program: Program, gpu: int = 0) -> Any:
    return program(f"nvmlDeviceGetMemoryInfo(nvmlDeviceGetHandleByIndex({gpu}), nvmlMemory_v2).used")


@pytest.mark.parametrize("key", ["hang", "hang.nvmlDeviceGetMemoryInfo", "delay_us"])
def test_a_waiting_call_is_released_by_an_edit(program: Program, driver: FakeDriver, key: str) -> None:
    driver.gpus[0].set({key: 60_000_000 if key == "delay_us" else 1})
    driver.write()
    assert program("nvmlDeviceGetUUID(gpu)") == uuid(0)
    if key == "hang.nvmlDeviceGetMemoryInfo":
        assert program("nvmlDeviceGetTemperature(gpu, 0)") == 40
    program.begin("nvmlDeviceGetMemoryInfo(gpu).total")
    with pytest.raises(subprocess.TimeoutExpired):
        program.process.wait(0.05)
    driver.gpus[0].set({key: None})
    driver.write()
    begin = time.monotonic()
    assert program.end() == 150754820096
    assert time.monotonic() - begin < RELEASE


def test_a_hang_is_one_gpus(program: Program, driver: FakeDriver) -> None:
    driver.gpus[0].set(hang=1)
    driver.gpus[1].set(used=GIB)
    driver.write()
    assert used(program, 1) == GIB


def test_a_delay_lasts_as_long_as_it_says(program: Program, driver: FakeDriver) -> None:
    driver.gpus[0].set(delay_us=30_000)
    driver.write()
    begin = time.monotonic()
    program("nvmlDeviceGetMemoryInfo(gpu).total")
    assert 0.03 <= time.monotonic() - begin < 0.03 + RELEASE


def test_init_hangs_and_fails(driver: FakeDriver, launch: Launch) -> None:
    driver.set(init_hang=1)
    driver.write()
    program = launch()
    program.begin("nvmlInit()")
    with pytest.raises(subprocess.TimeoutExpired):
        program.process.wait(0.3)
    driver.set(init_hang=0, init_ret=9)
    driver.write()
    assert program.end() == code(9)
    driver.set(init_ret=0)
    driver.write()
    assert program("nvmlInit()") is None
    driver.set(init_ret=9)
    driver.write()
    assert program("nvmlDeviceGetCount()") == 2, "only the initialisation fails"


def test_memory_is_a_function_of_the_wall_clock(program: Program, driver: FakeDriver, launch: Launch) -> None:
    now = program("__import__('time').time()")
    spikes = [(now - 100 + 10 * i, 1000, 1) for i in range(62)]
    driver.gpus[0].set(used=GIB, spikeat=[*spikes, (now - 1, 3_600_000, 2 * GIB), (now - 1, 3_600_000, 3 * GIB)])
    driver.gpus[1].set(ramp=(GIB, now - 1000, 5 * GIB))
    driver.write()
    other = launch()
    other("nvmlInit()")
    for one in (program, other):
        assert used(one) in (6 * GIB, 6 * GIB + 1)
        assert used(one, 1) == 5 * GIB
    driver.gpus[0].set(spikeat=[(now - 10, 1000, GIB), (now + 3600, 1000, GIB)])
    driver.gpus[1].set(used=200 * GIB, ramp=None)
    driver.write()
    assert used(program) == GIB
    assert used(program, 1) == 150754820096 - 643825664, "no more than there is"


@pytest.mark.parametrize(
    ("garbage", "memory"),
    [("used_over_total", [100, 100 + GIB, 80, 10]), ("sum_mismatch", [100, 10, 40, 10]), ("zero", [0, 0, 0, 0])],
)
def test_garbage(program: Program, driver: FakeDriver, garbage: str, memory: list[int]) -> None:
    driver.gpus[0].set(total=100, used=10, reserved=10, mem_garbage=garbage)
    driver.write()
    ask = "(lambda m: [m.total, m.used, m.free, m.reserved])(nvmlDeviceGetMemoryInfo(gpu, nvmlMemory_v2))"
    assert program(ask) == memory
    driver.gpus[0].set(total=200, mem_garbage=None)
    driver.write()
    assert program(ask) == [200, 10, 180, 10]


def test_a_gpu_that_is_taken_away(program: Program, driver: FakeDriver) -> None:
    driver.gpus[0].set(removed=1)
    driver.write()
    assert program("nvmlDeviceGetCount()") == 1
    assert program("nvmlDeviceGetUUID(nvmlDeviceGetHandleByIndex(0))") == uuid(1)
    assert program("nvmlDeviceGetIndex(nvmlDeviceGetHandleByIndex(0))") == 0
    assert program("nvmlDeviceGetHandleByIndex(1)") == code(2)
    assert program(f"nvmlDeviceGetHandleByUUID({uuid(0)!r})") == code(6)
    assert program("nvmlDeviceGetMemoryInfo(gpu)") == code(15)
    driver.gpus[0].set(removed=0)
    driver.write()
    assert program("nvmlDeviceGetUUID(gpu)") == uuid(0)


def test_a_frozen_list(driver: FakeDriver, launch: Launch) -> None:
    driver.set(freeze=1)
    driver.gpus[1].set(removed=1)
    driver.write()
    program = launch()
    program("nvmlInit()")
    driver.gpus[0].set(removed=1)
    driver.gpus[1].set(removed=0)
    driver.write()
    assert program("nvmlDeviceGetCount()") == 1
    assert program("nvmlDeviceGetHandleByIndex(0)") == code(15)
    program("nvmlShutdown()")
    program("nvmlInit()")
    assert program("nvmlDeviceGetUUID(nvmlDeviceGetHandleByIndex(0))") == uuid(1)


def test_handles_are_void_after_the_last_shutdown(program: Program) -> None:
    program("nvmlInit()")
    program("nvmlShutdown()")
    assert program("nvmlDeviceGetUUID(gpu)") == uuid(0), "somebody still has it initialised"
    program("nvmlShutdown()")
    assert program("nvmlDeviceGetUUID(gpu)") == code(1)
    assert program("nvmlShutdown()") == code(1)
    program("nvmlInit()")
    assert program("nvmlDeviceGetUUID(gpu)") == code(2)
    assert program("nvmlDeviceGetUUID(c_nvmlDevice_t())") == code(2)


def test_a_driver_that_is_replaced(program: Program, driver: FakeDriver, launch: Launch) -> None:
    driver.set(driver="590.1", strict_version=1)
    driver.write()
    for call in ("nvmlDeviceGetCount()", "nvmlDeviceGetUUID(gpu)", "nvmlInit()", "nvmlSystemGetDriverVersion()"):
        assert program(call) == code(18)
    program("nvmlShutdown()")
    assert program("nvmlInit()") == code(18)
    new = launch()
    new("nvmlInit()")
    assert new("nvmlSystemGetDriverVersion()") == "590.1"
    driver.set(version_skew=1)
    driver.write()
    assert new("nvmlInit()") is None
    assert new("nvmlDeviceGetCount()") == code(18)


def test_an_event_is_waited_for_without_spinning(program: Program, driver: FakeDriver) -> None:
    program.keep("events", "nvmlEventSetCreate()")
    program("nvmlDeviceRegisterEvents(gpu, 8, events)")
    spent = "__import__('time').process_time()"
    before = program(spent)
    assert program("nvmlEventSetWait_v2(events, 1000)") == code(10)
    assert program(spent) - before < 0.05
    program.begin("nvmlEventSetWait_v2(events, 10000).eventData")
    driver.gpus[0].set(xid=["1:79"])
    driver.write()
    begin = time.monotonic()
    assert program.end() == 79
    assert time.monotonic() - begin < 0.05 + RELEASE


def test_calls_are_counted(launch: Launch, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    program = launch(FAKE_NVML_TRACE=str(trace))
    program("nvmlInit()")
    for _ in range(3):
        program("nvmlDeviceGetCount()")
    program.finish()
    assert sorted(trace.read_text().split("\n")) == ["", "1 nvmlInitWithFlags", "3 nvmlDeviceGetCount_v2"]


@pytest.mark.parametrize("text", ["", "[gpu 99]\nused=1\n", "\0\0\n", "a" * 5000])
def test_a_state_that_makes_no_sense_is_one_without_gpus(program: Program, driver: FakeDriver, text: str) -> None:
    driver.state.write_text(text)
    assert program("nvmlDeviceGetCount()") == 0


def test_without_a_state_there_are_no_gpus(driver: FakeDriver, launch: Launch) -> None:
    driver.remove()
    program = launch()
    assert program("nvmlInit()") is None
    assert program("nvmlDeviceGetCount()") == 0
