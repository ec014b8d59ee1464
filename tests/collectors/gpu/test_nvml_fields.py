"""Fields: each has a value of its own, so that one taken for another shows."""

import math
import subprocess
import sys
from typing import get_args

import pytest

from collectors.gpu.driver import FakeDriver
from oomcast_collectors.gpu.driver import DriverError, Field
from oomcast_collectors.gpu.nvml import Nvml
from oomcast_collectors.gpu.nvml_device import NvmlDevice
from requires import needs

pytestmark = needs("cc")
FIELDS: tuple[Field, ...] = get_args(Field)


@pytest.fixture
def device(nvml: Nvml) -> NvmlDevice:
    return nvml.devices()[0][0]


def set_all(driver: FakeDriver) -> None:
    gpu = driver.gpus[0]
    gpu.set(power_mw=301_500, power_instant_mw=302_000, limit_mw=303_000, enforced_limit_mw=304_250, energy_mj=305_125)
    gpu.set(temp=71, memtemp=72, gr=1001, sm=1002, mem=1003, vid=1004)
    gpu.set(ecc_volatile_corrected=11, ecc_volatile_uncorrected=12, ecc_aggregate_corrected=13)
    gpu.set(ecc_aggregate_uncorrected=14, remap=(21, 22, 23, 24), recovery=3)
    gpu.set(pcie_tx_kb_s=31, pcie_rx_kb_s=32, pcie_tx_bytes=2**40 + 33, pcie_rx_bytes=2**40 + 34)
    gpu.set(nvlink_tx_kib=41, nvlink_rx_kib=42, nvlink=[(0, 100, 200), (17, 1, 2)])
    driver.write()


def test_each_field(device: NvmlDevice, driver: FakeDriver) -> None:
    set_all(driver)
    expected: dict[Field, float] = {
        "power_watts": 301.5,
        "power_limit_watts": 304.25,
        "energy_joules": 305.125,
        "temperature_celsius": 71,
        "memory_temperature_celsius": 72,
        "sm_clock_hertz": 1_002_000_000,
        "memory_clock_hertz": 1_003_000_000,
        "ecc_corrected": 11,
        "ecc_uncorrected": 12,
        "remapped_rows_correctable": 21,
        "remapped_rows_uncorrectable": 22,
        "remap_pending": 23,
        "remap_failed": 24,
        "recovery_action": 3,
        "pcie_tx_bytes": 2**40 + 33,
        "pcie_rx_bytes": 2**40 + 34,
        "nvlink_tx_bytes": 41 * 1024,
        "nvlink_rx_bytes": 42 * 1024,
    }
    assert device.fields(FIELDS) == expected
    assert len(set(expected.values())) == len(FIELDS)
    for field in FIELDS:
        assert device.fields([field]) == {field: expected[field]}
    assert device.fields([]) == {}


def test_links_are_added_up_where_the_driver_does_not(device: NvmlDevice, driver: FakeDriver) -> None:
    set_all(driver)
    driver.gpus[0].set(nvlink_aggregate_ret=2)
    driver.write()
    assert device.fields(["nvlink_tx_bytes", "nvlink_rx_bytes"]) == {
        "nvlink_tx_bytes": 101 * 1024,
        "nvlink_rx_bytes": 202 * 1024,
    }


@pytest.mark.parametrize("links", [0, 4294967295])
def test_a_gpu_without_links(device: NvmlDevice, driver: FakeDriver, links: int) -> None:
    driver.gpus[0].set(nvlinks=0, field=(91, 1, links))
    driver.write()
    found = device.fields(["nvlink_tx_bytes"])["nvlink_tx_bytes"]
    assert isinstance(found, DriverError)
    assert found.fault == ("unsupported" if links == 0 else "transient")


def test_the_older_function_for_the_temperature(device: NvmlDevice, driver: FakeDriver) -> None:
    driver.set(absent=["nvmlDeviceGetTemperatureV"])
    driver.gpus[0].set(temp=66)
    driver.write()
    assert device.fields(["temperature_celsius"]) == {"temperature_celsius": 66.0}
    driver.set(absent=["nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"])
    driver.write()
    assert fault(device, "temperature_celsius") == "unsupported"
    driver.set(absent=None)
    driver.gpus[0].set({"fail.nvmlDeviceGetTemperatureV": 999})
    driver.write()
    assert fault(device, "temperature_celsius") == "transient"


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [(0, 1.5, 1.5), (1, 7, 7), (2, 2**33, 2**33), (3, 2**40, 2**40), (4, -(2**40), -(2**40)), (5, -9, -9), (6, 65, 65)],
)
def test_each_type_of_value(device: NvmlDevice, driver: FakeDriver, kind: int, value: float, expected: float) -> None:
    driver.gpus[0].set(field=(82, kind, value))
    driver.write()
    assert device.fields(["memory_temperature_celsius"]) == {"memory_temperature_celsius": expected}


