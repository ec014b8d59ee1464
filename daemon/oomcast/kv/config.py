"""A model as its KV cache sees it, from the object in its config.json."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oomcast.kv import families
from oomcast.kv.fields import MOST, MOST_LAYERS, Fields, KvError
from oomcast.kv.kinds import KEEPS_NOTHING, layer_count, layer_kinds
from oomcast.kv.layers import Attention, Cross, Latent, Layer, Part
from oomcast.kv.states import recurrent

_LIMITS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_target_positions")
_NESTING = 3


@dataclass(frozen=True, slots=True)
class Limit:
    """The longest sequence that the config names: a statement, not what an engine serves. scaling: the type of RoPE
    scaling, "" without."""

    tokens: int
    field: str
    scaling: str


@dataclass(frozen=True, slots=True)
class Model:
    """name: the model_type. layers: in the model's order, drafts: of multi-token prediction. dtype: the weights', "" if
    not said; state_dtype: the recurrent states', "" if as dtype. sparse: has an indexer. encoder_tokens: of an encoder
    that always gives as many, 0 else. notes: where the config can be read in two ways, and how it was."""

    name: str
    layers: tuple[Layer, ...]
    drafts: tuple[Layer, ...]
    dtype: str
    state_dtype: str
    sparse: bool
    limit: Limit | None
    encoder_tokens: int
    notes: tuple[str, ...]


def read(config: Mapping[str, Any]) -> Model:
    """Raises KvError, naming the field, for what is not known, missing or makes no sense."""
    whole = Fields(config)
    text, name = _language_model(whole)
    notes = _complete(text, name)
    text = text.over(families.DEFAULTS.get(name, {}))
    for field in families.UNREAD:
        if text.has(field):
            raise KvError(f"{field}: changes what is cached, in a way that is not known here")
    if text.flag("use_cla", default=False):
        raise KvError("use_cla: layers that share a cache in this way are not known here")
    layers = _layers(text, name, notes)
    if whole.has("quantization_config") and (whole.inner("quantization_config") or text).has("kv_cache_scheme"):
        notes.append("quantization_config: has a kv_cache_scheme, which some engines follow and `auto` here does not")
    return Model(
        name=name,
        layers=_owning(text, layers),
        drafts=_drafts(text, layers),
        dtype=text.word("dtype", "torch_dtype") or whole.word("dtype", "torch_dtype"),
        state_dtype=text.word("mamba_ssm_dtype", "mamba_ssm_cache_dtype"),
        sparse=name in families.SPARSE,
        limit=_limit(text, notes),
        encoder_tokens=text.count("max_source_positions", default=0),
        notes=tuple(notes),
    )


def _language_model(whole: Fields) -> tuple[Fields, str]:
    text, name = whole, whole.word("model_type")
    for _ in range(_NESTING):
        inner = text.inner(*families.NESTED)
        if inner is None:
            break
        text, name = inner, inner.word("model_type") or name
    if not name:
        raise KvError("model_type: missing")
    if name not in families.KNOWN:
        raise KvError(f"model_type: {name[:40]!r} is not known here")
    return text, name


def _complete(text: Fields, name: str) -> list[str]:
    absent = [field for field in families.DEFAULTS.get(name, {}) if not text.has(field)]
    return [f"{', '.join(absent)}: not in the config, taken from the architecture's defaults"] if absent else []


def _layers(text: Fields, name: str, notes: list[str]) -> tuple[Layer, ...]:
    if name in families.ENCODER_DECODER:
        heads, hidden = text.count("decoder_attention_heads"), text.count("d_model")
        dim = _divided("d_model", hidden, heads)
        layer = (Attention("full_attention", heads, dim, dim), Cross(heads, dim))
        return (layer,) * text.count("decoder_layers", most=MOST_LAYERS)
    if text.has("kv_lora_rank"):
        if name not in families.LATENT:
            raise KvError(f"kv_lora_rank: not known for {name}")
        return ((_latent(text, name),),) * layer_count(text)
    kinds = layer_kinds(text, name, notes)
    parts = {kind: _parts(text, name, kind, notes) for kind in dict.fromkeys(kinds)}
    layers = [parts[kind] for kind in kinds]
    if name in families.CROSS:
        heads, dim = _heads(text, name, notes), _head_dim(text, name)
        for index in text.counts("cross_attention_layers", most=len(layers) - 1):
            layers[index] = (Cross(heads, dim),)
    return tuple(layers)


def _parts(text: Fields, name: str, kind: str, notes: list[str]) -> Layer:
    if kind in KEEPS_NOTHING:
        return ()
    if kind in ("mamba", "linear_attention", "conv"):
        return (recurrent(text, name, kind),)
    if kind == "hybrid":
        return (_attention(text, name, "full_attention", notes), recurrent(text, name, "mamba"))
    return (_attention(text, name, kind, notes),)


def _attention(text: Fields, name: str, kind: str, notes: list[str]) -> Part:
    heads, dim, span = _heads(text, name, notes), _head_dim(text, name), None
    if kind == "sliding_attention":
        span = text.count("sliding_window")
    elif kind == "chunked_attention":
        span = text.count("attention_chunk_size")
    elif name == "gemma4_text":
        dim = text.count("global_head_dim")
        if text.flag("attention_k_eq_v", default=False):
            heads = text.count("num_global_key_value_heads", default=heads)
    return Attention(kind, heads, dim, text.count("v_head_dim", default=dim), span)


def _latent(text: Fields, name: str) -> Latent:
    index = text.count("index_head_dim") if name in families.SPARSE else 0
    return Latent(text.count("kv_lora_rank"), text.count("qk_rope_head_dim"), index)


def _query_heads(text: Fields) -> int:
    return text.count("num_attention_heads", "n_head", "n_heads")


def _heads(text: Fields, name: str, notes: list[str]) -> int:
    if name == "falcon" and not text.flag("new_decoder_architecture", default=False):
        return 1 if text.flag("multi_query", default=True) else _query_heads(text)
    if name == "gpt_bigcode":
        return 1 if text.flag("multi_query", default=True) else _query_heads(text)
    if name == "chatglm" and text.flag("multi_query_attention", default=False):
        return text.count("multi_query_group_num")
    names = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
    if name in ("mpt", "dbrx"):
        inner = text.inner("attn_config")
        return inner.count("kv_n_heads", default=_query_heads(text)) if inner else _query_heads(text)
    if not text.has(*names):
        if name not in families.MULTI_HEAD_IF_UNSAID:
            raise KvError("num_key_value_heads: missing")
        note = "num_key_value_heads: missing, counted as num_attention_heads"
        if note not in notes:
            notes.append(note)
    return text.count(*names, default=_query_heads(text))


def _head_dim(text: Fields, name: str) -> int:
    if text.has("head_dim", "kv_channels", "attention_head_dim"):
        return text.count("head_dim", "kv_channels", "attention_head_dim")
    if name.startswith(families.OWN_HEAD_DIM):
        raise KvError("head_dim: missing")
    return _divided("hidden_size", text.count("hidden_size", "n_embd", "d_model"), _query_heads(text))


def _divided(field: str, size: int, heads: int) -> int:
    if size % heads:
        raise KvError(f"{field}: {size} is no multiple of {heads} attention heads, and head_dim is missing")
    return size // heads


def _owning(text: Fields, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    shared = text.count("num_kv_shared_layers", default=0, least=0, most=len(layers) - 1)
    return layers[: len(layers) - shared] + ((),) * shared


def _drafts(text: Fields, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    count = text.count("num_nextn_predict_layers", "mtp_num_hidden_layers", default=0, least=0, most=MOST_LAYERS)
    if not count:
        return ()
    for layer in reversed(layers):
        if any(isinstance(part, Attention | Latent) and part.span is None for part in layer):
            return (layer,) * count
    raise KvError("num_nextn_predict_layers: there is no layer of full attention that a draft could be like")


def _limit(text: Fields, notes: list[str]) -> Limit | None:
    field = next((field for field in _LIMITS if text.has(field)), None)
    if field is None:
        return None
    tokens = text.count(field, most=MOST * 64)
    rope = text.inner("rope_parameters", "rope_scaling")
    scaling = rope.word("rope_type", "type") if rope else ""
    if scaling not in ("", "default", "proportional", "mrope"):
        notes.append(f"{field}: as the config has it; engines disagree on whether {scaling} scaling is in it already")
    return Limit(tokens, field, scaling)
