"""The time to exhaustion on the way to a kill, beside the moment at which the kernel killed."""

import pytest

from requires import needs
from vm.results import Results

pytestmark = needs("vm", "cc")


@pytest.fixture
def climb(guest: Results) -> list[tuple[float, float]]:
    """Seconds truly left and seconds forecast, over the last five."""
    (end,) = guest.ends("/climb")
    (killed,) = [time for time, pid, _ in guest.killed() if pid == end.pid]
    return [(killed - at, value) for at, value in guest.forecasts["/climb"] if 0 < killed - at < 5]


def test_three_seconds_before_the_kill_the_forecast_is_right_to_three_tenths(climb: list[tuple[float, float]]) -> None:
    near = [(true, value) for true, value in climb if 2 < true < 4]
    assert near
    assert [(true, value) for true, value in near if abs(value - true) > 0.3 * true] == []


def test_it_falls_until_the_kill(climb: list[tuple[float, float]]) -> None:
    (first, *_, last) = [value for _, value in climb]
    assert first > last
    assert last < 2
