"""Bytes of a model's KV cache, as an engine lays it out over its GPUs. Exact: whole numbers throughout."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oomcast.kv.config import Model, read
from oomcast.kv.fields import KvError
from oomcast.kv.layers import Cross, Layer, Recurrent, Widths
from oomcast.kv.serving import Serving, widths


@dataclass(frozen=True, slots=True)
class Stage:
    """What each rank of one pipeline stage keeps. per_token: bytes of a token, in the layers that keep all of them.
    windows: (tokens, bytes of a token) of those that keep the last ones. states: bytes of a sequence, however long."""

    serving: Serving
    per_token: int
    windows: tuple[tuple[int, int], ...]
    states: int

    def sequence_bytes(self, tokens: int) -> int:
        """Bytes of one sequence, whole blocks."""
        held = self._blocks(tokens)
        size = self.per_token * held + sum(each * min(held, self._window(span)) for span, each in self.windows)
        return size * self.serving.block_tokens + self.states

    @property
    def constant(self) -> int:
        """Bytes of a sequence beside what grows, once it is longer than all windows."""
        return sum(each * self._window(span) for span, each in self.windows) * self.serving.block_tokens + self.states

    @property
    def spare(self) -> int:
        """Bytes of the pool that no sequence gets: SGLang keeps one page more, for padding."""
        per_slot = self.per_token + sum(each for _, each in self.windows)
        return per_slot * self.serving.block_tokens if self.serving.engine == "sglang" else 0

    def longest(self, pool: int, sequences: int) -> int | None:
        """Tokens of each of so many sequences of one length that fit into `pool` bytes; None where any length does."""

        def fits(blocks: int) -> bool:
            return self.spare + sequences * self.sequence_bytes(blocks * self.serving.block_tokens) <= pool

        # Beyond the windows only what is kept of all tokens grows.
        most = max((self._window(span) for span, _ in self.windows), default=0)
        if self.per_token:
            most = max(most, pool // (self.per_token * self.serving.block_tokens) + 1)
        elif fits(most):
            return None
        least = 0
        while least < most:
            middle = (least + most + 1) // 2
            least, most = (middle, most) if fits(middle) else (least, middle - 1)
        return least * self.serving.block_tokens

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.serving.block_tokens)

    def _window(self, span: int) -> int:
        """Blocks at most."""
        if self.serving.engine == "vllm":
            # A window need not begin where a block does, and the token being computed is one of it.
            return self._blocks(span - 1 + self.serving.prefill_chunk) + 1
        return self._blocks(span + self.serving.prefill_chunk)


@dataclass(frozen=True, slots=True)
class Memory:
    """bytes_per_token: on the rank that keeps most. bytes_per_token_once: of the model, without copies.
    bytes_per_token_all: on all ranks together. dtype: of keys and values, resolved. notes: how the config was read."""

    model: Model
    serving: Serving
    dtype: str
    stages: tuple[Stage, ...]
    bytes_per_token_once: int
    notes: tuple[str, ...]

    @property
    def bytes_per_token(self) -> int:
        return max(stage.per_token for stage in self.stages)

    @property
    def bytes_per_token_all(self) -> int:
        return self.serving.tp * sum(stage.per_token for stage in self.stages)

    @property
    def constant_bytes(self) -> int:
        """Bytes of a sequence beside what grows, once it is longer than all windows: on the rank where that is most."""
        return max(stage.constant for stage in self.stages)

    def sequence_bytes(self, tokens: int) -> int:
        """Bytes of one sequence on the rank that keeps most."""
        return max(stage.sequence_bytes(tokens) for stage in self.stages)

    def sequence_bytes_all(self, tokens: int) -> int:
        """Bytes of one sequence on all ranks together."""
        return self.serving.tp * sum(stage.sequence_bytes(tokens) for stage in self.stages)

    def longest(self, pool: int, sequences: int = 1) -> int | None:
        """Tokens of each of so many sequences that fit, with `pool` bytes on each GPU; None where any length does.

        What memory allows: neither the model's nor the engine's limit is in it.
        """
        limits = [limit for s in self.stages if (limit := s.longest(pool, sequences)) is not None]
        return min(limits, default=None)

    def concurrent(self, pool: int, tokens: int) -> int | None:
        """Sequences of so many tokens that fit at once, with `pool` bytes on each GPU; None where they take none."""
        sizes = [(s.sequence_bytes(tokens), s.spare) for s in self.stages]
        return min((max(0, pool - spare) // size for size, spare in sizes if size), default=None)


def bytes_per_token(config: Mapping[str, Any], cache_dtype: str, tp: int) -> int:
    """Bytes that one more token takes on each of tp ranks. Raises KvError, naming the field."""
    return memory(read(config), Serving(dtype=cache_dtype, tp=tp)).bytes_per_token


def memory(model: Model, serving: Serving, draft: Model | None = None) -> Memory:
    """draft: a model of its own that is served beside it. Raises KvError where the two do not go together."""
    notes = [*model.notes, *(f"draft: {note}" for note in (draft.notes if draft else ()))]
    if serving.drafts and not model.drafts:
        raise KvError("num_nextn_predict_layers: missing, there are no layers that predict several tokens")
    extra = (model.drafts if serving.drafts else ()) + (draft.layers if draft else ())
    stored = widths(model, serving, model.layers + extra, notes)
    parts = _partition(model.layers, serving)
    parts[-1] += extra
    encoder = serving.encoder_tokens or model.encoder_tokens
    if not encoder and any(isinstance(part, Cross) for layer in model.layers for part in layer):
        notes.append("encoder_tokens: not given, so nothing is counted for what the encoder hands over")
    notes += _engine_notes(model, serving)
    keys, values = stored.keys.name, stored.values.name
    return Memory(
        model,
        serving,
        keys if keys == values else f"{keys}/{values}",
        tuple(_stage(part, stored, serving.tp, serving, encoder) for part in parts),
        _stage(model.layers + extra, stored, 1, serving, encoder).per_token,
        tuple(notes),
    )


def _engine_notes(model: Model, serving: Serving) -> list[str]:
    kinds = {part.kind for layer in model.layers for part in layer}
    if serving.engine == "llama.cpp" and serving.tp > 1:
        return ["tp: llama.cpp splits layers, not heads, over GPUs unless told otherwise; that is pp here"]
    if serving.engine == "vllm" and serving.hybrid and len(kinds) > 1:
        return [
            "engine: vLLM pads groups of unlike layers to one size and may make blocks larger: it plans more than this;"
            " where it cannot, windowed layers cost as much as full ones (--no-hybrid)"
        ]
    return []


def _stage(layers: tuple[Layer, ...], stored: Widths, tp: int, serving: Serving, encoder: int) -> Stage:
    per_token, states, windows = 0, 0, Counter[int]()
    for part, times in Counter(part for layer in layers for part in layer).items():
        if isinstance(part, Recurrent):
            states += times * part.sequence_bytes(stored, tp)
        elif isinstance(part, Cross):
            states += times * part.token_bytes(stored, tp) * encoder
        elif part.span is None or not serving.hybrid:
            per_token += times * part.token_bytes(stored, tp)
        else:
            windows[part.span] += times * part.token_bytes(stored, tp)
    return Stage(serving, per_token, tuple(sorted(windows.items())), states)


def _partition(layers: tuple[Layer, ...], serving: Serving) -> list[tuple[Layer, ...]]:
    """The layers of each pipeline stage. Those left over go to the last stages in SGLang, elsewhere to those before."""
    if serving.pp > len(layers):
        raise KvError(f"pp: {serving.pp} stages for {len(layers)} layers")
    each, over = divmod(len(layers), serving.pp)
    skip = 0 if serving.engine == "sglang" else 1
    sizes = [each] * serving.pp
    for index in range(over):
        sizes[-1 - skip - index] += 1
    begins = [sum(sizes[:index]) for index in range(serving.pp)]
    return [layers[begin : begin + size] for begin, size in zip(begins, sizes, strict=True)]
