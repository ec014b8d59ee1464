"""Two starts of the virtual machine for all tests: they read what was seen in it."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from host import vm_kernel
from vm.hardship import Hardship
from vm.machine import run
from vm.results import Results

TESTS = Path(__file__).parents[1]
SECONDS = 280.0
"""Each takes a third or half of this on a machine at rest; after 300 a test counts as hanging."""

_SAID = pytest.StashKey[Sequence[str]]()


@pytest.fixture(scope="session")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """OOM kills in cgroups, with programs in the kernel as one more witness."""
    shared = _started(tmp_path_factory.mktemp("vm"), "vm.guest.drive", ("hog", "thrash", "crash"), 16)
    return Results(shared / "results.json")


@pytest.fixture(scope="session")
def hardship(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Hardship:
    """The machine thrashes and runs out of memory, around a daemon that has what its unit gives it."""
    shared = _started(tmp_path_factory.mktemp("hardship"), "vm.guest.hardship", ("hog", "thrash"), 300)
    found = Hardship(shared / "hardship.json")
    pytestconfig.stash[_SAID] = list(found.said())
    return found


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(_SAID, ()):
        terminalreporter.write_line(line)


def _started(shared: Path, driver: str, programs: Sequence[str], data_mib: int) -> Path:
    """Starts it for a driver with some programs and a file of so many MiB; gives `shared`, with what it wrote."""
    (shared / "programs").mkdir()
    for name in programs:
        # In the guest they run without a page of a library in their cgroups.
        program, source = shared / "programs" / name, TESTS / "programs" / f"{name}.c"
        subprocess.run(["cc", "-static", "-O1", "-o", program, source], check=True, timeout=60)
    with (shared / "data").open("wb") as data:
        data.truncate(data_mib << 20)
    kernel = vm_kernel()
    assert kernel is not None
    environment = {"PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"}
    run(kernel, shared, [sys.executable, "-m", driver, str(shared)], environment, SECONDS)
    return shared
