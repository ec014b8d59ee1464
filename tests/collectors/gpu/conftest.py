"""Fixtures of the tests of gpu. A test that uses them says `needs("cc")`."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from collectors.gpu.driver import LIBRARY, FakeDriver, build
from oomcast_collectors.gpu.nvml import Nvml


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def driver(nvml_library: Path, tmp_path: Path) -> FakeDriver:
    """Two healthy GPUs with nothing on them."""
    return FakeDriver(tmp_path, nvml_library, gpus=2)


@pytest.fixture
def nvml(driver: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nvml]:
    """The adapter on `driver` in this process, open."""
    # To the loader a copy is another library, so that nothing of an earlier test is in it.
    library = tmp_path / "copy" / LIBRARY
    library.parent.mkdir()
    shutil.copy(driver.library, library)
    monkeypatch.setenv("FAKE_NVML_STATE", str(driver.state))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    made = Nvml(str(library))
    made.open()
    yield made
    driver.set(version_skew=None, fail=None)
    driver.write()
    made.close()
