"""The series of cgroups beside the kernel's own files, read in the same calm moment."""

import re

import pytest

from requires import needs
from vm.guest.scenarios import CELLS
from vm.results import Results

pytestmark = needs("vm", "cc")

MIB = 1 << 20
LIVING = [path for path in CELLS if path not in ("/removed", "/global")]


def pressure(text: str, kind: str) -> float:
    """Seconds of a PSI file."""
    found = re.search(rf"^{kind} .* total=(\d+)$", text, re.MULTILINE)
    assert found
    return int(found[1]) / 1e6


@pytest.mark.parametrize("cgroup", LIVING)
def test_major_faults_are_the_kernels(guest: Results, cgroup: str) -> None:
    kernel = guest.counts(cgroup, "memory.stat")["pgmajfault"]
    assert guest.value("oomcast_cgroup_pgmajfault_total", "after", cgroup=cgroup) == kernel


def test_thrashing_shows_in_major_faults_and_refaults(guest: Results) -> None:
    assert [end.status for end in guest.ends("/thrash")] == [0]
    kernel = guest.counts("/thrash", "memory.stat")
    assert kernel["workingset_refault_file"] > 0
    assert kernel["pgmajfault"] > 50
    refaults = guest.value("oomcast_cgroup_workingset_refaults_total", "after", cgroup="/thrash", kind="file")
    assert refaults == kernel["workingset_refault_file"]


@pytest.mark.parametrize("cgroup", LIVING)
def test_usage_is_the_kernels(guest: Results, cgroup: str) -> None:
    used = guest.value("oomcast_cgroup_memory_used_bytes", "after", cgroup=cgroup)
    assert used == int(guest.file(cgroup, "memory.current"))


@pytest.mark.parametrize("cgroup", LIVING)
@pytest.mark.parametrize("kind", ["some", "full"])
def test_pressure_is_the_kernels(guest: Results, cgroup: str, kind: str) -> None:
    kernel = pressure(guest.file(cgroup, "memory.pressure"), kind)
    found = guest.value("oomcast_cgroup_pressure_seconds_total", "after", cgroup=cgroup, resource="memory", kind=kind)
    assert found == pytest.approx(kernel, abs=0.001)


def test_memory_high_slows_down_and_is_told(guest: Results) -> None:
    kernel = guest.counts("/high", "memory.events")
    assert kernel["high"] > 0
    assert kernel["max"] == 0
    assert guest.value("oomcast_cgroup_memory_high_hits_total", "after", cgroup="/high") == kernel["high"]
    assert guest.value("oomcast_cgroup_memory_high_bytes", "after", cgroup="/high") == 24 * MIB
    some = guest.value("oomcast_cgroup_pressure_seconds_total", "after", cgroup="/high", resource="memory", kind="some")
    assert some is not None
    assert some > 1


def test_swap_is_told(guest: Results) -> None:
    swapped = int(guest.file("/swap-held", "memory.swap.current"))
    assert swapped > 12 * MIB
    assert guest.value("oomcast_cgroup_swap_used_bytes", "after", cgroup="/swap-held") == swapped


@pytest.mark.parametrize(
    ("cgroup", "limit"), [("/parent/child", 32), ("/wide/narrow", 32), ("/narrow/wide", 32), ("/plain", 32)]
)
def test_the_limit_that_binds_is_the_lowest_around(guest: Results, cgroup: str, limit: int) -> None:
    assert guest.value("oomcast_cgroup_memory_effective_limit_bytes", "before", cgroup=cgroup) == limit * MIB
