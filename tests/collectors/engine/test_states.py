"""The state of an engine from look to look: recorded engines, events, failed looks and restarts."""

import pytest

from collectors.engine.looks import Engine
from oomcast_collectors.engine import metrics
from oomcast_collectors.engine.evidence import WORST_FIRST
from oomcast_collectors.engine.reading import Reading

VLLM_PRESSURE = "vllm-cpu-0.32.0-pressure-then-death"
VLLM_PREFILL = "vllm-cpu-0.32.0-long-prefill-then-stop"
SGLANG_PRESSURE = "sglang-cpu-0.5.23-pressure"


@pytest.fixture
def engine() -> Engine:
    return Engine()


def test_each_state_has_its_rank() -> None:
    assert sorted(WORST_FIRST) == sorted(metrics.STATES)


def test_a_full_pool_saturates_until_it_is_empty_again(engine: Engine) -> None:
    states = engine.replay(VLLM_PRESSURE)
    assert {states[at] for at in (3.1, 3.8, 4.5, 6.7)} == {"saturated"}
    assert states[25.4] == "idle"
    assert engine.seen == ["idle", "serving", "saturated", "idle", "serving", "unreachable"]


def test_an_engine_that_queues_before_its_pool_is_full_is_saturated() -> None:
    states = Engine("sglang").replay(SGLANG_PRESSURE)
    assert {state for at, state in states.items() if at >= 12} == {"saturated"}


def test_a_long_prefill_is_one_throughout(engine: Engine) -> None:
    states = engine.replay(VLLM_PREFILL)
    assert {state for at, state in states.items() if 4 <= at <= 66} == {"long_prefill"}
    assert states[69.6] == "serving"


def test_an_engine_that_is_gone_is_unreachable_and_then_dead(engine: Engine) -> None:
    states = engine.replay(VLLM_PREFILL)
    assert [states[at] for at in (85.7, 113.7, 117.7, 129.7)] == ["unreachable", "unreachable", "dead", "dead"]
    assert "running 0" in engine.states.evidence


def test_each_change_is_one_event_with_its_evidence(engine: Engine) -> None:
    engine.run(40, running=0, usage=0.0, generation_tokens=0)
    assert engine.events == []
    engine.run(5, running=3, usage=0.95, generation_tokens=100)
    (event,) = engine.events
    assert (event.kind, event.time, event.monotonic) == ("engine_state", engine.clock.wall - 4, engine.clock.mono - 4)
    assert event.fields["engine"] == "a"
    assert (event.fields["from"], event.fields["to"]) == ("idle", "saturated")
    assert (event.fields["usage"], event.fields["running"]) == (0.95, 3)
    assert "95% of the KV pool" in event.summary
    assert "95% of the KV pool" in str(event.fields["evidence"])


def test_light_traffic_is_no_series_of_events(engine: Engine) -> None:
    for _ in range(30):
        engine.run(1, running=1, generation_tokens=30)
        engine.run(19, running=0, generation_tokens=0)
    assert engine.seen == ["serving"]
    engine.run(31, running=0, generation_tokens=0)
    assert engine.state == "idle"


def test_a_usage_around_the_threshold_is_one_saturation(engine: Engine) -> None:
    for _ in range(10):
        engine.run(12, usage=0.91, generation_tokens=30)
        engine.run(12, usage=0.87, generation_tokens=30)
    assert engine.seen == ["saturated"]
    assert engine.run(11, usage=0.8, generation_tokens=30) == "serving"


def test_an_engine_that_loads_its_model_is_not_dead(engine: Engine) -> None:
    engine.run(10, generation_tokens=10)
    assert engine.silent(600, "loading") == "unreachable"
    assert "loading" in engine.states.evidence
    assert engine.run(1, running=0, generation_tokens=0) != "dead"


def test_an_engine_that_never_answered_is_not_dead(engine: Engine) -> None:
    assert engine.silent(600) == "unreachable"
    assert "not answered yet" in engine.states.evidence


def test_one_failed_look_is_over_with_the_next(engine: Engine) -> None:
    engine.run(5, generation_tokens=10)
    assert [engine.silent(1), engine.run(1, generation_tokens=10)] == ["unreachable", "serving"]
    engine.silent(29)
    engine.run(1, generation_tokens=10)
    assert engine.silent(29) == "unreachable"


def test_an_engine_that_says_so_is_dead_while_its_page_still_answers(engine: Engine) -> None:
    """An activation that did not fit at 12 % usage: the page is frozen for two seconds, then refused."""
    engine.run(20, running=3, usage=0.118, generation_tokens=50)
    assert engine.run(2, running=3, usage=0.118, health="dead") == "dead"
    assert engine.silent(1, "dead") == "dead"
    assert "usage 0.118" in engine.states.evidence


def test_a_restart_is_told_for_a_minute(engine: Engine) -> None:
    engine.run(60, generation_tokens=100, queries=100)
    engine.silent(40)
    engine.totals = {"generation_tokens": 0.0, "queries": 0.0}
    assert engine.run(1, running=0) == "restarted"
    assert engine.run(58, running=4, usage=0.95, generation_tokens=1) == "restarted"
    assert engine.run(3, running=4, usage=0.95, generation_tokens=1) == "saturated"


def test_what_stood_still_before_a_restart_is_no_deadlock_after_it(engine: Engine) -> None:
    engine.run(20, generation_tokens=100)
    engine.run(25, running=0, waiting=1)
    engine.silent(5)
    engine.totals = {"generation_tokens": 0.0}
    assert engine.run(6, running=0, waiting=1) == "restarted"


def test_a_cold_cache_after_a_restart_is_no_collapse(engine: Engine) -> None:
    engine.run(5400, step=10, queries=500, hits=400, generation_tokens=50)
    engine.totals = {"queries": 0.0, "hits": 0.0, "generation_tokens": 0.0}
    engine.silent(20)
    engine.run(890, step=10, queries=500, hits=10, generation_tokens=50)
    assert "hit_rate_collapse" not in engine.seen
    assert engine.run(30, step=10, queries=500, hits=10, generation_tokens=50) == "hit_rate_collapse"


def test_what_is_not_told_makes_no_state(engine: Engine) -> None:
    assert engine.take(Reading("envoy")) is None
    engine.silent(1)
    engine.clock.advance(1)
    assert engine.take(Reading("envoy")) is None
    assert [(event.fields["from"], event.fields["to"]) for event in engine.events] == [
        ("unknown", "unreachable"),
        ("unreachable", "unknown"),
    ]


def test_llamacpp_that_fails_its_requests_is_only_what_its_page_tells() -> None:
    engine = Engine("llamacpp")
    engine.run(60, running=4, usage=None, generation_tokens=20)
    assert engine.run(60, running=0, usage=None) == "idle"


def test_looks_that_come_rarely_tell_the_same(engine: Engine) -> None:
    engine.run(3000, running=2, step=300, generation_tokens=50)
    assert engine.run(300, running=0, waiting=2, step=300) == "serving"
    assert engine.run(300, running=0, waiting=2, step=300) == "deadlocked"
