"""What fits into a pool, and what holds for every model."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from daemon.kv.samples import NAMES, of
from oomcast.kv.config import read
from oomcast.kv.memory import memory
from oomcast.kv.serving import Serving

GIB = 1 << 30
RANKS = st.sampled_from([1, 2, 4])
TOKENS = st.integers(0, 1 << 21)


def test_sglang_keeps_one_slot_more() -> None:
    small = {"model_type": "llama", "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 1}
    found = memory(read({**small, "hidden_size": 256}), Serving(dtype="bf16", engine="sglang"))
    assert found.bytes_per_token == 1024
    assert found.longest(8193 * 1024) == 8192
    assert found.longest(8193 * 1024 - 1) == 8191
    assert found.longest(8192 * 1024 + 1024, 2) == 4096


def test_the_longest_that_fits() -> None:
    assert of("llama-3-8b").longest(16 * GIB) == 131_072
    assert of("llama-3-8b").longest(16 * GIB - 1) == 131_071
    assert of("llama-3-8b", engine="vllm").longest(16 * GIB - 1) == 131_056
    assert of("llama-3-8b", engine="vllm").longest(16 * GIB, 3) == 43_680
    assert of("llama-3-8b").longest(0) == 0
    assert of("jamba-v0.1").longest(28 * 311_296) == 0
    assert of("jamba-v0.1").longest(28 * 311_296 - 1) == 0
    mistral = of("mistral-7b-v0.1")
    assert mistral.longest(4096 * 131_072) is None
    assert mistral.longest(4096 * 131_072 - 1) == 4095
    assert mistral.longest(4096 * 131_072, 2) == 2048


def test_how_many_fit_at_once() -> None:
    assert of("llama-3-8b").concurrent(40 * GIB, 131_072) == 2
    assert of("llama-3-8b").concurrent(GIB, 131_072) == 0
    assert of("llama-3-8b", engine="sglang").concurrent(32 * GIB, 131_072) == 1


@given(
    st.sampled_from(NAMES), RANKS, TOKENS, st.integers(1, 5000), st.sampled_from([None, "vllm", "sglang", "llama.cpp"])
)
def test_a_longer_sequence_never_takes_less(name: str, tp: int, tokens: int, more: int, engine: Any) -> None:
    found = of(name, tp=tp, engine=engine)
    assert found.sequence_bytes(tokens) <= found.sequence_bytes(tokens + more)


@given(st.sampled_from(NAMES), RANKS, TOKENS)
def test_ranks_together_keep_no_less_than_the_model(name: str, tp: int, tokens: int) -> None:
    alone, found = of(name), of(name, tp=tp)
    assert found.bytes_per_token * found.serving.tp >= found.bytes_per_token_once == alone.bytes_per_token
    assert found.sequence_bytes_all(tokens) >= alone.sequence_bytes(tokens)


@given(st.sampled_from(["llama-3-8b", "deepseek-v3", "qwen2.5-7b"]), TOKENS, st.integers(1, 4096))
def test_rounding_wastes_less_than_a_block(name: str, tokens: int, block: int) -> None:
    found = of(name, block=block)
    waste = found.sequence_bytes(tokens) - tokens * found.bytes_per_token
    assert 0 <= waste < block * found.bytes_per_token


@given(
    st.sampled_from(NAMES),
    RANKS,
    st.integers(0, 1 << 40),
    st.integers(1, 64),
    st.sampled_from([1, 16, 784]),
    st.integers(1, 3),
)
def test_the_longest_fits_and_one_more_block_does_not(
    name: str, tp: int, pool: int, sequences: int, block: int, pp: int
) -> None:
    found = of(name, tp=tp, block=block, pp=pp)
    longest = found.longest(pool, sequences)
    if longest is None:
        assert sequences * found.constant_bytes <= pool
    else:
        assert longest == 0 or sequences * found.sequence_bytes(longest) <= pool
        assert sequences * found.sequence_bytes(longest + block) > pool
