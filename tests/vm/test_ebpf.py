"""Programs in a kernel of another release than this machine's, as one more witness of what happened."""

import re

import pytest

from requires import needs
from vm.guest.scenarios import CRASHES
from vm.results import Results

pytestmark = needs("vm", "ebpf", "cc")

LONGEST_NAME = 15
"""Of a thread, in the kernel."""


def test_each_victim_is_told_of_once(guest: Results) -> None:
    """The log has the first victim of a group twice."""
    killed = {match[1] for _, text in guest.kmsg if (match := re.search(r"Killed process (\d+)", text))}
    assert guest.value("oomcast_ebpf_oom_victims_total") == len(killed) > 0


@pytest.mark.parametrize("how", CRASHES)
def test_a_crash_is_counted_once_by_its_program(guest: Results, how: str) -> None:
    name = ("process", f"crash-{how}"[:LONGEST_NAME])
    crashes = guest.series("oomcast_crashes_total")
    assert sum(value for labels, value in crashes.items() if name in labels) == 1


@pytest.mark.parametrize("probe", ["oom_kills", "crashes"])
def test_nothing_failed(guest: Results, probe: str) -> None:
    assert guest.value("oomcast_ebpf_probe_failures_total", probe=probe) == 0
    assert guest.value("oomcast_ebpf_child_starts_total") == 1
