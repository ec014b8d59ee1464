"""A vLLM with room for eight of its longest requests: what it has, what it finds again, and whom it turns away."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.program import until
from engines import model
from engines.load import at_once, complete, tokens
from engines.server import KV_GIB
from engines.watched import Watched, watched
from requires import needs

pytestmark = needs("engines")

BLOCK = 128
POOL_BYTES = KV_GIB << 30
CAPACITY = POOL_BYTES // model.BYTES_PER_TOKEN


@pytest.fixture(scope="module")
def roomy(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Iterator[Watched]:
    flags = (f"--max-model-len={model.CONTEXT}", "--max-num-seqs=2", "--max-num-queued-reqs=3")
    with watched(tmp_path_factory.mktemp("roomy"), tiny, *flags) as running:
        until(lambda: running.shown("engine_up") == 1)
        yield running


def test_what_an_idle_engine_is(roomy: Watched) -> None:
    assert roomy.is_in("idle")
    assert roomy.shown("engine_restarts_total") == 0
    assert roomy.shown("engine_requests_running") == 0
    assert roomy.shown("engine_requests_waiting", reason="capacity") == 0
    labels = {"kind": "vllm", "version": "0.32.0", "model": "tiny", "address": roomy.engine.url.removeprefix("http://")}
    info = roomy.info()
    assert [text for label, value in labels.items() if (text := f'{label}="{value}"') not in info] == []


def test_its_kv_cache_is_as_large_as_computed_by_hand(roomy: Watched) -> None:
    assert model.BYTES_PER_TOKEN == 1024
    assert CAPACITY == 1_048_576 == float(roomy.engine.info("vllm:cache_config_info")["kv_cache_size_tokens"])

    assert roomy.shown("kv_cache_capacity_tokens") == CAPACITY
    assert roomy.shown("kv_cache_capacity_bytes") == POOL_BYTES
    assert roomy.shown("kv_cache_bytes_per_token") == model.BYTES_PER_TOKEN
    assert roomy.shown("engine_max_model_len_tokens") == model.CONTEXT
    assert roomy.shown("kv_cache_usage_ratio") == 0
    # vLLM keeps one block for itself, to which unused entries of its tables point.
    assert roomy.shown("kv_cache_headroom_tokens") == CAPACITY - BLOCK
    assert roomy.shown("kv_cache_largest_request_tokens") == model.CONTEXT
    assert roomy.shown("kv_cache_max_model_len_fits") == 1


def test_prompts_that_begin_alike_hit_the_prefix_cache(roomy: Watched) -> None:
    begin = tokens(2000, 1)
    prompts = [begin + tokens(50, seed) for seed in range(100, 105)]
    assert [complete(roomy.engine.url, prompt, 16) for prompt in prompts] == [200] * 5

    queries, hits = 5 * 2050, 4 * (2000 // BLOCK) * BLOCK
    assert roomy.engine.total("vllm:prefix_cache_queries_total") == queries
    assert roomy.engine.total("vllm:prefix_cache_hits_total") == hits
    until(lambda: roomy.shown("engine_generation_tokens_total") == 5 * 16)
    assert roomy.shown("kv_cache_queries_total") == queries
    assert roomy.shown("kv_cache_hits_total") == hits
    assert roomy.shown("kv_cache_hit_ratio") == pytest.approx(hits / queries)
    assert roomy.shown("engine_prompt_tokens_total") == queries
    assert roomy.shown("engine_requests_finished_total", reason="length") == 5
    assert roomy.shown("engine_preemptions_total") == 0


def test_a_full_queue_turns_requests_away(roomy: Watched) -> None:
    with at_once(roomy.engine.url, [tokens(400, seed) for seed in range(14)], 400) as answers:
        pass
    statuses = [answer.result() for answer in answers]
    rejected = statuses.count(503)
    assert rejected >= 14 - 2 - 3
    assert set(statuses) == {200, 503}

    until(lambda: roomy.shown("engine_rejections_total", reason="max_num_queued_reqs") == rejected)
    assert roomy.engine.total("vllm:admission_rejections_total") == rejected
    until(lambda: roomy.shown("engine_http_responses_total", code="5xx") == rejected)


def test_a_prompt_beyond_the_longest_is_refused(roomy: Watched) -> None:
    before = roomy.shown("engine_prompt_tokens_total")
    assert complete(roomy.engine.url, tokens(model.CONTEXT + 1, 0), 1) == 400
    until(lambda: roomy.shown("engine_http_responses_total", code="4xx") == 1)
    assert roomy.shown("engine_prompt_tokens_total") == before


def test_no_scrape_waited_for_the_engine(roomy: Watched) -> None:
    roomy.check_scrapes()
