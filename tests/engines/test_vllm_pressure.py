"""A vLLM whose KV cache two requests fill: preemption, then a death like that by the OOM killer, then a new life."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.program import until
from engines.load import at_once, complete, tokens
from engines.watched import Watched, watched
from requires import needs

pytestmark = needs("engines")

BLOCKS = 33
REQUESTS, PROMPT, ANSWER = 12, 400, 700


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Iterator[Watched]:
    flags = ("--max-model-len=2048", f"--num-gpu-blocks-override={BLOCKS}", "--max-num-seqs=16")
    with watched(tmp_path_factory.mktemp("tight"), tiny, *flags) as running:
        until(lambda: running.shown("engine_up") == 1)
        yield running


def test_more_than_fits_is_preempted(tight: Watched) -> None:
    began = time.monotonic()
    prompts = [tokens(PROMPT, seed) for seed in range(REQUESTS)]
    with at_once(tight.engine.url, prompts, ANSWER) as answers:
        until(lambda: tight.is_in("saturated", "thrashing"), 60)
    assert [answer.result() for answer in answers] == [200] * REQUESTS

    until(lambda: tight.shown("engine_generation_tokens_total") == REQUESTS * ANSWER)
    capacity = tight.shown("kv_cache_capacity_tokens")
    assert capacity == BLOCKS * 128
    assert max(tight.scrapes.since(began, 'oomcast_kv_cache_usage_ratio{engine="vllm"}')) >= 0.9
    assert min(tight.scrapes.since(began, 'oomcast_kv_cache_headroom_tokens{engine="vllm"}')) <= 0.1 * capacity
    assert max(tight.scrapes.since(began, 'oomcast_engine_requests_waiting{engine="vllm",reason="capacity"}')) >= 1

    preempted = tight.engine.total("vllm:num_preemptions_total")
    assert preempted >= 3
    assert tight.shown("engine_preemptions_total") == preempted
    # What is computed again after a preemption is in no other counter.
    assert tight.shown("engine_prompt_tokens_total") == REQUESTS * PROMPT
    until(lambda: tight.shown("kv_cache_usage_ratio") == 0)


def test_an_engine_that_is_killed_and_started_again(tight: Watched) -> None:
    preempted = tight.shown("engine_preemptions_total")
    tight.engine.kill_core()
    # Its server says that the core is dead for a moment, in which it still serves the last values, before it ends.
    until(lambda: tight.shown("engine_up") == 0)
    assert tight.is_in("unreachable", "dead")
    gone = ("kv_cache_usage_ratio", "kv_cache_headroom_tokens", "kv_cache_capacity_tokens", "engine_requests_running")
    assert [name for name in gone if tight.shown(name) is not None] == []

    tight.engine.end()
    tight.engine.start()
    until(lambda: tight.shown("engine_restarts_total") == 1)
    assert tight.is_in("restarted")
    assert tight.shown("engine_up") == 1
    assert tight.shown("kv_cache_usage_ratio") == 0

    assert complete(tight.engine.url, tokens(PROMPT, 99), 10) == 200
    until(lambda: tight.shown("engine_generation_tokens_total") == REQUESTS * ANSWER + 10)
    assert tight.shown("engine_prompt_tokens_total") == (REQUESTS + 1) * PROMPT
    assert tight.shown("engine_preemptions_total") == preempted
    assert tight.shown("engine_restarts_total") == 1


def test_no_scrape_waited_for_the_engine(tight: Watched) -> None:
    tight.check_scrapes()
