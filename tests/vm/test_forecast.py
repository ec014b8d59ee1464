"""The time to exhaustion on the way to a kill, beside the moment at which the kernel killed."""

from itertools import pairwise

import pytest

from requires import needs
from vm.results import Results

pytestmark = needs("vm", "cc")

LARGEST_GAP = 1.0
"""Seconds between two answers, of which four a second are asked for."""


@pytest.fixture
def climb(guest: Results) -> list[tuple[float, float]]:
    """Seconds truly left and seconds forecast, over the last five. Skips if the emulated machine stood still then."""
    (end,) = guest.ends("/climb")
    (killed,) = [time for time, pid, _ in guest.killed() if pid == end.pid]
    found = [(killed - at, value) for at, value in guest.forecasts["/climb"] if 0 < killed - at < 5]
    moments = [5.0, *(true for true, _ in found), 0.0]
    gap = max(before - after for before, after in pairwise(moments))
    # Of a machine that gets no time itself neither the rate of the climb nor the readings are what they should be.
    if gap > LARGEST_GAP:
        pytest.skip(f"this machine is too busy: the emulated one could not be asked for {gap:.1f} s")
    return found


def test_three_seconds_before_the_kill_the_forecast_is_right_to_three_tenths(climb: list[tuple[float, float]]) -> None:
    near = [(true, value) for true, value in climb if 2 < true < 4]
    assert near
    assert [(true, value) for true, value in near if abs(value - true) > 0.3 * true] == []


def test_it_falls_until_the_kill(climb: list[tuple[float, float]]) -> None:
    (first, *_, last) = [value for _, value in climb]
    assert first > last
    assert last < 2
