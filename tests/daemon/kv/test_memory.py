"""Bytes of published models, to the byte."""

from typing import Any

import pytest

from daemon.kv.samples import config, of
from oomcast.kv.config import read
from oomcast.kv.fields import KvError
from oomcast.kv.memory import bytes_per_token, memory
from oomcast.kv.serving import Serving

GIB = 1 << 30


@pytest.mark.parametrize(
    ("name", "per_token"),
    [
        ("llama-2-7b", 524_288),
        ("llama-3-8b", 131_072),
        ("llama-3.1-8b", 131_072),
        ("llama-3.1-70b", 327_680),
        ("llama-3.1-405b", 516_096),
        ("mistral-7b-v0.3", 131_072),
        ("qwen2.5-7b", 57_344),
        ("qwen2.5-72b", 327_680),
        ("deepseek-v3", 70_272),
        ("gpt-oss-120b", 36_864),
        ("gemma-3-27b", 81_920),
        ("gemma-3-4b", 20_480),
        ("gemma-3n-e4b", 8_192),
        ("llama-4-scout", 49_152),
        ("qwen3-next-80b", 24_576),
        ("jamba-v0.1", 16_384),
        ("bamba-9b", 12_288),
        ("nemotron-h-8b", 16_384),
        ("llama-3.2-11b-vision", 131_072),
        ("whisper-large-v3", 163_840),
        ("falcon-7b", 8_192),
    ],
)
def test_bytes_of_a_token(name: str, per_token: int) -> None:
    assert bytes_per_token(config(name), "auto", 1) == per_token


@pytest.mark.parametrize(
    ("name", "at_131072", "at_200000"),
    [
        ("llama-3-8b", 16 * GIB, 26_214_400_000),
        ("llama-3.1-70b", 40 * GIB, 65_536_000_000),
        ("llama-3.1-405b", 63 * GIB, 103_219_200_000),
        ("mistral-7b-v0.3", 16 * GIB, 26_214_400_000),
        ("qwen2.5-72b", 40 * GIB, 65_536_000_000),
        ("deepseek-v3", 9_210_691_584, 14_054_400_000),
        ("gpt-oss-120b", 4_831_838_208 + 4_718_592, 7_372_800_000 + 4_718_592),
        ("gemma-3-27b", 10_737_418_240 + 436_207_616, 16_384_000_000 + 436_207_616),
    ],
)
def test_bytes_of_a_sequence(name: str, at_131072: int, at_200000: int) -> None:
    found = of(name)
    assert found.sequence_bytes(131_072) == at_131072
    assert found.sequence_bytes(200_000) == at_200000


