"""A trace in real time, on a clock that only waiting moves."""

import math
from collections.abc import Sequence

import pytest

from fakes import FakeClock
from simulated import Seen
from simulator import Request, replay

TRACE = [Request(0, 4, 1), Request(10, 4, 3), Request(10, 4, 1)]


def played(seen: Seen, requests: Sequence[Request], speed: float, seconds: float = math.inf) -> tuple[bool, float]:
    """Until the end, or for so many seconds; and how long it took."""
    clock = FakeClock()
    began = clock.mono

    def wait(tick: float) -> bool:
        clock.advance(tick)
        return clock.mono - began > seconds

    return replay(seen.engine, requests, speed, wait, clock.monotonic), clock.mono - began


@pytest.mark.parametrize("speed", [0.5, 1, 40])
def test_requests_come_when_they_are_due_whatever_the_speed(speed: float) -> None:
    seen = Seen(4)
    done, took = played(seen, TRACE, speed)
    assert done
    assert [(one.arrived, one.ended) for one in seen.ended] == [(0, 1), (10, 11), (10, 13)]
    assert 13 <= took * speed <= 13 + 0.06 * speed


def test_it_goes_on_from_where_the_engine_is() -> None:
    seen = Seen(4)
    seen.engine.advance(100)
    _, took = played(seen, TRACE, 1)
    assert 13 <= took <= 13.1
    assert [one.arrived for one in seen.ended] == [100, 110, 110]


def test_it_can_be_ended() -> None:
    seen = Seen(4)
    done, took = played(seen, TRACE, 1, seconds=5)
    assert not done
    assert took == pytest.approx(5.05)
    assert len(seen.ended) == 1


@pytest.mark.parametrize("speed", [0, -1, math.inf, math.nan])
def test_a_speed_is_a_positive_number(speed: float) -> None:
    with pytest.raises(ValueError, match="speed"):
        replay(Seen(4).engine, TRACE, speed)
