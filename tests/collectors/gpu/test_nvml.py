"""The adapter: which GPUs there are, memory, identity, and each code of NVML's as a fault."""

import pytest

from collectors.gpu.driver import FakeDriver, uuid
from oomcast_collectors.gpu.driver import Driver, DriverError, Fault, Identity, Memory, Utilization
from oomcast_collectors.gpu.nvml import Nvml
from oomcast_collectors.gpu.nvml_device import NvmlDevice
from requires import needs

pytestmark = needs("cc")
GIB = 1 << 30
RESERVED = 643_825_664
TOTAL = 150_754_820_096


def first(nvml: Nvml) -> NvmlDevice:
    return nvml.devices()[0][0]


def test_it_is_a_driver(nvml: Nvml) -> None:
    driver: Driver = nvml
    assert driver.version() == "580.95.05"


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (1, "session"),
        (2, "transient"),
        (3, "unsupported"),
        (4, "not_permitted"),
        (6, "transient"),
        (9, "no_driver"),
        (10, "transient"),
        (12, "no_driver"),
        (13, "unsupported"),
        (15, "lost"),
        (16, "reset_required"),
        (17, "not_permitted"),
        (18, "mismatch"),
        (27, "transient"),
        (28, "session"),
        (999, "transient"),
        (12345, "transient"),
    ],
)
def test_each_code_is_a_fault(nvml: Nvml, driver: FakeDriver, code: int, fault: Fault) -> None:
    device = first(nvml)
    driver.gpus[0].set({"fail.nvmlDeviceGetUtilizationRates": code, "fail.nvmlDeviceGetAccountingMode": code})
    driver.gpus[0].set({"fail.nvmlDeviceGetComputeRunningProcesses_v3": code})
    driver.gpus[0].set({"fail.nvmlDeviceGetComputeRunningProcesses_v2": code})
    driver.write()
    for ask, function in (
        (device.utilization, "nvmlDeviceGetUtilizationRates"),
        (device.accounting, "nvmlDeviceGetAccountingMode"),
        (device.processes, f"nvmlDeviceGetComputeRunningProcesses_v{2 if code == 13 else 3}"),
    ):
        with pytest.raises(DriverError) as caught:
            ask()
        assert (caught.value.fault, caught.value.code, caught.value.function) == (fault, code, function)


def test_memory_tells_the_reserved_apart(nvml: Nvml, driver: FakeDriver) -> None:
    driver.gpus[1].set(used=3 * GIB)
    driver.write()
    assert nvml.devices()[0][1].memory() == Memory(TOTAL, 3 * GIB, TOTAL - 3 * GIB - RESERVED, RESERVED)


def test_memory_of_an_old_driver(nvml: Nvml, driver: FakeDriver) -> None:
    device = first(nvml)
    driver.set(absent=["nvmlDeviceGetMemoryInfo_v2"])
    driver.gpus[0].set(used=3 * GIB)
    driver.write()
    old = Memory(TOTAL, 3 * GIB + RESERVED, TOTAL - 3 * GIB - RESERVED, None)
    assert device.memory() == old
    assert device.identity().memory_api == "v1"
    driver.set(absent=None)
    driver.write()
    assert device.memory() == old, "it is not asked for v2 again"


@pytest.mark.parametrize("code", [3, 4, 15, 999])
def test_only_a_missing_function_makes_memory_v1(nvml: Nvml, driver: FakeDriver, code: int) -> None:
    device = first(nvml)
    driver.gpus[0].set({"fail.nvmlDeviceGetMemoryInfo_v2": code})
    driver.write()
    with pytest.raises(DriverError) as caught:
        device.memory()
    assert caught.value.code == code
    driver.gpus[0].set({"fail.nvmlDeviceGetMemoryInfo_v2": None})
    driver.write()
    assert device.memory().reserved == RESERVED


def test_utilization(nvml: Nvml, driver: FakeDriver) -> None:
    driver.gpus[0].set(util=97, memutil=13)
    driver.gpus[1].set(util=4294967295, memutil=808334905)
    driver.write()
    devices = nvml.devices()[0]
    assert devices[0].utilization() == Utilization(0.97, 0.13)
    assert devices[1].utilization() == Utilization(42949672.95, 8083349.05)


