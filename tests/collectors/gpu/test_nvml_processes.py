"""Processes, accounting, MIG instances and Xids."""

import time

import pytest

from collectors.gpu.driver import FakeDriver, uuid
from oomcast_collectors.gpu.driver import DriverError, Memory, ProcessMemory, XidSeen
from oomcast_collectors.gpu.nvml import Nvml
from oomcast_collectors.gpu.nvml_device import NvmlDevice
from requires import needs

pytestmark = needs("cc")
GIB = 1 << 30


@pytest.fixture
def device(nvml: Nvml) -> NvmlDevice:
    return nvml.devices()[0][0]


def test_no_processes(device: NvmlDevice) -> None:
    assert device.processes() == []


@pytest.mark.parametrize("layout", ["", "r535"])
def test_lists_are_merged(device: NvmlDevice, driver: FakeDriver, layout: str) -> None:
    gpu = driver.gpus[0]
    gpu.set(proc_layout=layout)
    gpu.set(proc=[(10, 5 * GIB), (11, "NA"), (12, "NA"), (13, 7, 1, 0), (13, 8, 2, 0), (4_000_000_000, 0)])
    gpu.set(gproc=[(10, 6 * GIB), (11, 3), (14, 9)], mpsproc=[(10, 4 * GIB), (11, "NA"), (15, 2**63)])
    driver.write()
    assert sorted(device.processes(), key=str) == sorted(
        [
            ProcessMemory(10, 6 * GIB, None),
            ProcessMemory(11, 3, None),
            ProcessMemory(12, None, None),
            ProcessMemory(13, 7, 1),
            ProcessMemory(13, 8, 2),
            ProcessMemory(14, 9, None),
            ProcessMemory(15, 2**63, None),
            ProcessMemory(4_000_000_000, 0, None),
        ],
        key=str,
    )


@pytest.mark.parametrize("layout", ["", "r535", "cleared", "r535cleared"])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 47, 48, 49, 64])
def test_pids_are_right_in_either_layout(device: NvmlDevice, driver: FakeDriver, layout: str, count: int) -> None:
    expected = [(1000 + i, i * GIB) for i in range(count)]
    driver.gpus[0].set(proc_layout=layout, proc=list(expected))
    driver.write()
    assert [(one.pid, one.used) for one in device.processes()] == expected


