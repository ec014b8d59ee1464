"""What pages written by hand say: releases and engines of which there is no capture."""

import math
from dataclasses import replace

import pytest

from collectors.engine.kind_pages import WRITTEN, reading, text
from oomcast_collectors.engine.reading import Lengths, Pool, Reading

INF = math.inf
BLOCKS = Pool("", 0.5, 1616, 800, False, 16)  # 101 blocks of 16, of which one is never given out

TRTLLM = Reading(
    "trtllm",
    pools=(Pool("", 0.38, 25600, 15680, False, 32),),
    model="q",
    running=11,
    waiting={"": 12},
    counts={
        "queries": {"": 3200},
        "hits": {"": 960},
        "finished": {"stop": 14, "length": 15},
        "http": {"400": 16, "503": 17},
        "prompt_tokens": {"": 18},
        "generation_tokens": {"": 19},
    },
    cache_unit="blocks",
)

EXPECTED: dict[str, Reading] = {
    "vllm-0.8.5-v0": Reading(
        "vllm",
        pools=(Pool("", 0.25, 1616, 1200, False, 16),),
        model="llama",
        running=11,
        waiting={"": 13},
        counts={
            "preemptions": {"": 14},
            "prompt_tokens": {"": 15},
            "generation_tokens": {"": 16},
            "finished": {"stop": 17, "length": 18},
        },
    ),
    # Blocks or tokens? The page does not say, the version does.
    "vllm-0.8.5-v1": Reading(
        "vllm",
        pools=(Pool("", 0.75, 1616, 400, False, 16),),
        model="llama",
        running=21,
        waiting={"": 22},
        counts={"queries": {"": 200}, "hits": {"": 50}, "preemptions": {"": 23}},
    ),
    "vllm-0.10.2-no-config": Reading(
        "vllm", pools=(Pool("0", 0.3), Pool("1", 0.4)), model="llama", counts={"preemptions": {"": 81}}
    ),
    # Old and new names side by side; three servers before one engine, one of which knows its usage.
    "vllm-0.9.2": Reading(
        "vllm",
        pools=(BLOCKS,),
        model="llama",
        running=31,
        waiting={"": 32},
        counts={"queries": {"": 4000}, "hits": {"": 1000}, "preemptions": {"": 33}},
        cache_unit="tokens",
    ),
    # A connector is asked for the 3000 tokens that were no hits: 2500 of the 5000 were found.
    "vllm-0.11.2": Reading(
        "vllm",
        pools=(BLOCKS,),
        model="llama",
        running=41,
        waiting={"": 42},
        counts={
            "queries": {"": 5000},
            "hits": {"": 2000, "external": 500},
            "preemptions": {"": 43},
            "corrupted": {"": 44},
        },
        cache_unit="tokens",
    ),
    "vllm-0.22.1": Reading(
        "vllm",
        pools=(BLOCKS,),
        model="llama",
        running=51,
        waiting={"capacity": 49, "deferred": 3},
        counts={"prompt_tokens": {"": 900}},
    ),
    # A hybrid model: blocks times their size would be 1616.
    "vllm-0.31.0": Reading("vllm", pools=(Pool("", 0.5, 20000, 9900, True, 784),), model="hybrid", running=61),
    # num_gpu_blocks is of both ranks, kv_cache_size_tokens of each.
    "vllm-0.32.0-dp2": Reading(
        "vllm",
        pools=(Pool("0", 0.25, 1600, 1188, True, 16), Pool("1", 0.75, 1600, 396, True, 16)),
        model="tiny",
        capacity_bytes=2097152,
        bytes_per_token=655.36,
        running=7,
        waiting={"capacity": 11, "deferred": 1},
        counts={"queries": {"": 300}, "hits": {"": 40}},
        lengths=Lengths(((1, 0), (1000, 7), (INF, 8)), 5500, 8),
        cache_unit="tokens",
    ),
    # What LMCache found is what vLLM's own cache had too, in part: only one of both counts.
    "vllm-lmcache": Reading(
        "vllm",
        model="llama",
        running=71,
        counts={"queries": {"": 5000}, "hits": {"": 2000}, "preemptions": {"": 72}},
        cache_unit="tokens",
    ),
    "lmcache": Reading(
        "lmcache", model="llama", counts={"queries": {"": 6000}, "hits": {"": 2500}}, cache_unit="tokens"
    ),
    # Two ranks of two, each of them in two stages of 0.5 and 0.25 GiB; a page of 64 tokens more than the capacity.
    "sglang-dp2-tp2": Reading(
        "sglang",
        pools=(Pool("0", 0.5, 1024, 512, True, 64), Pool("1", 0.25, 1024, 760, True, 64)),
        model="m",
        capacity_bytes=1610612736,
        bytes_per_token=1610612736 / 2176,
        running=11,
        waiting={"": 15},
        counts={"queries": {"": 317}, "hits": {"": 17}},
        cache_unit="tokens",
    ),
    "sglang-old": Reading("sglang", pools=(Pool("", 0.25, 1000, 750),), model="m", running=5, waiting={"": 6}),
    "tgi-3.3.7": Reading(
        "tgi",
        pools=(Pool("", 0.25, 100000, 75000),),
        running=7,
        waiting={"": 8},
        counts={
            "finished": {"success": 30, "generation": 4, "dropped": 5, "incomplete": 6},
            "rejected": {"overloaded": 1, "validation": 2, "template": 3},
            "prompt_tokens": {"": 777},
            "generation_tokens": {"": 888},
            "short": {"20": 2},
        },
        lengths=Lengths(((100, 1), (200, 3), (INF, 4)), 777, 4),
    ),
    "trtllm-1.3": TRTLLM,
    # It tells used blocks, no share.
    "trtllm-dynamo-0.7": replace(TRTLLM, pools=(Pool("", 0.375, 25600, 15680, False, 32),)),
    "trtllm-used": Reading("trtllm", pools=(Pool("", 0.25, 25600, 19200, False, 32),), model="q"),
    # Blocks of unknown size are no tokens.
    "trtllm-dynamo-few": Reading("trtllm", pools=(Pool("", 0.45, exact=False),), model="q"),
    # Used and free are more than all; the ensemble and its first step have no pool.
    "triton-two-models": Reading(
        "triton",
        pools=(
            Pool("qwen", 0.25, 6400, 4480, False, 32),
            Pool("llama", 1 / 6239, 399296, 399296, False, 64),
        ),
        running=5,
        waiting={"": 11},
        counts={"finished": {"success": 100, "BACKEND": 3}, "rejected": {"REJECTED": 4}},
    ),
    "triton-other-backend": Reading("triton", model="bert", waiting={"": 5}, counts={"finished": {"success": 60}}),
    "lmdeploy-0.18": Reading(
        "lmdeploy",
        pools=(Pool("0", 0.4), Pool("1", 0.6)),
        model="intern",
        started=1.75e9,
        running=11,
        waiting={"": 12},
        counts={
            "queries": {"": 1500},
            "hits": {"": 170},
            "finished": {"stop": 18, "length": 19, "failed": 14},
            "prompt_tokens": {"": 1500},
            "generation_tokens": {"": 1600},
            "short": {"1": 2},
        },
        lengths=Lengths(((1, 0), (500, 20), (INF, 21)), 2200, 21),
        cache_unit="tokens",
    ),
    "lmdeploy-old": Reading("lmdeploy", model="intern", running=1, counts={"finished": {"success": 13, "failed": 14}}),
    "dynamo-frontend": Reading(
        "dynamo",
        model="qwen",
        max_model_len=40960,
        running=5,
        waiting={"": 6},
        counts={
            "finished": {"success": 33, "error": 4},
            "rejected": {"overload": 37},
            "retries": {"": 15},
            "prompt_tokens": {"": 300},
            "generation_tokens": {"": 900},
            "short": {"50": 0},
        },
        lengths=Lengths(((50, 1), (INF, 2)), 300, 2),
    ),
    "dynamo-worker": Reading(
        "dynamo",
        pools=(Pool("0", 0.5, exact=False), Pool("1", 0.625, exact=False)),
        model="qwen",
        running=3,
    ),
    "dynamo-worker-0.7": Reading("dynamo", pools=(Pool("", 0.25, exact=False),), model="qwen", running=3),
    "envoy": Reading(
        "envoy",
        running=10,
        waiting={"": 7},
        counts={"retries": {"": 11}, "http": {"2xx": 100, "5xx": 9}, "rejected": {"overflow": 8}},
        breaker_open=False,
    ),
    "envoy-clusters": Reading("envoy", counts={"retries": {"": 5}, "http": {"2xx": 81, "5xx": 90}}),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_page(name: str) -> None:
    assert reading(text(name)) == EXPECTED[name.removeprefix("written/")]