@pytest.mark.parametrize(
    ("name", "serving", "constant"),
    [
        ("llama-3-8b", {}, 0),
        ("mistral-7b-v0.1", {}, 4096 * 131_072),
        ("gpt-oss-120b", {}, 4_718_592),
        ("gemma-3-27b", {}, 436_207_616),
        ("gemma-3n-e4b", {}, 512 * 16 * 2048),
        ("llama-4-scout", {}, 8192 * 36 * 4096),
        ("qwen3-next-80b", {}, 39_518_208),
        ("qwen3-next-80b", {"state_dtype": "fp32"}, 77_266_944),
        ("qwen3-next-80b", {"engine": "sglang"}, 77_266_944),
        ("qwen3-next-80b", {"engine": "llama.cpp"}, 36 * (2_097_152 + 98_304)),
        ("qwen3-next-80b", {"tp": 2, "dtype": "fp8"}, 39_518_208 // 2),
        ("jamba-v0.1", {"state_dtype": "fp32"}, 16_056_320),
        ("jamba-v0.1", {}, 28 * (262_144 + 49_152)),
        ("bamba-9b", {}, 29 * (128 * 64 * 128 * 2 + (8192 + 256) * 3 * 2)),
        ("bamba-9b", {"tp": 4}, 29 * (32 * 64 * 128 * 2 + (8192 + 4 * 256) // 4 * 3 * 2)),
        ("nemotron-h-8b", {}, 24 * (128 * 64 * 128 * 2 + (8192 + 2048) * 3 * 2)),
        ("whisper-large-v3", {}, 1500 * 163_840),
        ("llama-3.2-11b-vision", {"encoder_tokens": 1601}, 1601 * 8 * 4096),
    ],
)
def test_bytes_that_do_not_grow(name: str, serving: dict[str, Any], constant: int) -> None:
    assert of(name, **serving).constant_bytes == constant


def test_the_llama_cpp_log_of_a_small_model() -> None:
    """`size = 8.00 MiB (4096 cells, 4 layers), K (f16): 4.00 MiB, V (f16): 4.00 MiB`."""
    small = {"model_type": "llama", "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}
    found = memory(read({**small, "hidden_size": 256}), Serving(engine="llama.cpp"))
    assert found.bytes_per_token == 2048
    assert found.sequence_bytes(4000) == 8 << 20


def test_more_ranks_than_heads_copy_them() -> None:
    found = of("llama-3.1-70b", tp=16)
    assert found.bytes_per_token == 40 * 1024
    assert found.bytes_per_token_all == 640 * 1024
    assert found.bytes_per_token_once == 320 * 1024
    assert of("llama-3.1-70b", tp=8).bytes_per_token_all == 320 * 1024
    with pytest.raises(KvError, match="num_key_value_heads: 8 heads cannot be split over 3 ranks"):
        of("llama-3.1-70b", tp=3)


def test_latent_attention_is_never_divided() -> None:
    found = of("deepseek-v3", tp=8)
    assert (found.bytes_per_token, found.bytes_per_token_all) == (70_272, 8 * 70_272)


def test_pipeline_stages() -> None:
    assert of("llama-3.1-70b", pp=4).bytes_per_token == 81_920
    # 126 layers: 31, 32, 32, 31, and 31, 31, 32, 32.
    assert [s.per_token // 4096 for s in of("llama-3.1-405b", pp=4).stages] == [31, 32, 32, 31]
    assert [s.per_token // 4096 for s in of("llama-3.1-405b", pp=4, engine="sglang").stages] == [31, 31, 32, 32]
    assert of("llama-3.1-405b", pp=4, tp=2).bytes_per_token_all == 516_096
    with pytest.raises(KvError, match="pp: 81 stages for 80 layers"):
        of("llama-3.1-70b", pp=81)


def test_drafts_are_counted_when_asked() -> None:
    assert of("deepseek-v3", drafts=True).bytes_per_token == 62 * 1152
    assert [s.per_token // 1152 for s in of("deepseek-v3", drafts=True, pp=2).stages] == [31, 31]
    eagle = read(config("llama-3-8b", num_hidden_layers=1))
    assert memory(read(config("llama-3-8b")), Serving(), eagle).bytes_per_token == 33 * 4096
    with pytest.raises(KvError, match="num_nextn_predict_layers: missing"):
        of("llama-3-8b", drafts=True)


def test_windowed_layers_as_full_ones() -> None:
    assert of("gpt-oss-120b", hybrid=False).bytes_per_token == 73_728
    found = of("gemma-3-27b", hybrid=False)
    assert found.sequence_bytes(131_072) == 62 * GIB
    assert found.bytes_per_token == 507_904


def test_what_vllm_plans_for_windows() -> None:
    """One block more, since a window need not begin with one; and the chunk of the prompt that is being read."""
    gpt_oss = of("gpt-oss-120b", engine="vllm", prefill_chunk=2048).sequence_bytes(131_072)
    assert f"{gpt_oss / GIB:.2f}" == "4.58"
    gemma = of("gemma-3-27b", engine="vllm", prefill_chunk=2048).sequence_bytes(131_072)
    assert f"{gemma / GIB:.1f}" == "11.2"


def test_the_claim_of_56000_bytes_a_token() -> None:
    """11.2 GB for 200,000 tokens of a model with 32 layers and 32 heads: what that model takes, and which takes so."""
    found = of("llama-2-7b")
    assert found.bytes_per_token == 512 * 1024
    assert found.sequence_bytes(32_000) == 16_777_216_000
    assert found.sequence_bytes(32_768) == 16 * GIB
    assert found.sequence_bytes(131_072) == 64 * GIB
    assert found.sequence_bytes(200_000) == 104_857_600_000
    claimed = 11_200_000_000 // 200_000
    assert claimed == 56_000
    assert 9.36 < found.bytes_per_token / claimed < 9.37
    assert 2.34 < of("llama-3-8b").bytes_per_token / claimed < 2.35
    qwen = of("qwen2.5-7b")
    assert qwen.bytes_per_token == 57_344
    assert qwen.sequence_bytes(32_768) == 1_879_048_192
    assert qwen.sequence_bytes(200_000) == 11_468_800_000
