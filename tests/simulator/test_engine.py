"""Requests in, answers out, and the virtual time between."""

import pytest

from simulated import Seen, request
from simulator import Config, Cost, Engine, Finished, Request


def test_a_step_costs_what_is_in_it() -> None:
    cost = Cost(base=1000, prefill_token=100, prefill_pair=10, decode_sequence=1, decode_context=0.1)
    # Three tokens of which the first is the third of its prompt: they look at 3, 4 and 5.
    assert cost.step([(2, 3)]) == 1000 + 300 + 10 * 12
    assert cost.step([(7, 1), (9, 1)]) == pytest.approx(1000 + 2 + 1.6)
    assert cost.step([(0, 2), (7, 1)]) == pytest.approx(1000 + 200 + 30 + 1 + 0.7)


@pytest.mark.parametrize("parts", [(0, 0, 0, 0, 0), (1, -1, 0, 0, 0), (1, 0, 0, 0, -1)])
def test_a_step_takes_time(parts: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="step"):
        Cost(*parts)


def test_when_a_request_is_answered() -> None:
    ended: list[Finished] = []
    engine = Engine(Config(9, 4, 32, cost=Cost(1, 0.5, 0, 0.25, 0)), ended.append)
    engine.advance(100)
    asked = Request(7, 4, 3)
    engine.submit(asked)
    engine.advance(200)
    # A step that reads four tokens, and two that write one.
    assert ended == [Finished(asked, 200, 3, 0, 100, 103, 105.5, 0)]
    assert engine.now == 200


def test_idle_time_costs_nothing_and_is_never_taken_back() -> None:
    seen = Seen(4)
    seen.engine.advance(1e12)
    seen.engine.advance(5)
    assert seen.engine.now == 1e12


def test_a_step_that_is_not_over_goes_on() -> None:
    seen = Seen(4)
    seen.submit(request(4, 1))
    seen.engine.advance(0.9)
    assert (seen.engine.running, seen.ended) == (1, [])
    seen.engine.advance(1.0)
    assert [one.ended for one in seen.ended] == [1]


def test_what_comes_during_a_step_waits_for_its_end() -> None:
    seen = Seen(4)
    seen.submit(request(4, 1))
    seen.engine.advance(0.5)
    seen.submit(request(4, 1))
    seen.steps(4)
    assert [(one.arrived, one.ended) for one in seen.ended] == [(0, 1), (0.5, 2)]


def test_a_prompt_without_room_for_an_answer_is_refused_and_a_long_answer_cut() -> None:
    seen = Seen(4, longest=16)
    seen.submit(request(17, 1), request(16, 1), request(15, 1), request(14, 9))
    seen.to_end()
    assert [(one.status, one.output_tokens) for one in seen.ended] == [(400, 0), (400, 0), (200, 1), (200, 2)]
    assert seen.engine.queries == 29


def test_a_full_queue_turns_away() -> None:
    seen = Seen(4, max_queue=1)
    seen.submit(request(4, 1), request(4, 1))
    assert seen.statuses == [503]
    # Who runs does not wait.
    seen.engine.advance(0)
    seen.submit(request(4, 1), request(4, 1))
    assert seen.statuses == [503, 503]
    seen.to_end()
    assert seen.statuses == [503, 503, 200, 200]


def test_a_failure_ends_all_without_an_answer() -> None:
    seen = Seen(4)
    seen.submit(request(8, 2), request(8, 2), request(8, 2))
    seen.steps(1)
    seen.engine.fail()
    assert [(one.status, one.output_tokens, one.ended) for one in seen.ended] == [(500, 0, 1)] * 3
    assert [one.first_token for one in seen.ended] == [1, 1, None]
    assert (seen.engine.running, seen.engine.waiting, seen.engine.usage) == (0, 0, 0)
    assert seen.engine.look.running == 0
    # The step that was under way brings nothing any more.
    seen.steps(5)
    assert len(seen.ended) == 3
    seen.submit(request(4, 1))
    seen.to_end()
    assert seen.statuses[3:] == [200]


def test_who_is_told_of_an_end_may_ask_again() -> None:
    ended: list[Finished] = []

    def again(finished: Finished) -> None:
        ended.append(finished)
        if len(ended) < 3:
            engine.submit(finished.request)

    engine = Engine(Config(5, 4, 16, cost=Cost(1, 0, 0, 0, 0)), again)
    engine.submit(request(4, 2))
    engine.advance(100)
    assert [(one.arrived, one.ended) for one in ended] == [(0, 2), (2, 4), (4, 6)]


def test_what_is_seen_is_of_the_end_of_the_last_step() -> None:
    seen = Seen(4)
    seen.submit(request(8, 2))
    seen.engine.advance(0.5)
    assert (seen.engine.usage, seen.engine.look.usage, seen.engine.look.running) == (0.5, 0, 0)
    seen.engine.advance(1.5)
    assert (seen.engine.usage, seen.engine.look.usage, seen.engine.look.running) == (0.75, 0.5, 1)
    assert b'vllm:kv_cache_usage_perc{engine="0",model_name="sim"} 0.5\n' in seen.engine.page()


def test_resident_is_what_is_used_and_what_is_cached() -> None:
    seen = Seen(8)
    seen.submit(request(10, 1, 1, 2, 3))
    seen.engine.advance(0)
    assert seen.engine.resident_tokens == 12
    seen.to_end()
    # The last block was not full, and holds nothing that could be found.
    assert (seen.engine.cached_blocks, seen.engine.resident_tokens, seen.engine.usage) == (2, 8, 0)


def test_the_pool_must_have_room_for_the_longest_request() -> None:
    Config(5, 4, 16)
    with pytest.raises(ValueError, match="max_model_len"):
        Config(4, 4, 16)
    with pytest.raises(ValueError, match="at least 1"):
        Config(5, 0, 16)
    with pytest.raises(ValueError, match="max_queue"):
        Config(5, 4, 16, max_queue=-1)
