"""What there is for a request, wherever that is known from."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from oomcast.context.fit import Limit, Name

APPROXIMATE = "KV pool: approximate; the engine tells blocks or slots, not how many tokens they hold"
"""A note."""

Source = Literal["engine", "config", "daemon"]


class NoAnswer(Exception):
    """Who was asked does not answer, or tells nothing that is of use."""


class WrongUsage(ValueError):
    """A question that cannot be asked so."""


@dataclass(frozen=True, slots=True)
class Room:
    """target: who was asked. about: what that is. unknown: limits whose number of tokens is not known.
    bytes_per_token: on each GPU. block: tokens. kv_bytes: of a request of so many tokens, on each GPU; None where that
    is not known. notes: what to keep in mind."""

    source: Source
    target: str
    about: str
    limits: tuple[Limit, ...]
    unknown: tuple[Name, ...] = ()
    bytes_per_token: float | None = None
    block: int | None = None
    kv_bytes: Callable[[int], int | None] = lambda tokens: None
    notes: tuple[str, ...] = ()

    def with_headroom(self, headroom: int, per_token: int, chunk: int, *, passing: bool) -> "Room":
        """The same with the limit that prefill's own memory makes. headroom: free bytes of the fullest GPU. per_token:
        bytes of each token that is computed at once. chunk: tokens computed at once at most, 0 for the whole input."""
        tokens = None if 0 < chunk * per_token <= headroom else max(headroom, 0) // per_token
        limit = Limit("framebuffer", tokens, input_only=True, passing=passing)
        return replace(self, limits=(*self.limits, limit))

    def without_headroom(self, reason: str) -> "Room":
        """The same, told that prefill's own memory is not known, which ends engines whose pool is nearly empty."""
        note = f"prefill takes memory of its own beside the KV pool, which is not counted here: {reason}"
        return replace(self, unknown=(*self.unknown, "framebuffer"), notes=(*self.notes, note))


def known_limits(
    max_model_len: int | None, *pools: tuple[Name, int | None]
) -> tuple[tuple[Limit, ...], tuple[Name, ...]]:
    """The limits, and the names of those that are not known (None)."""
    named: tuple[tuple[Name, int | None], ...] = (("max_model_len", max_model_len), *pools)
    limits = tuple(Limit(name, tokens, passing=name == "kv_pool_now") for name, tokens in named if tokens is not None)
    return limits, tuple(name for name, tokens in named if tokens is None)


def whole_blocks(bytes_per_token: float | None, block: int | None) -> Callable[[int], int | None]:
    """Bytes of a request in whole blocks, as `kv_bytes` wants it."""

    def kv_bytes(tokens: int) -> int | None:
        return None if bytes_per_token is None else round(-(-tokens // (block or 1)) * (block or 1) * bytes_per_token)

    return kv_bytes


def queue(waiting: float) -> list[str]:
    """A note, where requests wait."""
    return [f"{waiting:,.0f} requests wait already: another one comes after them"] if waiting else []
