"""The adapter's life: opening, closing, a library that is not there, or another one by now."""

import subprocess
import sys
from pathlib import Path

import pynvml
import pytest

from collectors.gpu.driver import LIBRARY, FakeDriver
from oomcast_collectors.gpu.driver import DriverError, Fault
from oomcast_collectors.gpu.nvml import Nvml
from requires import needs

pytestmark = needs("cc")


def test_handles_are_void_after_closing(nvml: Nvml) -> None:
    device = nvml.devices()[0][0]
    xids = nvml.xids([device])
    nvml.close()
    nvml.close()
    for ask in (device.memory, device.processes, device.identity, nvml.version, nvml.devices, lambda: xids.wait(0)):
        with pytest.raises(DriverError) as caught:
            ask()
        assert (caught.value.fault, caught.value.code) == ("session", 1)
    nvml.open()
    nvml.open()
    assert nvml.devices()[0][0].memory().total > 0
    for ask in (device.memory, device.processes):
        with pytest.raises(DriverError) as caught:
            ask()
        assert caught.value.fault == "session", "a handle of an earlier session never reaches the library"
    nvml.close()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()


@pytest.mark.parametrize(
    ("code", "fault"), [(9, "no_driver"), (18, "mismatch"), (999, "transient"), (17, "not_permitted")]
)
def test_it_does_not_open(nvml: Nvml, driver: FakeDriver, code: int, fault: Fault) -> None:
    nvml.close()
    driver.set(init_ret=code)
    driver.write()
    with pytest.raises(DriverError) as caught:
        nvml.open()
    assert (caught.value.fault, caught.value.code, caught.value.function) == (fault, code, "nvmlInit")
    driver.set(init_ret=0)
    driver.write()
    nvml.open()
    assert nvml.version() == "580.95.05"


def test_a_machine_without_a_library(tmp_path: Path) -> None:
    for name in ("libnvidia-ml-of-nobody.so.1", str(tmp_path / "absent.so"), "libc.so.6"):
        absent = Nvml(name)
        with pytest.raises(DriverError) as caught:
            absent.open()
        assert (caught.value.fault, caught.value.code) == ("no_driver", 12)
        assert not absent.outdated()


def test_nvidia_ml_py_is_loaded_only_with_a_library() -> None:
    script = """if True:
        import sys
        from oomcast_collectors.gpu.driver import DriverError
        from oomcast_collectors.gpu.nvml import Nvml
        try:
            Nvml("libnvidia-ml-of-nobody.so.1").open()
        except DriverError as error:
            print(error.fault, "pynvml" in sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "no_driver False\n"


def test_a_library_found_by_name_is_outdated_when_its_link_turns(driver: FakeDriver, tmp_path: Path) -> None:
    folder = tmp_path / "lib"
    folder.mkdir()
    for version in ("580", "590"):
        (folder / f"libnvidia-ml.so.{version}").write_bytes(driver.library.read_bytes())
    (folder / LIBRARY).symlink_to("libnvidia-ml.so.580")
    script = """if True:
        import os
        from oomcast_collectors.gpu.nvml import Nvml
        nvml = Nvml()
        print(nvml.outdated())
        nvml.open()
        print(nvml.outdated(), nvml.version())
        os.remove("libnvidia-ml.so.1")
        print(nvml.outdated())
        os.symlink("libnvidia-ml.so.590", "libnvidia-ml.so.1")
        print(nvml.outdated())
        nvml.close()
        print(nvml.outdated())
        nvml.open()
        print(nvml.outdated())
    """
    environment = {**driver.environment, "LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["False", "False 580.95.05", "False", "True", "True", "True"]
