"""The time to exhaustion on the way to a kill, beside the moment at which the kernel killed."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import pytest

from requires import needs
from vm.results import Results

pytestmark = needs("vm", "cc")

USUAL_GAP = 0.5
"""Seconds between two answers, of which four a second are asked for, of a machine that gets time."""

LARGEST_GAP = 2.0
"""With a larger one there may be no answer from 4 to 2 seconds before the kill."""


class Climb(NamedTuple):
    """seen: seconds truly left and seconds forecast, over the last five. still: for how long at most the emulated
    machine stood still then: a program that climbs is late by that, and so is what is read."""

    seen: Sequence[tuple[float, float]]
    still: float


@pytest.fixture
def climb(guest: Results) -> Climb:
    """Skips if the emulated machine stood still for too long."""
    (end,) = guest.ends("/climb")
    (killed,) = [time for time, pid, _ in guest.killed() if pid == end.pid]
    seen = [(killed - at, value) for at, value in guest.forecasts["/climb"] if 0 < killed - at < 5]
    moments = [5.0, *(true for true, _ in seen), 0.0]
    gap = max(before - after for before, after in pairwise(moments))
    if gap > LARGEST_GAP:
        pytest.skip(f"this machine is too busy: the emulated one could not be asked for {gap:.1f} s")
    return Climb(seen, max(0.0, gap - USUAL_GAP))


def test_three_seconds_before_the_kill_the_forecast_is_right_to_three_tenths(climb: Climb) -> None:
    near = [(true, value) for true, value in climb.seen if 2 < true < 4]
    assert near
    assert [(true, value) for true, value in near if abs(value - true) > 0.3 * true + climb.still] == []


def test_it_falls_until_the_kill(climb: Climb) -> None:
    (first, *_, last) = [value for _, value in climb.seen]
    assert first > last
    assert last < 2 + climb.still
