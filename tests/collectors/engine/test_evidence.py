"""What is evidence of a state and what is not: failures that users reported, by what their metrics show."""

import pytest

from collectors.engine.looks import Engine
from oomcast_collectors.engine.reading import Reading


@pytest.fixture
def engine() -> Engine:
    return Engine()


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
