"""The states of engines: recorded ones, and those that users reported, by what their metrics show."""

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


@pytest.mark.parametrize("usage", [0.0, 0.34, 0.98, None])
@pytest.mark.parametrize("reason", ["", "capacity"])
def test_waiting_with_none_running_and_nothing_moving_is_a_deadlock(
    engine: Engine, usage: float | None, reason: str
) -> None:
    """A request that is larger than the pool, or a connector that never answers: health says ok, nothing moves."""
    engine.run(60, running=2, usage=0.4, generation_tokens=50)
    assert engine.run(29, running=0, waiting=1, usage=usage, reason=reason) != "deadlocked"
    assert engine.run(5, running=0, waiting=5, usage=usage, reason=reason) == "deadlocked"
    assert engine.run(540, running=0, waiting=6, usage=usage, reason=reason) == "deadlocked"
    assert [event.fields["to"] for event in engine.events].count("deadlocked") == 1
    assert engine.run(1, running=1, usage=0.4, generation_tokens=30) == "serving"


def test_a_deadlock_from_idleness_is_an_event(engine: Engine) -> None:
    engine.run(5, running=0, generation_tokens=0)
    engine.run(40, running=0, waiting=1)
    assert engine.events[-1].fields["to"] == "deadlocked"


def test_a_queue_in_front_of_a_prefill_in_chunks_is_no_deadlock() -> None:
    """SGLang shows no running request until the first chunk of the only one has gone through all."""
    engine = Engine("sglang")
    engine.run(10, running=1, generation_tokens=10, queries=100)
    engine.run(120, running=0, waiting=3, usage=0.1, rise=0.003, generation_tokens=0)
    engine.run(120, running=0, waiting=3, usage=0.5, queries=500)
    assert "deadlocked" not in engine.seen


def test_a_gap_between_batches_is_no_deadlock(engine: Engine) -> None:
    for _ in range(20):
        engine.run(10, running=4, generation_tokens=100)
        engine.run(20, running=0, waiting=2, generation_tokens=0)
    assert "deadlocked" not in engine.seen


def test_an_engine_that_sleeps_is_neither_dead_nor_deadlocked(engine: Engine) -> None:
    engine.run(5, running=0, generation_tokens=0)
    assert engine.run(300, running=0, waiting=2, health="asleep") == "idle"
    assert engine.states.evidence == "asleep"


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


def test_preemptions_with_a_fallen_throughput_are_thrashing(engine: Engine) -> None:
    """Preempted work is done again: 429 tokens a second became 20 to 38, and nothing but these counters shows it."""
    engine.run(120, running=8, usage=0.8, generation_tokens=429, preemptions=0)
    assert engine.run(30, running=5, waiting=3, usage=0.97, generation_tokens=30, preemptions=0.5) == "thrashing"
    assert "429 are usual" in engine.states.evidence
    assert engine.run(600, running=5, waiting=3, usage=1, generation_tokens=30, preemptions=0.5) == "thrashing"
    assert engine.run(60, running=8, usage=0.8, generation_tokens=429, preemptions=0) == "serving"


def test_one_preemption_is_no_thrashing(engine: Engine) -> None:
    engine.run(120, running=8, usage=0.8, generation_tokens=429, preemptions=0)
    engine.count(preemptions=1)
    assert engine.run(50, running=5, waiting=3, usage=0.97, generation_tokens=30, preemptions=0) == "saturated"
    assert "thrashing" not in engine.seen


def test_requests_that_are_deferred_do_not_wait_for_memory(engine: Engine) -> None:
    assert engine.run(60, running=2, waiting=4, reason="deferred", generation_tokens=40) == "serving"
    assert engine.run(15, running=2, waiting=4, reason="capacity", generation_tokens=40) == "saturated"


def test_a_prefill_teaches_nothing_about_the_usual_throughput(engine: Engine) -> None:
    engine.run(60, running=8, usage=0.8, generation_tokens=429, preemptions=0)
    engine.run(90, running=8, usage=0.8, queries=500)
    engine.run(30, running=5, waiting=3, usage=0.97, generation_tokens=30, preemptions=0.5)
    assert engine.state == "thrashing"


def test_preemptions_at_full_throughput_are_saturation(engine: Engine) -> None:
    engine.run(120, running=8, usage=0.8, generation_tokens=429, preemptions=0)
    engine.run(120, running=8, waiting=1, usage=0.97, generation_tokens=400, preemptions=0.2)
    assert engine.state == "saturated"
    assert "thrashing" not in engine.seen


def test_load_that_ends_after_preemptions_is_no_thrashing(engine: Engine) -> None:
    engine.run(120, running=8, usage=0.8, generation_tokens=429, preemptions=0)
    engine.run(20, running=8, usage=0.97, generation_tokens=420, preemptions=0.5)
    engine.run(60, running=1, usage=0.2, generation_tokens=50, preemptions=0)
    assert "thrashing" not in engine.seen


def test_a_throughput_without_preemptions_may_fall(engine: Engine) -> None:
    engine.run(120, running=8, usage=0.5, generation_tokens=429, preemptions=0)
    assert engine.run(60, running=8, usage=0.5, generation_tokens=20) == "serving"


def test_a_queue_that_grows_while_completions_fall_piles_up(engine: Engine) -> None:
    engine.run(180, running=8, finished=1, generation_tokens=400)
    assert engine.run(90, running=8, queue_rise=0.5, finished=0.3, generation_tokens=400) == "piling_up"
    assert "completed in 60 s" in engine.states.evidence


