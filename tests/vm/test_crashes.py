"""Crashes as this kernel logs them."""

import pytest

from requires import needs
from vm.guest.scenarios import CRASHES
from vm.results import Results

pytestmark = needs("vm", "cc")


@pytest.mark.parametrize("how", CRASHES)
def test_a_crash_is_counted_once_by_its_module(guest: Results, how: str) -> None:
    assert guest.value("oomcast_kernel_log_segfaults_total", module=f"crash-{how}") == 1


def test_nothing_else_crashed(guest: Results) -> None:
    assert sum(guest.series("oomcast_kernel_log_segfaults_total").values()) == len(CRASHES)
