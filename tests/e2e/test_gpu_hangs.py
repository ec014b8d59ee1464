"""Each function of the library that may not come back: the other GPU is read on, and the daemon ends in time."""

import time
from pathlib import Path

import pytest

from collectors.gpu.driver import FakeDriver
from e2e.gpus import gpus
from e2e.program import until
from requires import needs

pytestmark = needs("cc")

GIB = 1 << 30
LOOK = 6.0
"""Seconds in which the library is looked at for new GPUs."""


@pytest.mark.parametrize(
    ("of_gpu", "function"),
    [
        (False, "nvmlDeviceGetCount_v2"),
        (True, "nvmlDeviceGetHandleByIndex_v2"),
        (True, "nvmlDeviceGetUUID"),
        (True, "nvmlDeviceGetUtilizationRates"),
        (True, "nvmlDeviceGetComputeRunningProcesses_v3"),
        (False, "nvmlEventSetWait_v2"),
        (False, "nvmlShutdown"),
    ],
)
def test_a_function_that_hangs(driver: FakeDriver, tmp_path: Path, of_gpu: bool, function: str) -> None:
    with gpus(driver, tmp_path, "slow_period: 1") as node:
        until(lambda: node.value("gpu_up", 1) == 1)
        (driver.gpus[1] if of_gpu else driver).set({f"hang.{function}": 1})
        driver.write()
        time.sleep(LOOK)
        for i in range(3):
            node.set_and_await_used(0, (31 + i) * GIB)
        assert node.value("collector_up", collector="gpu") == 1
        assert node.value("gpu_up", 0) == 1
        code, seconds = node.daemon.end()
        assert code == 0
        assert seconds < 5
