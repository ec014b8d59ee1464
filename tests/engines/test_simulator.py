"""The simulator beside a real vLLM: the same requests, in the same order, through both."""

import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from e2e.stack import fetch
from engines.conversations import MAX_MODEL_LEN, conversations, prompt
from engines.load import complete, tokens
from engines.server import Vllm, vllm
from requires import needs
from simulator import Config, Cost, Engine, Request
from simulator.blocks import Pool

pytestmark = needs("engines")

BLOCKS, BLOCK, SEQUENCES, BATCHED = 300, 32, 32, 512
ROUND = 50
"""Requests that are sent together; the next ones follow when all are answered."""

USAGE, HITS, PREEMPTIONS = 0.05, 0.05, 2.0
"""How far the simulator may be off: of all blocks, of the hits, and by a factor."""

GAP = 0.02
"""Seconds between two requests, so that the engine gets them in this order."""

PERIOD = 0.05
_NAMES = ("generation_tokens_total", "kv_cache_usage_perc")
_TOTALS = ("prefix_cache_queries_total", "prefix_cache_hits_total", "num_preemptions_total", "prompt_tokens_total")


class Run(NamedTuple):
    """looks: tokens generated so far, and usage, as often as they were looked at. The rest: totals at the end."""

    looks: Sequence[tuple[int, float]]
    queries: float
    hits: float
    preemptions: float
    prompt_tokens: float


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Iterator[Vllm]:
    flags = (
        f"--max-model-len={MAX_MODEL_LEN}",
        f"--num-gpu-blocks-override={BLOCKS}",
        f"--block-size={BLOCK}",
        f"--max-num-seqs={SEQUENCES}",
        f"--max-num-batched-tokens={BATCHED}",
    )
    # With it there is /pause: requests that come meanwhile queue up, in a known order.
    developer = {"VLLM_SERVER_DEV_MODE": "1"}
    with vllm(tmp_path_factory.mktemp("compared"), tiny, *flags, environment=developer) as running:
        yield running


@pytest.fixture(scope="module")
def real(engine: Vllm) -> Run:
    looks: list[tuple[int, float]] = []
    for requests in _rounds():
        looks += _answered(engine, requests)
    return Run(looks, *(engine.total(f"vllm:{name}") for name in _TOTALS))


def test_it_agrees_with_vllm(real: Run, capsys: pytest.CaptureFixture[str]) -> None:
    ours = simulated()
    with capsys.disabled():
        print(f"\n{_figures(real, ours)}")  # noqa: T201 - for docs/simulator.md
    assert real.preemptions >= 10
    assert real.prompt_tokens == ours.prompt_tokens == real.queries == ours.queries
    assert _disagreements(real, ours) == []


def test_one_that_never_runs_out_of_blocks_would_not_agree(real: Run) -> None:
    assert _disagreements(real, simulated(100 * BLOCKS)) == ["usage", "hits", "preemptions"]


