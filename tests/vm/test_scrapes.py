"""What the daemon served in the guest, as a whole."""

import subprocess

import pytest

from requires import needs
from vm.results import Results

pytestmark = needs("vm", "cc")


@needs("prometheus")
@pytest.mark.parametrize("when", ["before", "after", "end"])
def test_it_is_valid_for_promtool(guest: Results, when: str) -> None:
    command = ("promtool", "check", "metrics")
    done = subprocess.run(command, input=guest.scrapes[when], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_no_reading_failed(guest: Results) -> None:
    assert guest.value("oomcast_cgroup_read_errors_total") == 0
    for collector in ("cgroup", "host", "kernel_log"):
        assert guest.value("oomcast_collector_runs_total", collector=collector, outcome="failure") == 0