def test_identity(nvml: Nvml, driver: FakeDriver) -> None:
    driver.gpus[1].set(name="NVIDIA B200", busid="00000009:3B:1F.0", addressing="ats", persistence=0, mig=1)
    driver.write()
    devices = nvml.devices()[0]
    assert devices[0].identity() == Identity(uuid(0), 0, "NVIDIA H200", "0000:10:00.0", "v2", "", True, False)
    assert devices[1].identity() == Identity(uuid(1), 1, "NVIDIA B200", "0009:3b:1f.0", "v2", "ats", False, True)


@pytest.mark.parametrize("mode", ["none", "hmm", "ats"])
def test_addressing(nvml: Nvml, driver: FakeDriver, mode: str) -> None:
    driver.gpus[0].set(addressing=mode)
    driver.write()
    assert first(nvml).identity().addressing == mode


def test_identity_of_a_driver_that_knows_little(nvml: Nvml, driver: FakeDriver) -> None:
    driver.set(absent=["nvmlDeviceGetAddressingMode", "nvmlDeviceGetPersistenceMode", "nvmlDeviceGetMigMode"])
    driver.gpus[0].set(total=0)
    driver.write()
    found = first(nvml).identity()
    assert (found.memory_api, found.addressing, found.persistence, found.mig) == ("", "", None, False)


def test_identity_where_memory_may_not_be_read(nvml: Nvml, driver: FakeDriver) -> None:
    driver.gpus[0].set({"fail.nvmlDeviceGetMemoryInfo_v2": 4})
    driver.write()
    assert first(nvml).identity().memory_api == "v2"


@pytest.mark.parametrize("function", ["nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMigMode"])
def test_identity_is_whole_or_fails(nvml: Nvml, driver: FakeDriver, function: str) -> None:
    driver.gpus[0].set({f"fail.{function}": 999})
    driver.write()
    with pytest.raises(DriverError, match="999"):
        first(nvml).identity()


def test_a_name_that_is_no_text_is_an_error(nvml: Nvml, driver: FakeDriver) -> None:
    device = first(nvml)
    driver.gpus[0].set(name="NVIDIA")
    driver.write()
    driver.state.write_bytes(driver.state.read_bytes().replace(b"NVIDIA", b"\xff\xfe\x80"))
    with pytest.raises(DriverError) as caught:
        device.identity()
    assert (caught.value.fault, caught.value.function) == ("transient", "nvmlDeviceGetName")


@pytest.mark.parametrize("code", [3, 4, 15, 16, 17, 28, 999])
@pytest.mark.parametrize("function", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID"])
def test_a_bad_gpu_hides_no_other(nvml: Nvml, driver: FakeDriver, function: str, code: int) -> None:
    driver.gpus[0].set({f"fail.{function}": code})
    driver.write()
    found, missing = nvml.devices()
    assert [device.uuid for device in found] == [uuid(1)]
    assert [(one.index, one.uuid, one.error.code) for one in missing] == [(0, "", code)]


def test_a_missing_gpu_is_known_from_before(nvml: Nvml, driver: FakeDriver) -> None:
    nvml.devices()
    driver.gpus[1].set(fail=15)
    driver.write()
    assert [(one.index, one.uuid, one.error.fault) for one in nvml.devices()[1]] == [(1, uuid(1), "lost")]
    nvml.close()
    nvml.open()
    assert [(one.index, one.uuid) for one in nvml.devices()[1]] == [(1, "")], "an index may be another GPU's by now"


@pytest.mark.parametrize("code", [1, 9, 18])
def test_what_is_about_the_library_is_raised(nvml: Nvml, driver: FakeDriver, code: int) -> None:
    driver.gpus[0].set({"fail.nvmlDeviceGetHandleByIndex_v2": code})
    driver.write()
    with pytest.raises(DriverError) as caught:
        nvml.devices()
    assert caught.value.code == code


def test_a_gpu_is_found_by_its_uuid(nvml: Nvml, driver: FakeDriver) -> None:
    driver.gpus[1].set(used=5 * GIB)
    driver.write()
    assert nvml.device(uuid(1)).memory().used == 5 * GIB
    with pytest.raises(DriverError) as caught:
        nvml.device("GPU-of-nobody")
    assert (caught.value.fault, caught.value.code) == ("transient", 6)
