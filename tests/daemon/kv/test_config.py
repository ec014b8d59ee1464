"""Configs: how they are read, and that none gives a number that is wrong."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.kv.samples import NAMES, config
from oomcast.kv import families
from oomcast.kv.config import Limit, read
from oomcast.kv.fields import KvError, load
from oomcast.kv.layers import Attention
from oomcast.kv.memory import memory
from oomcast.kv.serving import Serving


def spans(found: dict[str, Any]) -> str:
    """A letter for each layer: f for full attention, w for a window, - for nothing."""
    parts = [layer[0] if layer else None for layer in read(found).layers]
    return "".join("-" if p is None else "w" if isinstance(p, Attention) and p.span else "f" for p in parts)


def test_windows_where_each_architecture_has_them() -> None:
    assert spans(config("gpt-oss-120b")) == "wf" * 18
    assert spans(config("gpt-oss-120b", layer_types=None)) == "wf" * 18
    assert spans(config("gemma-3-27b")) == "wwwwwf" * 10 + "ww"
    assert spans(config("llama-4-scout")) == "wwwf" * 12
    assert spans(config("mistral-7b-v0.1")) == "w" * 32
    assert spans(config("mistral-7b-v0.3")) == "f" * 32
    assert spans(config("qwen2.5-7b")) == "f" * 28
    assert spans(config("qwen2.5-7b", use_sliding_window=True, max_window_layers=20)) == "f" * 20 + "w" * 8
    assert spans(config("gemma-3n-e4b")) == "wwwwf" * 4 + "-" * 15


def test_a_pattern_in_letters() -> None:
    exaone = config("mistral-7b-v0.1", model_type="exaone4", sliding_window_pattern="LLLG")
    assert spans(exaone) == "wwwf" * 8
    with pytest.raises(KvError, match="sliding_window_pattern: should be of the letters L and G"):
        read({**exaone, "sliding_window_pattern": "LLX"})


def test_global_layers_with_heads_of_their_own() -> None:
    text = {"model_type": "gemma4_text", "hidden_size": 2816, "head_dim": 256, "num_attention_heads": 16}
    text |= {"num_hidden_layers": 6, "num_key_value_heads": 8, "sliding_window": 1024}
    text |= {"global_head_dim": 512, "num_global_key_value_heads": 2, "attention_k_eq_v": True}
    model = read({"model_type": "gemma4", "text_config": text})
    assert model.layers[0] == (Attention("sliding_attention", 8, 256, 256, 1024),)
    assert model.layers[5] == (Attention("full_attention", 2, 512, 512),)


def test_keys_and_values_of_different_size() -> None:
    found = memory(read(config("llama-3-8b", head_dim=192, v_head_dim=128)), Serving())
    assert found.bytes_per_token == 32 * 8 * (192 + 128) * 2


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"model_type": "qwen2", "sliding_window": 4096}, "use_sliding_window is not true"),
        ({"sliding_window": 4096}, "llama does not use it"),
        ({"num_key_value_heads": None}, "num_key_value_heads: missing, counted as num_attention_heads"),
        ({"model_type": "mistral"}, "sliding_window: missing"),
        ({"quantization_config": {"kv_cache_scheme": {"num_bits": 8}}}, "kv_cache_scheme"),
        ({"rope_scaling": {"type": "yarn", "factor": 4}}, "max_position_embeddings: as the config has it"),
    ],
)
def test_what_can_be_read_in_two_ways_is_noted(changes: dict[str, Any], note: str) -> None:
    assert read(config("llama-3-8b")).notes == ()
    (found,) = read(config("llama-3-8b", **changes)).notes
    assert note in found


def test_the_limit_is_what_the_config_says() -> None:
    assert read(config("llama-3-8b")).limit == Limit(8192, "max_position_embeddings", "")
    assert read(config("llama-3.1-8b")).limit == Limit(131_072, "max_position_embeddings", "llama3")
    assert read(config("deepseek-v3")).limit == Limit(163_840, "max_position_embeddings", "yarn")
    assert read(config("qwen2.5-72b")).limit == Limit(32_768, "max_position_embeddings", "")
    assert read(config("whisper-large-v3")).limit == Limit(448, "max_target_positions", "")
    assert read(config("gemma-3-27b")).limit == Limit(131_072, "max_position_embeddings", "linear")
    assert read(config("falcon-7b")).limit is None


HOSTILE: tuple[object, ...] = (
    -1,
    0,
    1 << 80,
    1.5,
    2.0,
    True,
    "32",
    "x" * 100_000,
    [],
    [[[]]],
    {},
    {"a": {}},
    float("nan"),
)


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: f"{type(value).__name__}-{str(value)[:9]}")
@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("llama-3-8b", "num_hidden_layers"),
        ("llama-3-8b", "num_key_value_heads"),
        ("llama-3-8b", "num_attention_heads"),
        ("llama-3-8b", "max_position_embeddings"),
        ("llama-3-8b", "head_dim"),
        ("mistral-7b-v0.1", "sliding_window"),
        ("deepseek-v3", "kv_lora_rank"),
        ("deepseek-v3", "qk_rope_head_dim"),
        ("jamba-v0.1", "attn_layer_period"),
        ("jamba-v0.1", "mamba_d_state"),
        ("qwen3-next-80b", "linear_num_value_heads"),
        ("nemotron-h-8b", "n_groups"),
        ("whisper-large-v3", "decoder_layers"),
    ],
)
def test_a_hostile_number_is_named(name: str, field: str, value: object) -> None:
    with pytest.raises(KvError, match=f"^{field}: ") as caught:
        memory(read(config(name, **{field: value})), Serving())
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("llama-3-8b", {"model_type": None}, "model_type: missing"),
        ("llama-3-8b", {"model_type": "llama9"}, "model_type: 'llama9' is not known"),
        ("llama-3-8b", {"model_type": 7}, "model_type: should be a text"),
        ("llama-3-8b", {"num_hidden_layers": None}, "num_hidden_layers: missing"),
        ("llama-3-8b", {"num_attention_heads": 33, "num_key_value_heads": 11}, "hidden_size: 4096 is no multiple"),
        ("llama-3-8b", {"text_config": 7}, "text_config: should be an object"),
        ("llama-3-8b", {"rope_scaling": "yarn"}, "rope_scaling: should be an object"),
        ("llama-3-8b", {"kv_lora_rank": 512}, "kv_lora_rank: not known for llama"),
        ("llama-3-8b", {"layer_types": ["full_attention"] * 31}, "layer_types: 31 entries for 32 layers"),
        ("llama-3-8b", {"layer_types": ["strange"] * 32}, "layer_types: 'strange' is not known"),
        ("llama-3-8b", {"layer_types": ["mamba"] * 32}, "layer_types: 'mamba' is not known for llama"),
        ("llama-3-8b", {"layer_types": "full_attention"}, "layer_types: should be a list"),
        ("llama-3-8b", {"layer_types": [1] * 32}, "layer_types: should be a list of texts"),
        ("llama-3-8b", {"layer_types": ["sliding_attention"] * 32}, "sliding_window: missing"),
        ("llama-3-8b", {"use_cla": True}, "use_cla: "),
        ("llama-3-8b", {"block_configs": [{}]}, "block_configs: "),
        ("llama-3-8b", {"num_kv_shared_layers": 32}, "num_kv_shared_layers: "),
        ("llama-3-8b", {"num_key_value_heads": [8] * 32}, "num_key_value_heads: should be a whole number"),
        ("mistral-7b-v0.3", {"num_key_value_heads": None}, "num_key_value_heads: missing"),
        ("qwen3-next-80b", {"head_dim": None}, "head_dim: missing"),
        ("bamba-9b", {"attn_layer_indices": [32]}, "attn_layer_indices: "),
        ("nemotron-h-8b", {"hybrid_override_pattern": "MX"}, "layer_types: "),
        ("deepseek-v3.2", {"index_head_dim": None}, "index_head_dim: missing"),
    ],
)
def test_a_config_that_makes_no_sense_is_an_error(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(KvError, match=f"^{message}"):
        read(config(name, **changes))


def test_nesting_has_an_end() -> None:
    found = config("llama-3-8b")
    for _ in range(10_000):
        found = {"model_type": "llama", "text_config": found}
    with pytest.raises(KvError, match="num_hidden_layers: missing"):
        read(found)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda s: st.lists(s, max_size=3)
)


@given(st.sampled_from(NAMES), st.data())
def test_garbage_is_an_error_or_a_number(name: str, data: st.DataObject) -> None:
    found = config(name)
    target = found.get("text_config", found)
    target[data.draw(st.sampled_from([*sorted(target), *families.UNREAD, "dtype", "v_head_dim"]))] = data.draw(JSON)
    with contextlib.suppress(KvError):
        assert memory(read(found), Serving()).sequence_bytes(131_072) >= 0


def test_every_known_architecture_is_read_or_says_what_it_lacks() -> None:
    for name in sorted(families.KNOWN):
        with pytest.raises(KvError, match="missing"):
            read({"model_type": name})


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"model_type": "llama"}')
    assert load(tmp_path) == load(file) == {"model_type": "llama"}
    file.write_bytes(b"\xef\xbb\xbf{}")
    assert load(file) == {}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"\xff\xfe\x00", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "should hold an object, got a list"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "no JSON"),
        (b" " * (10 << 20), "larger than"),
    ],
)
def test_files_that_are_no_config(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(KvError, match=message):
        load(file)


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(KvError, match="No such file"):
        load(tmp_path)
    with pytest.raises(KvError, match="null"):
        load(Path("a\0b"))
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(KvError, match="not a regular file"):
        load(tmp_path)


def test_published_fixtures_are_plain_objects() -> None:
    assert len(NAMES) > 20
    for name in NAMES:
        json.dumps(config(name), allow_nan=False)
