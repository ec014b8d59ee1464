"""What of a request fits, and at which token each limit breaks.

Tokens of a request are counted from 1, those of the input before those of the answer.
"""

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

Name = Literal["max_model_len", "kv_pool_now", "kv_pool_empty", "framebuffer"]
_ORDER: tuple[Name, ...] = ("max_model_len", "kv_pool_empty", "kv_pool_now", "framebuffer")
"""Where several break at one token: what lasts before what passes."""

FITS, NOT_NOW, USAGE, NOT_KNOWN, NEVER = 0, 1, 2, 3, 4
"""Exit codes."""


class Limit(NamedTuple):
    """tokens: the most that pass, None where any number does. input_only: those of the answer do not count. passing: it
    is of this moment, an engine without other requests may have more."""

    name: Name
    tokens: int | None
    input_only: bool = False
    passing: bool = False

    @property
    def breaks_at(self) -> int | None:
        """The first token that is too much; None where none is."""
        return None if self.tokens is None else self.tokens + 1


class Request(NamedTuple):
    """input, output: tokens."""

    input: int
    output: int

    @property
    def tokens(self) -> int:
        return self.input + self.output

    def breaks(self, limit: Limit) -> bool:
        return limit.tokens is not None and (self.input if limit.input_only else self.tokens) > limit.tokens


class Fit(NamedTuple):
    """now, empty: whether it fits, and whether it does without other requests; None where that is not known. broken:
    the limits that it breaks, the first one first."""

    now: bool | None
    empty: bool | None
    broken: tuple[Limit, ...]


def fit(request: Request, limits: Sequence[Limit], unknown: Collection[Name]) -> Fit:
    """unknown: limits that there are, at a number of tokens that is not known. Of them only those of the pool leave the
    answer open: an engine says no to what is too long, and lives."""
    broken = tuple(limit for limit in in_order(limits) if request.breaks(limit))
    if not broken and "kv_pool_now" not in unknown and not _pool_unknown(limits, unknown):
        return Fit(True, True, ())
    now = False if broken else None
    if any(not limit.passing for limit in broken):
        return Fit(now, False, broken)
    # How much more there will be is known of the pool alone.
    open_still = "kv_pool_empty" in unknown or any(limit.name != "kv_pool_now" for limit in broken)
    return Fit(now, None if open_still else True, broken)


def in_order(limits: Sequence[Limit]) -> list[Limit]:
    """By the token at which they break, those that never do at the end."""
    return sorted(limits, key=lambda limit: (limit.tokens is None, limit.tokens or 0, _ORDER.index(limit.name)))


def exit_code(fits: Sequence[Fit]) -> int:
    """Of the answers for the fewest and the most tokens that an input may have; NOT_NOW also where they disagree."""
    codes = {_code(one) for one in fits}
    return codes.pop() if len(codes) == 1 else NOT_NOW


def _code(one: Fit) -> int:
    if one.now:
        return FITS
    if one.empty is False:
        return NEVER
    return NOT_KNOWN if one.now is None and one.empty is None else NOT_NOW


def _pool_unknown(limits: Sequence[Limit], unknown: Collection[Name]) -> bool:
    """What fits beside other requests fits without them too, so the pool when empty matters where it alone is asked."""
    return "kv_pool_empty" in unknown and not any(limit.name == "kv_pool_now" for limit in limits)