@pytest.mark.parametrize(("kind", "value"), [(1, 2**32 - 1), (2, 2**64 - 1), (3, 2**64 - 1), (7, 1), (4294967295, 1)])
def test_what_is_no_value(device: NvmlDevice, driver: FakeDriver, kind: int, value: int) -> None:
    driver.gpus[0].set(field=(82, kind, value))
    driver.write()
    assert fault(device, "memory_temperature_celsius") == "transient"


@pytest.mark.parametrize("code", [3, 4, 13, 17, 27, 999])
def test_a_failure_of_one_field_is_its_own(device: NvmlDevice, driver: FakeDriver, code: int) -> None:
    set_all(driver)
    driver.gpus[0].set({"fail.nvmlDeviceGetEnforcedPowerLimit": code}, field_fail=[(82, code), (197, code)])
    driver.write()
    found = device.fields(FIELDS)
    failed = {field: value.code for field, value in found.items() if isinstance(value, DriverError)}
    assert failed == dict.fromkeys(("power_limit_watts", "memory_temperature_celsius", "pcie_tx_bytes"), code)
    assert found["power_watts"] == 301.5
    assert found["pcie_rx_bytes"] == 2**40 + 34


def test_a_driver_without_field_values(device: NvmlDevice, driver: FakeDriver) -> None:
    set_all(driver)
    driver.set(absent=["nvmlDeviceGetFieldValues"])
    driver.write()
    found = device.fields(FIELDS)
    failed = [field for field, value in found.items() if isinstance(value, DriverError) and value.code == 13]
    assert len(failed) == 11
    assert found["ecc_uncorrected"] == 12


@pytest.mark.parametrize("code", [1, 9, 15, 16, 18, 28])
@pytest.mark.parametrize("key", ["field_fail", "fail.nvmlDeviceGetFieldValues", "fail.nvmlDeviceGetPowerUsage", "fail"])
def test_what_is_about_the_whole_gpu_is_raised(device: NvmlDevice, driver: FakeDriver, key: str, code: int) -> None:
    driver.gpus[0].set({key: (230, code) if key == "field_fail" else code})
    driver.write()
    with pytest.raises(DriverError) as caught:
        device.fields(FIELDS)
    assert caught.value.code == code


def test_garbage_is_handed_on_as_a_number(device: NvmlDevice, driver: FakeDriver) -> None:
    driver.gpus[0].set(field=(82, 0, "nan"))
    driver.write()
    found = device.fields(["memory_temperature_celsius"])["memory_temperature_celsius"]
    assert isinstance(found, float)
    assert math.isnan(found)


def test_a_driver_that_writes_behind_the_last_entry(driver: FakeDriver) -> None:
    driver.gpus[0].set(field_overrun=1)
    driver.write()
    # With this allocator of Python's a write behind a block ends the process when the block is freed.
    environment = {**driver.environment, "PYTHONMALLOC": "debug"}
    adapter = """if True:
        from oomcast_collectors.gpu.nvml import Nvml
        nvml = Nvml()
        nvml.open()
        device = nvml.devices()[0][0]
        print([device.fields(["energy_joules", "nvlink_tx_bytes"]) for _ in range(3)][-1])
    """
    plain = """if True:
        import pynvml
        pynvml.nvmlInit()
        pynvml.nvmlDeviceGetFieldValues(pynvml.nvmlDeviceGetHandleByIndex(0), [83, (138, 4294967295)])
    """
    done = subprocess.run([sys.executable, "-c", adapter], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "{'energy_joules': 0.0, 'nvlink_tx_bytes': 0.0}\n")
    done = subprocess.run([sys.executable, "-c", plain], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode < 0, "the stand-in does not overrun, so the test above shows nothing"


def fault(device: NvmlDevice, field: Field) -> str:
    found = device.fields([field])[field]
    assert isinstance(found, DriverError)
    return found.fault
