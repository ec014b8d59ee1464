"""The prompts of a sliding window, and the shares of long ones, from a histogram whose buckets may not have those
lengths."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from oomcast_collectors.engine.history import Past
from oomcast_collectors.engine.length_totals import Bounds, gained
from oomcast_collectors.engine.reading import Lengths

ABOVE = (2048, 65_536, 131_072, 200_000)
"""Tokens."""

Snapshot = tuple[Mapping[Bounds, Lengths], float]
"""Totals, and the longest request that the engine accepted since the snapshot before."""


class Share(NamedTuple):
    """0 to 1; equal where the buckets have the length."""

    lower: float
    upper: float


class Recent(NamedTuple):
    """The prompts of the window. parts: a histogram for each set of bounds. longest: tokens that none exceeds, infinite
    if not known. whole: prompts of all parts, above 0."""

    parts: Sequence[Lengths]
    longest: float
    whole: float

    def shares(self) -> Mapping[int, Share]:
        """By each length of ABOVE."""
        return {tokens: self._share(tokens) for tokens in ABOVE}

    def _share(self, tokens: int) -> Share:
        bounds = [above(part, tokens, self.longest) for part in self.parts]
        return Share(sum(lower for lower, _ in bounds) / self.whole, sum(upper for _, upper in bounds) / self.whole)


class LengthWindow:
    """Fed with totals that never fall, by the bounds under which they were counted."""

    def __init__(self, window: float) -> None:
        self._window = window
        self._past = Past[Snapshot](window)
        self._longest = 0.0
        self._now: Mapping[Bounds, Lengths] = {}
        self._at = 0.0

    def look(self, parts: Mapping[Bounds, Lengths], max_model_len: int | None, at: float) -> None:
        """max_model_len: tokens that no prompt of this life can exceed, None if not known. at: monotonic seconds."""
        if not parts:
            # What the first histogram holds was counted before this window.
            return
        self._now = parts
        self._at = at
        self._longest = max(self._longest, math.inf if max_model_len is None else max_model_len)
        if self._past.add(at, (parts, self._longest)):
            self._longest = 0.0

    def recent(self, at: float) -> Recent | None:
        """None without a prompt in the window that ends at `at`, in monotonic seconds, not before the last look."""
        before = self._past.before(at - self._window)
        if before is None or self._at <= at - self._window:
            return None
        longest = max([self._longest, *(longest for _, longest in self._past.values())])
        parts = [gained(total, before.value[0].get(bounds)) for bounds, total in self._now.items()]
        count = sum(part.count for part in parts)
        return Recent(parts, longest, count) if count > 0 else None


def above(lengths: Lengths, tokens: float, longest: float = math.inf) -> tuple[float, float]:
    """At least and at most how many prompts of the histogram are longer than `tokens`.

    Bucket i holds n_i prompts with low_i < length <= high_i; none is longer than `longest`, so that high_i is at most
    that. Buckets from `tokens` on count whole. Of one bucket u, with low_u < tokens < high_u, some k of n_u count, and
    nothing but the sum S of all lengths tells how many:

    - every prompt is longer than its low, the k are longer than `tokens`:
      S >= sum(n_i low_i) + k (tokens - low_u), hence k <= (S - sum(n_i low_i)) / (tokens - low_u);
    - none is longer than its high, the n_u - k not than `tokens`:
      S <= sum(n_i high_i) - (n_u - k) (high_u - tokens), hence n_u - k <= (sum(n_i high_i) - S) / (high_u - tokens).

    The second needs a high_i for every prompt, so it is without force where the last bucket has prompts and `longest`
    is not known. A sum that contradicts the buckets is not used.
    """
    low, below, sure, least, most = 0.0, 0.0, 0.0, 0.0, 0.0
    unsure: tuple[float, float, float] | None = None
    for bound, cumulative in lengths.buckets:
        count, below = cumulative - below, cumulative
        high = max(min(bound, longest), low)
        if count > 0:
            least += count * low
            most += count * high
            if low >= tokens:
                sure += count
            elif high > tokens:
                unsure = (count, low, high)
        low = bound
    if unsure is None:
        return sure, sure
    count, low, high = unsure
    if not least <= lengths.sum <= most:
        return sure, sure + count
    at_most = min(count, (lengths.sum - least) // (tokens - low))
    not_above = math.inf if math.isinf(most) else (most - lengths.sum) // (high - tokens)
    return sure + max(count - not_above, 0.0), sure + at_most
