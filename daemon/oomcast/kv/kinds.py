"""Which kind each layer is, in the words of layer_types."""

from oomcast.kv import families
from oomcast.kv.fields import MOST_LAYERS, Fields, KvError

KEEPS_NOTHING = ("mlp", "moe")
_SAME = {"attention": "full_attention", "deepseek_sparse_attention": "full_attention"}
_PATTERN = {"M": "mamba", "*": "full_attention", "-": "mlp", "E": "moe"}
_KINDS = frozenset(
    {"full_attention", "sliding_attention", "chunked_attention", "linear_attention", "mamba", "conv", *KEEPS_NOTHING}
)


def layer_kinds(text: Fields, model: str, notes: list[str]) -> tuple[str, ...]:
    """One kind for each layer. Raises KvError where the config contradicts itself or names a kind that is not known."""
    said = _said(text, model)
    if said:
        layers = text.count("num_hidden_layers", default=len(said), most=MOST_LAYERS)
        if len(said) != layers:
            raise KvError(f"layer_types: {len(said)} entries for {layers} layers")
        kinds = tuple(_known(kind, model) for kind in said)
    else:
        kinds = _implied(text, model, layer_count(text), notes)
    if model == "gemma4_text" and kinds[-1] != "full_attention":
        notes.append("layer_types: the last layer is counted as full attention, as the architecture has it")
        kinds = (*kinds[:-1], "full_attention")
    return kinds


def layer_count(text: Fields) -> int:
    """Raises KvError where it is missing."""
    return text.count("num_hidden_layers", "n_layer", "n_layers", "num_layers", most=MOST_LAYERS)


def _said(text: Fields, model: str) -> tuple[str, ...]:
    if model == "nemotron_h" and text.has("hybrid_override_pattern"):
        pattern = text.word("hybrid_override_pattern")
        return tuple(_PATTERN.get(letter, letter) for letter in pattern)
    return text.words("layer_types", "layers_block_type")


def _known(kind: str, model: str) -> str:
    kind = _SAME.get(kind, kind)
    if kind == "linear_attention" and model in families.MAMBA1 | families.MAMBA2:
        kind = "mamba"
    if kind not in _KINDS:
        raise KvError(f"layer_types: {kind[:40]!r} is not known")
    return kind


def _implied(text: Fields, model: str, layers: int, notes: list[str]) -> tuple[str, ...]:
    if model in families.PURE:
        return ("mamba",) * layers
    if model == "falcon_h1":
        return ("hybrid",) * layers
    if model == "jamba":
        period = text.count("attn_layer_period")
        offset = text.count("attn_layer_offset", least=0)
        return _where(layers, {i for i in range(layers) if i % period == offset}, "mamba")
    if model == "bamba":
        return _where(layers, _listed(text, "attn_layer_indices", layers), "mamba")
    if model in families.CONVOLUTION and text.has("full_attn_idxs"):
        return _where(layers, _listed(text, "full_attn_idxs", layers), "conv")
    if model in families.MAMBA2 | families.CONVOLUTION:
        raise KvError("layer_types: missing")
    if model in families.INTERVALS:
        return _at_intervals(text, model, layers)
    return _windowed(text, model, layers, notes)


def _at_intervals(text: Fields, model: str, layers: int) -> tuple[str, ...]:
    kind, every = families.INTERVALS[model]
    if kind == "sliding_attention" and not text.has("sliding_window"):
        raise KvError("sliding_window: missing")
    if model == "exaone4" and isinstance(text.raw("sliding_window_pattern"), str):
        letters = text.word("sliding_window_pattern")
        if not letters or set(letters) - {"L", "G"}:
            raise KvError(f"sliding_window_pattern: should be of the letters L and G, got {letters[:40]!r}")
        return _where(layers, {i for i in range(layers) if letters[i % len(letters)] == "G"}, kind)
    if model == "llama4_text" and (rotary := text.counts("no_rope_layers", most=1)):
        if len(rotary) != layers:
            raise KvError(f"no_rope_layers: {len(rotary)} entries for {layers} layers")
        return _where(layers, {i for i in range(layers) if not rotary[i]}, kind)
    names = ("sliding_window_pattern", "full_attention_interval", "no_rope_layer_interval")
    every = text.count(*names, default=every)
    return _where(layers, {i for i in range(layers) if (i + 1) % every == 0}, kind)


def _windowed(text: Fields, model: str, layers: int, notes: list[str]) -> tuple[str, ...]:
    first = layers
    if text.has("sliding_window"):
        if model in families.WINDOWED:
            first = 0
        elif model in families.QWEN and text.flag("use_sliding_window", default=False):
            first = text.count("max_window_layers", least=0)
        else:
            why = "use_sliding_window is not true" if model in families.QWEN else f"{model} does not use it"
            notes.append(f"sliding_window: is set, but {why}: counted as full attention")
    elif model in families.WINDOWED and not text.mentions("sliding_window"):
        notes.append("sliding_window: missing, counted as full attention; the architecture may have a default")
    return _where(layers, set(range(min(first, layers))), "sliding_attention")


def _listed(text: Fields, field: str, layers: int) -> set[int]:
    return set(text.counts(field, most=layers - 1))


def _where(layers: int, full: set[int], other: str) -> tuple[str, ...]:
    return tuple("full_attention" if index in full else other for index in range(layers))
