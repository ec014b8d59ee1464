"""The architectures whose caches are known, by the model_type of a config.json. Any other is refused.

New architectures reuse old field names with new meanings, so that a guess would be a wrong number.
"""

from collections.abc import Mapping
from typing import Any

_MULTI_HEAD = (
    "apertus arcee arctic baichuan bloom chatglm cohere command_r dbrx ernie4_5 ernie4_5_moe exaone falcon gemma glm "
    "glm4 glm4_moe glm4v_text glm4v_moe_text gpt2 gpt_bigcode gpt_neox gptj granite granitemoe helium hunyuan_v1_dense "
    "hunyuan_v1_moe internlm2 internlm3 llama minimax_m2 mpt nemotron olmo olmo2 olmoe opt persimmon phi seed_oss "
    "smollm3 stablelm"
)
_MULTI_HEAD_IF_UNSAID = (
    "arctic baichuan bloom cohere falcon gpt2 gpt_bigcode gpt_neox gptj granite granitemoe llama mpt nemotron olmo "
    "olmo2 olmoe opt persimmon phi phi3"
)
_WINDOWED = "ministral mistral mixtral phi3 phimoe starcoder2"
_QWEN = (
    "qwen2 qwen2_moe qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text qwen3 qwen3_moe qwen3_vl_text qwen3_vl_moe_text "
    "qwen3_omni_moe_text"
)

STANDARD = frozenset(_MULTI_HEAD.split())
"""Keys and values of all tokens in all layers, whatever sliding_window says."""

WINDOWED = frozenset(_WINDOWED.split())
"""Where sliding_window is set, all layers have it."""

QWEN = frozenset(_QWEN.split())
"""Windows only if use_sliding_window is true, and then from layer max_window_layers on."""

INTERVALS: Mapping[str, tuple[str, int]] = {
    "cohere2": ("sliding_attention", 4),
    "exaone4": ("sliding_attention", 4),
    "gemma2": ("sliding_attention", 2),
    "gemma3_text": ("sliding_attention", 6),
    "gemma3n_text": ("sliding_attention", 5),
    "gemma4_text": ("sliding_attention", 6),
    "gpt_oss": ("sliding_attention", 2),
    "llama4_text": ("chunked_attention", 4),
    "olmo3": ("sliding_attention", 4),
    "qwen3_next": ("linear_attention", 4),
    "qwen3_5_text": ("linear_attention", 4),
    "qwen3_5_moe_text": ("linear_attention", 4),
}
"""What most layers are, and every which one is of full attention unless the config says otherwise."""

LATENT = frozenset({"deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite", "glm_moe_dsa", "kimi_k2"})
SPARSE = frozenset({"deepseek_v32", "glm_moe_dsa"})
"""With an indexer, whose keys are cached as well."""

MULTI_HEAD_IF_UNSAID = frozenset(_MULTI_HEAD_IF_UNSAID.split())
"""Without a number of KV heads there are as many as heads. For the others the architecture's default is another."""

OWN_HEAD_DIM = ("gemma", "glm4", "gpt_oss", "llama4", "minimax_m2", "nemotron_h", "qwen3", "seed_oss")
"""Beginnings of those whose head_dim is not hidden_size / num_attention_heads where it is missing."""

MAMBA1 = frozenset({"falcon_mamba", "jamba", "mamba"})
MAMBA2 = frozenset({"bamba", "falcon_h1", "granitemoehybrid", "mamba2", "nemotron_h"})
PURE = frozenset({"falcon_mamba", "mamba", "mamba2"})
"""No attention at all."""

CONVOLUTION = frozenset({"lfm2", "lfm2_moe"})
CROSS = frozenset({"mllama_text_model"})
ENCODER_DECODER = frozenset({"bart", "mbart", "whisper"})

KNOWN = STANDARD | WINDOWED | QWEN | INTERVALS.keys() | LATENT | MAMBA1 | MAMBA2 | CONVOLUTION | CROSS | ENCODER_DECODER

UNREAD = (
    "attn_type_list",
    "block_configs",
    "compress_ratios",
    "cross_layer_attention",
    "hybrid_layer_pattern",
    "linear_attn_config",
    "per_layer_config",
    "swa_head_dim",
    "swa_num_key_value_heads",
    "swa_v_head_dim",
    "yoco",
)
"""Fields that change what is cached, in ways that are not followed here."""

NESTED = ("text_config", "llm_config", "language_config", "thinker_config")
"""Where multimodal configs keep the language model."""

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "gemma3_text": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131072,
    },
    "gemma3n_text": {"num_kv_shared_layers": 15},
    "gemma4_text": {"global_head_dim": 512},
    "jamba": {"attn_layer_period": 8, "attn_layer_offset": 4},
}
"""What published configs leave out, since it is the architecture's default."""