def test_one_with_some_blocks_more_would_not_agree(real: Run) -> None:
    assert _disagreements(real, simulated(BLOCKS * 5 // 4)) != []


def test_one_that_finds_nothing_would_not_agree(real: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pool, "find", lambda self, keys, most: [])
    assert "hits" in _disagreements(real, simulated())


def test_where_the_longest_prompt_ends(engine: Vllm, real: Run) -> None:
    simulator = Engine(_config(BLOCKS), lambda finished: ours.append((finished.status, finished.output_tokens)))
    theirs: list[tuple[int, int]] = []
    ours: list[tuple[int, int]] = []
    for length in (MAX_MODEL_LEN - 5, MAX_MODEL_LEN - 1, MAX_MODEL_LEN, MAX_MODEL_LEN + 1):
        before = engine.total("vllm:generation_tokens_total")
        status = complete(engine.url, tokens(length, length), 9)
        theirs.append((status, int(engine.total("vllm:generation_tokens_total") - before)))
        simulator.submit(Request(0, length, 9))
        simulator.advance(simulator.now + 100)
    assert ours == theirs == [(200, 5), (200, 1), (400, 0), (400, 0)]


def simulated(blocks: int = BLOCKS) -> Run:
    """The same in the simulator, looked at after each step."""
    simulator = Engine(_config(blocks))
    looks = [(0, 0.0)]
    for requests in _rounds():
        for request in requests:
            simulator.submit(request)
        while simulator.running or simulator.waiting:
            # A step takes a second.
            simulator.advance(simulator.now + 1)
            looks.append((simulator.tally.generation_tokens, simulator.look.usage))
    counts = (simulator.queries, simulator.hits, simulator.preemptions, simulator.tally.prompt_tokens)
    return Run(looks, *counts)


def _config(blocks: int) -> Config:
    return Config(blocks, BLOCK, MAX_MODEL_LEN, SEQUENCES, BATCHED, cost=Cost(1, 0, 0, 0, 0))


def _rounds() -> Iterator[Sequence[Request]]:
    requests = conversations()
    for begin in range(0, len(requests), ROUND):
        yield requests[begin : begin + ROUND]


def _answered(engine: Vllm, requests: Sequence[Request]) -> Iterator[tuple[int, float]]:
    """Sends them while the engine is paused, lets it go on, and looks until all are answered."""
    _post(engine, "/pause", mode="keep", clear_cache="false")
    with ThreadPoolExecutor(len(requests), "load") as pool:
        answers = [_sent(pool, engine, request) for request in requests]
        _post(engine, "/resume")
        while not all(answer.done() for answer in answers):
            yield _look(engine)
            time.sleep(PERIOD)
    assert {answer.result() for answer in answers} == {200}


def _sent(pool: ThreadPoolExecutor, engine: Vllm, request: Request) -> "Future[int]":
    answer = pool.submit(complete, engine.url, prompt(request), request.answer_tokens)
    time.sleep(GAP)
    return answer


def _post(engine: Vllm, path: str, **parameters: str) -> None:
    httpx.post(engine.url + path, params=parameters, timeout=30, trust_env=False, verify=False).raise_for_status()


def _look(engine: Vllm) -> tuple[int, float]:
    lines = fetch(f"{engine.url}/metrics").splitlines()
    generated, usage = (
        next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"vllm:{name}{{")) for name in _NAMES
    )
    return int(generated), usage


def _disagreements(real: Run, ours: Run) -> list[str]:
    """What of it is further off than it may be."""
    found = []
    if max(_apart(real, ours)) > USAGE:
        found.append("usage")
    if abs(ours.hits - real.hits) > HITS * real.hits:
        found.append("hits")
    if not real.preemptions / PREEMPTIONS <= ours.preemptions <= real.preemptions * PREEMPTIONS:
        found.append("preemptions")
    return found


def _apart(real: Run, ours: Run) -> list[float]:
    """For each look at the engine, how far its usage is from the simulator's at the same number of tokens: from the
    nearest of its steps that ended with so many, or else from the last before."""
    generated = [tokens for tokens, _ in ours.looks]
    apart = []
    for tokens_then, usage in real.looks:
        begin, end = bisect_left(generated, tokens_then), bisect_right(generated, tokens_then)
        steps = ours.looks[begin:end] or ours.looks[max(begin - 1, 0) : max(begin, 1)]
        apart.append(min(abs(usage - then) for _, then in steps))
    return apart


def _figures(real: Run, ours: Run) -> str:
    apart = sorted(_apart(real, ours))
    same = sum(one < 1e-9 for one in apart)
    return (
        f"usage: {len(apart)} looks, {same} the same to the block, median {apart[len(apart) // 2]:.4f},"
        f" 95 % within {apart[len(apart) * 95 // 100]:.4f}, all within {apart[-1]:.4f}\n"
        f"hits: {ours.hits:.0f} and {real.hits:.0f} of {real.queries:.0f} tokens\n"
        f"preemptions: {ours.preemptions:.0f} and {real.preemptions:.0f}"
    )
