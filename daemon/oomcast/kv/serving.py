"""How a model is served, and what that makes of the types in its cache."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from oomcast.kv.config import Model
from oomcast.kv.fields import KvError
from oomcast.kv.formats import FORMATS, Format, format_named
from oomcast.kv.layers import Layer, Recurrent, Widths

Engine = Literal["vllm", "sglang", "llama.cpp"]
ENGINES: tuple[Engine, ...] = ("vllm", "sglang", "llama.cpp")
_BLOCKS: Mapping[Engine | None, int] = {None: 1, "vllm": 16, "sglang": 1, "llama.cpp": 256}
_STATE_WIDTHS = {"fp32": 4, "bf16": 2, "fp16": 2}


@dataclass(frozen=True, slots=True)
class Serving:
    """How a model is served.

    dtype: of the cache, an engine's word for it; "q8_0/q4_0" is one for keys and one for values. block: tokens, 0 for
    the engine's default. prefill_chunk: tokens that windowed layers hold beyond their window while a prompt is read.
    hybrid: False counts windowed layers as full, as an engine does whose hybrid cache manager is off. encoder_tokens:
    of one sequence. drafts: with the layers that predict several tokens.
    """

    dtype: str = "auto"
    state_dtype: str = "auto"
    tp: int = 1
    pp: int = 1
    block: int = 0
    engine: Engine | None = None
    prefill_chunk: int = 0
    hybrid: bool = True
    encoder_tokens: int = 0
    drafts: bool = False

    def __post_init__(self) -> None:
        for name, least in (("tp", 1), ("pp", 1), ("block", 0), ("prefill_chunk", 0), ("encoder_tokens", 0)):
            if not least <= getattr(self, name) <= 1 << 31:
                raise KvError(f"{name}: should be from {least} to {1 << 31}, got {getattr(self, name)}")

    @property
    def block_tokens(self) -> int:
        return self.block or _BLOCKS[self.engine]


def widths(model: Model, serving: Serving, layers: tuple[Layer, ...], notes: list[str]) -> Widths:
    """How the cache of these layers is stored. Raises KvError where it cannot be told."""
    name, _, other = serving.dtype.partition("/")
    keys = _format(name, model, serving, notes)
    values = _format(other, model, serving, notes) if other else keys
    return Widths(keys, values, *_state_widths(model, serving, layers))


def _format(name: str, model: Model, serving: Serving, notes: list[str]) -> Format:
    if name != "auto":
        found = format_named(name)
        if model.sparse and found.name == "fp8":
            notes.append("dtype: fp8 is fp8_ds_mla for sparse latent attention")
            return FORMATS["fp8_ds_mla"]
        return found
    if serving.engine == "llama.cpp":
        return FORMATS["fp16"]
    if model.sparse:
        if serving.engine == "vllm":
            notes.append("dtype: auto is fp8_ds_mla for sparse latent attention in vLLM; bf16 would be larger")
            return FORMATS["fp8_ds_mla"]
        notes.append("dtype: auto is counted as the weights' type; some engines choose fp8_ds_mla for this model")
    if not model.dtype:
        raise KvError("dtype: missing in the config, so `auto` has no meaning: name the cache's type")
    found = format_named(model.dtype, "torch_dtype")
    if found.name == "fp32":
        notes.append("dtype: weights of fp32 are served, and cached, in 16 bits unless the engine is told otherwise")
        return FORMATS["fp16"]
    if found.name not in _STATE_WIDTHS:
        raise KvError(f"torch_dtype: {found.name} is no type that a cache follows: name the cache's type")
    return found


def _state_widths(model: Model, serving: Serving, layers: tuple[Layer, ...]) -> tuple[int, int]:
    """Bytes of an element of the convolution's state, and of the other; 0, 0 where there is none."""
    if not any(isinstance(part, Recurrent) for layer in layers for part in layer):
        return 0, 0
    if serving.engine == "llama.cpp":
        return 4, 4
    conv = _width(model.dtype, "torch_dtype")
    if serving.state_dtype != "auto":
        return conv, _width(serving.state_dtype, "state_dtype")
    if serving.engine == "sglang":
        return conv, 4
    return conv, _width(model.state_dtype, "mamba_ssm_dtype") if model.state_dtype not in ("", "auto") else conv


def _width(name: str, field_name: str) -> int:
    if not name:
        raise KvError(f"{field_name}: missing, so the size of the recurrent states is not known")
    width = _STATE_WIDTHS.get(format_named(name, field_name).name)
    if width is None:
        raise KvError(f"{field_name}: {name[:40]!r} is no type of a state")
    return width
