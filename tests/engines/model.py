"""A model for the engines to serve: a Llama of two layers whose weights the engine makes up, and a tokenizer."""

import json
from pathlib import Path

LAYERS = 2
KV_HEADS = 2
HEAD_DIM = 64
CONTEXT = 131_072
"""Tokens: the longest request that the model is made for."""

BYTES_PER_TOKEN = LAYERS * 2 * KV_HEADS * HEAD_DIM * 2
"""Keys and values of each layer and head, in bfloat16."""

SPECIAL = ("<unk>", "<s>", "</s>")
VOCABULARY = len(SPECIAL) + 256
"""The special tokens, then one for each byte."""


def write_model(directory: Path) -> Path:
    """Writes what an engine reads of a model, save the weights, and gives `directory`."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 2 * KV_HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": CONTEXT,
        "bos_token_id": SPECIAL.index("<s>"),
        "eos_token_id": SPECIAL.index("</s>"),
        "torch_dtype": "bfloat16",
    }
    files = {"config.json": config, "tokenizer.json": _tokenizer(), "tokenizer_config.json": _tokenizer_config()}
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content))
    return directory


def _tokenizer() -> object:
    """A byte-level BPE without merges, in the format of the tokenizers library."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    names = [*SPECIAL, *_byte_names()]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": name, "special": True, **flags} for i, name in enumerate(SPECIAL)],
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {name: i for i, name in enumerate(names)}, "merges": []},
    }


def _tokenizer_config() -> object:
    unknown, begin, end = SPECIAL
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": unknown,
        "bos_token": begin,
        "eos_token": end,
        "model_max_length": CONTEXT,
    }


def _byte_names() -> list[str]:
    """The character that stands for each byte: itself where it can be seen, else one above Latin-1."""
    seen = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in seen else next(others)) for byte in range(256)]