def test_more_processes_than_there_was_room_for(
    device: NvmlDevice, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oomcast_collectors.gpu.nvml_processes._FIRST_ROOM", 3)
    driver.gpus[0].set(proc=[(1000 + i, i) for i in range(50)])
    driver.write()
    assert [one.pid for one in device.processes()] == [1000 + i for i in range(50)]
    driver.gpus[0].set({"fail.nvmlDeviceGetComputeRunningProcesses_v3": 7})
    driver.write()
    with pytest.raises(DriverError) as caught:
        device.processes()
    assert (caught.value.fault, caught.value.code) == ("transient", 7)


@pytest.mark.parametrize(("count", "returned"), [(66, 0), (2**32 - 1, 0), (2**32 - 1, 7)])
def test_a_count_that_cannot_be(device: NvmlDevice, driver: FakeDriver, count: int, returned: int) -> None:
    driver.gpus[0].set(proc=[(10, 1)], proc_count=(count, returned))
    driver.write()
    with pytest.raises(DriverError) as caught:
        device.processes()
    assert caught.value.fault == "transient"


def test_lists_that_a_driver_does_not_have(device: NvmlDevice, driver: FakeDriver) -> None:
    driver.gpus[0].set(proc=[(10, 1)], gproc=[(11, 2)])
    lists = [f"nvmlDeviceGet{kind}RunningProcesses_v3" for kind in ("Compute", "Graphics", "MPSCompute")]
    driver.set(absent=lists)
    driver.write()
    assert device.processes() == [ProcessMemory(10, 1, None), ProcessMemory(11, 2, None)]
    driver.set(
        absent=[*lists, "nvmlDeviceGetGraphicsRunningProcesses_v2", "nvmlDeviceGetMPSComputeRunningProcesses_v2"]
    )
    driver.write()
    assert device.processes() == [ProcessMemory(10, 1, None)]
    driver.gpus[0].set({"fail.nvmlDeviceGetComputeRunningProcesses_v2": 3})
    driver.write()
    with pytest.raises(DriverError) as caught:
        device.processes()
    assert caught.value.fault == "unsupported"


@pytest.mark.parametrize("kind", ["Graphics", "MPSCompute"])
def test_half_of_the_processes_is_no_answer(device: NvmlDevice, driver: FakeDriver, kind: str) -> None:
    driver.gpus[0].set({f"fail.nvmlDeviceGet{kind}RunningProcesses_v3": 999}, proc=[(10, 1)])
    driver.write()
    with pytest.raises(DriverError, match="999"):
        device.processes()


def test_accounting(device: NvmlDevice, driver: FakeDriver) -> None:
    with pytest.raises(DriverError) as caught:
        device.accounting()
    assert caught.value.fault == "unsupported"
    driver.gpus[0].set(accounting=1)
    driver.write()
    assert device.accounting() == {}
    driver.gpus[0].set(acct=[(10, 5 * GIB), (11, "NA"), (12, 7)], proc=[(10, 4 * GIB)])
    driver.write()
    assert device.accounting() == {10: 5 * GIB, 12: 7}
    driver.gpus[0].set({"fail.nvmlDeviceGetAccountingStats": 6})
    driver.write()
    assert device.accounting() == {}
    driver.gpus[0].set({"fail.nvmlDeviceGetAccountingStats": 15})
    driver.write()
    with pytest.raises(DriverError) as caught:
        device.accounting()
    assert caught.value.fault == "lost"


def test_instances(device: NvmlDevice, driver: FakeDriver) -> None:
    assert device.instances() == []
    driver.gpus[0].set(
        mig=1,
        proc=[(10, 3, 5, 0)],
        migdev=[
            (2, 0, "MIG-a", "3g.71gb", 70 * GIB, 40 * GIB),
            (0, 0, "MIG-none", "-", 1, 1),
            (5, 0, "MIG-b", "1c.2g.35gb", 35 * GIB, 2 * GIB),
            (5, 1, "MIG-c", "1c.2g.35gb", 35 * GIB, 2 * GIB),
        ],
    )
    driver.write()
    found = device.instances()
    assert [(one.uuid, one.instance, one.profile) for one in found] == [
        ("MIG-a", 2, "3g.71gb"),
        ("MIG-b", 5, "2g.35gb"),
    ]
    assert found[0].memory() == Memory(70 * GIB, 40 * GIB, 30 * GIB, 0)
    assert device.processes() == [ProcessMemory(10, 3, 5)]
    for ask in (device.utilization, device.accounting):
        with pytest.raises(DriverError) as caught:
            ask()
        assert caught.value.fault == "unsupported"
    driver.gpus[0].set(migdev=None)
    driver.write()
    with pytest.raises(DriverError):
        found[0].memory()
    assert device.instances() == []


@pytest.mark.parametrize(("code", "empty"), [(2, True), (6, True), (15, False), (999, False)])
def test_an_empty_slot_is_no_failure(device: NvmlDevice, driver: FakeDriver, code: int, empty: bool) -> None:
    driver.gpus[0].set({"fail.nvmlDeviceGetMigDeviceHandleByIndex": code}, mig=1)
    driver.write()
    if empty:
        assert device.instances() == []
    else:
        with pytest.raises(DriverError):
            device.instances()


def test_a_driver_without_mig(device: NvmlDevice, driver: FakeDriver) -> None:
    driver.set(absent=["nvmlDeviceGetMigMode"])
    driver.write()
    assert device.instances() == []


def test_xids(nvml: Nvml, driver: FakeDriver) -> None:
    driver.gpus[0].set(xid=["1:31"])
    driver.write()
    xids = nvml.xids(nvml.devices()[0])
    assert xids.wait(0) is None, "what was before is not told"
    driver.gpus[0].set(xid=["1:31", "2:79"])
    driver.gpus[1].set(xid=["1:999:2:0"])
    driver.write()
    assert xids.wait(5) == XidSeen(uuid(0), 79)
    assert xids.wait(5) == XidSeen(uuid(1), 999)
    assert xids.wait(0) is None
    driver.gpus[1].set(xid=["2:48"], xid_anonymous=1)
    driver.write()
    assert xids.wait(5) == XidSeen("", 48)
    xids.close()


@pytest.mark.parametrize("code", [3, 15])
@pytest.mark.parametrize("function", ["GetSupportedEventTypes", "RegisterEvents"])
def test_a_gpu_without_events_is_left_out(nvml: Nvml, driver: FakeDriver, function: str, code: int) -> None:
    devices = nvml.devices()[0]
    driver.gpus[0].set({f"fail.nvmlDevice{function}": code})
    driver.write()
    xids = nvml.xids(devices)
    driver.gpus[0].set(xid=["1:48"])
    driver.gpus[1].set(xid=["1:79"])
    driver.write()
    assert xids.wait(5) == XidSeen(uuid(1), 79)
    assert xids.wait(0) is None
    xids.close()


def test_only_xids_are_asked_for(nvml: Nvml, driver: FakeDriver) -> None:
    driver.gpus[0].set(events=0x8)
    driver.gpus[1].set(events=0x3)
    driver.write()
    xids = nvml.xids(nvml.devices()[0])
    driver.gpus[0].set(xid=["1:62"])
    driver.gpus[1].set(xid=["1:63"])
    driver.write()
    assert xids.wait(5) == XidSeen(uuid(0), 62)
    assert xids.wait(0) is None


def test_an_event_of_another_kind_is_no_xid(nvml: Nvml, driver: FakeDriver) -> None:
    xids = nvml.xids(nvml.devices()[0])
    driver.gpus[0].set(xid=["1:62"], event_type=0x8000)
    driver.write()
    assert xids.wait(5) is None


def test_it_waits_as_long_as_it_is_told(nvml: Nvml) -> None:
    xids = nvml.xids(nvml.devices()[0])
    begin = time.monotonic()
    assert xids.wait(0.25) is None
    assert 0.25 <= time.monotonic() - begin < 5


@pytest.mark.parametrize("code", [3, 999])
def test_no_events_at_all(nvml: Nvml, driver: FakeDriver, code: int) -> None:
    for gpu in driver.gpus:
        gpu.set({"fail.nvmlDeviceRegisterEvents": code})
    driver.write()
    with pytest.raises(DriverError) as caught:
        nvml.xids(nvml.devices()[0])
    assert caught.value.code == code
    with pytest.raises(DriverError, match="Not Supported"):
        nvml.xids([])
    driver.set({"fail.nvmlEventSetFree": 28})
    driver.write()
    with pytest.raises(DriverError, match="nvmlEventSetFree"):
        nvml.xids([])


def test_waiting_that_fails(nvml: Nvml, driver: FakeDriver) -> None:
    xids = nvml.xids(nvml.devices()[0])
    driver.set({"fail.nvmlEventSetWait_v2": 15})
    driver.write()
    with pytest.raises(DriverError) as caught:
        xids.wait(5)
    assert caught.value.fault == "lost"
