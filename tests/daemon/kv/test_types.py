"""Types of caches: what their elements take, and which one `auto` is."""

import pytest

from daemon.kv.samples import config, of
from oomcast.kv.config import read
from oomcast.kv.fields import KvError
from oomcast.kv.memory import bytes_per_token, memory
from oomcast.kv.serving import Serving


@pytest.mark.parametrize(
    ("name", "dtype", "per_token"),
    [
        ("llama-3-8b", "fp32", 262_144),
        ("llama-3-8b", "fp8_e4m3", 65_536),
        ("llama-3-8b", "int8", 65_536),
        ("llama-3-8b", "int8_per_token_head", 65_536 + 32 * 8 * 8),
        ("llama-3-8b", "nvfp4", 2 * 32 * 8 * (64 + 8)),
        ("llama-3-8b", "int4", 2 * 32 * 8 * (64 + 4)),
        ("llama-3-8b", "q8_0", 65_536 * 34 // 32),
        ("llama-3-8b", "q4_0", 65_536 * 18 // 32),
        ("llama-3-8b", "q8_0/q4_0", 32_768 * (34 + 18) // 32),
        ("deepseek-v3", "fp8", 61 * 576),
        ("deepseek-v3", "fp8_ds_mla", 40_016),
        ("deepseek-v3", "nvfp4_ds_mla", 61 * 352),
        ("deepseek-v3.2", "bf16", 61 * (1152 + 132)),
        ("deepseek-v3.2", "fp8", 61 * (656 + 132)),
    ],
)
def test_bytes_of_other_types(name: str, dtype: str, per_token: int) -> None:
    assert bytes_per_token(config(name), dtype, 1) == per_token


def test_the_type_that_auto_means() -> None:
    assert of("llama-3-8b").dtype == "bf16"
    assert of("llama-3-8b", engine="llama.cpp").dtype == "fp16"
    assert of("deepseek-v3.2", engine="vllm").dtype == "fp8_ds_mla"
    assert of("deepseek-v3.2").dtype == "bf16"
    fp32 = memory(read(config("llama-3-8b", torch_dtype="float32")), Serving())
    assert fp32.dtype == "fp16"
    assert any("fp32" in note for note in fp32.notes)


@pytest.mark.parametrize(
    ("name", "dtype", "message"),
    [
        ("llama-3-8b", "fp7", "dtype: 'fp7' is not known"),
        ("llama-3-8b", "", "dtype: '' is not known"),
        ("llama-3-8b", "fp8_ds_mla", "dtype: fp8_ds_mla is for latent attention"),
        ("deepseek-v3", "int4", "dtype: int4 has a scale for each head"),
        ("deepseek-v3", "fp8/bf16", "dtype: latent attention has one vector"),
    ],
)
def test_types_that_do_not_fit(name: str, dtype: str, message: str) -> None:
    with pytest.raises(KvError, match=message):
        bytes_per_token(config(name), dtype, 1)


def test_dimensions_that_do_not_fit_a_type() -> None:
    odd = config("llama-3-8b", head_dim=80)
    with pytest.raises(KvError, match="head_dim: 80 elements are no multiple of 32, the block of q8_0"):
        bytes_per_token(odd, "q8_0", 1)
    with pytest.raises(KvError, match=r"kv_lora_rank: fp8_ds_mla is defined for 512 \+ 64 elements"):
        bytes_per_token(config("deepseek-v3", kv_lora_rank=256), "fp8_ds_mla", 1)


def test_a_missing_type_is_no_guess() -> None:
    with pytest.raises(KvError, match="dtype: missing in the config"):
        bytes_per_token(config("llama-3-8b", torch_dtype=None), "auto", 1)
    assert bytes_per_token(config("llama-3-8b", torch_dtype=None), "bf16", 1) == 131_072
    with pytest.raises(KvError, match="torch_dtype: missing"):
        bytes_per_token(config("qwen3-next-80b", torch_dtype=None), "bf16", 1)