def test_a_queue_that_grows_with_more_load_does_not_pile_up(engine: Engine) -> None:
    engine.run(180, running=8, finished=1, generation_tokens=400)
    engine.run(120, running=8, queue_rise=0.5, finished=1.1, generation_tokens=400)
    assert engine.state == "saturated"
    assert "piling_up" not in engine.seen


def test_a_queue_that_came_at_once_does_not_pile_up(engine: Engine) -> None:
    """A batch job brings its requests together: the queue is long, and gets shorter."""
    engine.run(180, running=8, finished=1, generation_tokens=400)
    engine.run(120, running=8, waiting=60, queue_rise=-0.3, finished=0.3, generation_tokens=400)
    assert "piling_up" not in engine.seen


def test_of_few_completions_none_need_come_in_a_minute(engine: Engine) -> None:
    for _ in range(3):
        engine.run(59, running=2, generation_tokens=400)
        engine.run(1, running=2, finished=1, generation_tokens=400)
    engine.run(75, running=2, queue_rise=0.2, generation_tokens=400)
    assert "piling_up" not in engine.seen


def test_of_a_gateway_the_good_responses_are_the_completions() -> None:
    engine = Engine("envoy")
    for second in range(280):
        engine.clock.advance(1)
        good = min(second, 180) + max(second - 180, 0) * 0.2
        codes = {"2xx": good, "5xx": second - good}
        queue = max(second - 180, 0)
        engine.take(Reading("envoy", waiting={"": queue}, counts={"http": codes}))
    assert engine.state == "piling_up"


def test_completions_that_fall_with_the_load_do_not_pile_up(engine: Engine) -> None:
    engine.run(180, running=8, finished=1, generation_tokens=400)
    engine.run(120, running=1, finished=0.1, generation_tokens=40)
    assert "piling_up" not in engine.seen


def test_retries_make_a_slighter_fall_a_pile_up(engine: Engine) -> None:
    for retries in (0.0, 0.2):
        engine.run(200, running=8, finished=1, generation_tokens=400, retries=0)
        engine.run(61, running=8, queue_rise=0.5, finished=0.9, generation_tokens=400, retries=retries)
        assert (engine.state == "piling_up") == (retries > 0)


def test_engines_without_a_count_of_completions_never_pile_up(engine: Engine) -> None:
    engine.run(180, running=8, generation_tokens=400)
    assert engine.run(120, running=8, queue_rise=0.5, generation_tokens=100) == "saturated"


def test_a_frozen_hit_counter_is_a_collapse(engine: Engine) -> None:
    """After an hour its hits froze while queries went on; nothing but a restart helped."""
    engine.run(5400, step=10, queries=500, hits=400, generation_tokens=50)
    assert engine.run(550, step=10, queries=500, hits=0, generation_tokens=50) == "serving"
    assert engine.run(100, step=10, queries=500, hits=0, generation_tokens=50) == "hit_rate_collapse"
    assert engine.run(700, step=10, queries=500, hits=400, generation_tokens=50) == "serving"


def test_a_cold_cache_after_a_restart_is_no_collapse(engine: Engine) -> None:
    engine.run(5400, step=10, queries=500, hits=400, generation_tokens=50)
    engine.totals = {"queries": 0.0, "hits": 0.0, "generation_tokens": 0.0}
    engine.silent(20)
    engine.run(890, step=10, queries=500, hits=10, generation_tokens=50)
    assert "hit_rate_collapse" not in engine.seen
    assert engine.run(30, step=10, queries=500, hits=10, generation_tokens=50) == "hit_rate_collapse"


def test_an_engine_that_generates_is_not_in_a_long_prefill(engine: Engine) -> None:
    engine.run(10, running=2, generation_tokens=30, queries=0)
    engine.count(queries=65_000)
    engine.run(30, running=3, generation_tokens=30)
    assert engine.seen == ["serving"]


def test_a_jump_in_the_same_look_as_the_last_token_is_seen(engine: Engine) -> None:
    engine.run(10, running=1, generation_tokens=30, queries=10)
    engine.count(queries=65_000)
    engine.run(1, running=2, generation_tokens=5)
    assert engine.run(60, running=2, rise=0.001) == "long_prefill"


def test_a_prefill_that_does_not_end_is_none(engine: Engine) -> None:
    engine.run(10, running=1, generation_tokens=30, queries=10)
    engine.count(queries=65_000)
    assert engine.run(119, running=2, usage=0.5) == "long_prefill"
    assert engine.run(10, running=2, usage=0.5) == "serving"


def test_without_a_prefix_cache_the_usage_tells_a_long_prefill(engine: Engine) -> None:
    engine.run(10, running=1, usage=0.1, generation_tokens=30, queries=0)
    assert engine.run(30, running=1, usage=0.1, rise=0.002) == "long_prefill"


def test_tokens_that_are_counted_at_the_end_tell_no_prefill() -> None:
    """SGLang, llama.cpp and TGI count an answer's tokens when it ends: usage that rises is the answer."""
    engine = Engine("sglang")
    engine.run(10, running=2, generation_tokens=30, queries=10)
    engine.count(queries=20_000)
    assert engine.run(60, running=2, usage=0.3, rise=0.004) == "serving"


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
