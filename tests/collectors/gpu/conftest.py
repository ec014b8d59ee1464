"""Fixtures of the tests of gpu. A test that uses them says `needs("cc")`."""

from pathlib import Path

import pytest

from collectors.gpu.driver import FakeDriver, build


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def driver(nvml_library: Path, tmp_path: Path) -> FakeDriver:
    """Two healthy GPUs with nothing on them."""
    return FakeDriver(tmp_path, nvml_library, gpus=2)
