"""The shipped rules against what engines print."""

import json
import re
import time

import pytest

from collectors.engine_log.support import FIXTURES, found, matcher
from oomcast_collectors.engine_log import metrics
from oomcast_collectors.engine_log.cost import worst_case
from oomcast_collectors.engine_log.matcher import WINDOW
from oomcast_collectors.engine_log.rules import SHIPPED

MIB, GIB = 2**20, 2**30
CASES = [line.split(" | ", 1) for line in (FIXTURES / "strings.log").read_text().splitlines()]


@pytest.mark.parametrize(("rules", "line"), CASES)
def test_each_line_is_taken_by_its_rules_and_no_other(rules: str, line: str) -> None:
    names = [hit.rule.name for hit in found(line.encode())]
    assert names == ([] if rules == "-" else rules.split(","))


def test_each_rule_and_each_of_its_literals_has_a_line() -> None:
    captures = "".join(path.read_text() for path in FIXTURES.glob("*-*.log"))
    texts = "\n".join(line for rules, line in CASES if rules != "-") + captures
    assert [rule.name for rule in SHIPPED if not any(rule.name in rules.split(",") for rules, _ in CASES)] == []
    unseen = {literal for rule in SHIPPED for literal in rule.contains if literal not in texts}
    # Spelt as other libraries do, for which there is no line at hand.
    assert unseen == {"HIP out of memory", "CUDA error: out of memory", "Inf "}


@pytest.mark.parametrize(
    ("start", "numbers"),
    [
        (
            "torch.OutOfMemoryError",
            {"tried_bytes": 640 * MIB, "total_bytes": round(79.11 * GIB), "free_bytes": 288 * MIB, "gpu": 0},
        ),
        (
            "torch.cuda.OutOfMemoryError",
            {"tried_bytes": 20 * MIB, "total_bytes": round(39.59 * GIB), "free_bytes": round(31.19 * MIB), "gpu": 1},
        ),
        ("ggml_backend", {"tried_bytes": 8 * GIB}),
        ("Not enough memory to handle 4096", {"tokens": 4096}),
        ("Not enough memory to handle `max", {"tokens": 8192}),
        (
            "[2026-11-29 17:16:28] KV cache pool",
            {"retracted_requests": 1, "gained_tokens": 584, "new_token_ratio": 0.1514},
        ),
        (
            "ValueError: To serve",
            {
                "max_model_len": 131072,
                "needed_bytes": 16 * GIB,
                "available_bytes": round(7.53 * GIB),
                "estimated_max_model_len": 61680,
            },
        ),
        ("ValueError: The model's", {"max_model_len": 32768, "capacity_tokens": 18416}),
        ("KV pool holds", {"capacity_tokens": 4096, "context_length": 131072}),
        ("ValueError: This model's", {"max_model_len": 131072}),
        (
            "INFO kv_cache_utils.py:1087] GPU KV cache size: 548,864 tokens, Max",
            {"capacity_tokens": 548864, "request_tokens": 262144, "max_concurrency": 2.09},
        ),
        ("[2026-11-29 17:16:22] KV Cache is allocated", {"capacity_tokens": 4096}),
        ("INFO text_generation_router: Setting", {"capacity_tokens": 65536}),
        ("INFO gpu_worker", {"available_bytes": round(38.21 * GIB)}),
    ],
)
def test_numbers(start: str, numbers: dict[str, float]) -> None:
    line = next(line for _, line in CASES if line.startswith(start))
    assert found(line.encode())[0].numbers == numbers


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("vllm-0.32.0-engine-dead.log", {"engine_dead": 1}),
        ("sglang-0.5.23-retract.log", {"kv_cache_retraction": 8, "kv_cache_size": 1, "kv_cache_too_small": 1}),
        ("llamacpp-b11434-kv-full.log", {"kv_cache_full": 36, "context_exceeded": 4}),
    ],
)
def test_logs_of_real_engines(name: str, counts: dict[str, int]) -> None:
    block = (FIXTURES / name).read_bytes()
    made = matcher()
    got: dict[str, int] = {}
    for begin, end in made.candidates(block):
        for hit in made.match(block[begin:end].decode()):
            got[hit.rule.name] = got.get(hit.rule.name, 0) + 1
    assert got == counts


def test_no_shipped_expression_can_take_long() -> None:
    for rule in SHIPPED:
        for pattern in (rule.regex, *rule.numbers.values()):
            assert worst_case(pattern, WINDOW) < 2e7, rule.name
    # Texts that are as near to matching as can be, many times.
    made = matcher()
    for rule in SHIPPED:
        for literal in rule.contains:
            for filler in ("1", "1,", "thread '", "total capacity of 1", "nan or ", "(", " "):
                began = time.thread_time()
                made.match((literal + filler * 16_384)[:16_384])
                assert time.thread_time() - began < 0.05, (rule.name, filler)


def test_names_are_unique_and_few_enough_for_the_metric() -> None:
    names = [rule.name for rule in SHIPPED]
    assert len(set(names)) == len(names)
    assert (len(names) + 60) * (metrics.MAX_ENGINES + 1) <= metrics.EVENTS.max_series
    assert all(re.fullmatch(r"[a-z][a-z0-9_]+", name) for name in names)


@pytest.mark.parametrize(("rules", "line"), [case for case in CASES if case[0] != "-"])
def test_what_json_escapes_is_still_a_candidate(rules: str, line: str) -> None:
    made = matcher()
    journald = json.dumps({"MESSAGE": line}, ensure_ascii=False)
    docker = json.dumps({"log": line}).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    for wrapped in (journald, docker):
        assert len(list(made.candidates(wrapped.encode() + b"\n"))) == 1
