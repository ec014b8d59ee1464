"""One start of the virtual machine for all tests: they read what was seen in it."""

import subprocess
import sys
from pathlib import Path

import pytest

from requires import vm_kernel
from vm.machine import run
from vm.results import Results

TESTS = Path(__file__).parents[1]
PROGRAMS = ("hog", "thrash", "crash")
DATA_SIZE = 16 << 20
SECONDS = 240.0
"""It takes a third of this on a machine at rest."""


@pytest.fixture(scope="session")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Results:
    shared = tmp_path_factory.mktemp("vm")
    (shared / "programs").mkdir()
    for name in PROGRAMS:
        # In the guest they run without a page of a library in their cgroups.
        program, source = shared / "programs" / name, TESTS / "programs" / f"{name}.c"
        subprocess.run(["cc", "-static", "-O1", "-o", program, source], check=True, timeout=60)
    with (shared / "data").open("wb") as data:
        data.truncate(DATA_SIZE)
    kernel = vm_kernel()
    assert kernel is not None
    driver = [sys.executable, "-m", "vm.guest.drive", str(shared)]
    environment = {"PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"}
    run(kernel, shared, driver, environment, SECONDS)
    return Results(shared / "results.json")
