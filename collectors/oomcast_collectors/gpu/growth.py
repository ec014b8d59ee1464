"""What a GPU's memory grew by, and who took it. Pure: times and bytes come in, a step comes out."""

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

_MOST_POINTS = 64
_TOLERANCE = 0.01

K = TypeVar("K", bound=Hashable)


class _Point(NamedTuple, Generic[K]):
    at: float
    used: int | None
    shares: Mapping[K, int | None] | None


@dataclass(frozen=True, slots=True)
class Step(Generic[K]):
    """A rise of used memory. seconds: from the low to now. by: who took most of it, None where nobody grew or the
    shares are not known. share: bytes that `by` took, more than `bytes` where others gave some back. unattributed:
    bytes that no process took; None where that is not known."""

    bytes: int
    seconds: float
    by: K | None
    share: int
    unattributed: int | None


class Growth(Generic[K]):
    """The last `seconds` of one GPU. Keeps at most some sixty readings, of those that lie close the lowest."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._points: deque[_Point[K]] = deque()
        self._base = float("-inf")

    def add(
        self, at: float, used: int | None, shares: Mapping[K, int | None] | None, least: float | None
    ) -> Step[K] | None:
        """The step that ends with this reading, if there was one of at least `least` bytes.

        at: seconds, never before the last one. used: bytes, None where not known. shares: bytes by holder, None for
        one where it is not told; the whole None where the holders are not known. What a step was told of belongs to no
        later one.
        """
        now = _Point(at, used, shares)
        while self._points and self._points[0].at < at - self._seconds:
            self._points.popleft()
        step = self._step(now, least) if least is not None else None
        if step is not None:
            self._base = at
        self._keep(now)
        return step

    def grown(self, shares: Mapping[K, int | None]) -> dict[K, int]:
        """By how many bytes each holder is now above the oldest reading that has holders; negative where below."""
        oldest = next((point.shares for point in self._points if point.shares is not None), None)
        return _rises(oldest, shares) if oldest is not None else {}

    def _keep(self, now: _Point[K]) -> None:
        last = self._points[-1] if self._points else None
        width = self._seconds / _MOST_POINTS
        if last is None or now.at // width != last.at // width or last.at < self._base:
            self._points.append(now)
        elif last.used is None or (now.used is not None and now.used <= last.used):
            self._points[-1] = now

    def _step(self, now: _Point[K], least: float) -> Step[K] | None:
        lows = [(p.used, -p.at, p.shares) for p in self._points if p.used is not None and p.at >= self._base]
        if now.used is None or not lows:
            return None
        low, before, shares = min(lows, key=lambda low: low[:2])
        rise = now.used - low
        if rise < least:
            return None
        seconds = now.at + before
        if shares is None or now.shares is None:
            return Step(rise, seconds, None, 0, None)
        rises = {holder: rose for holder, rose in _rises(shares, now.shares).items() if rose > 0}
        by = max(rises, key=rises.__getitem__, default=None)
        held, holds = total(shares.values()), total(now.shares.values())
        unattributed = remainder(rise, holds - held, now.used) if held is not None and holds is not None else None
        return Step(rise, seconds, by, 0 if by is None else rises[by], unattributed)


def total(parts: Iterable[int | None]) -> int | None:
    """The sum, None if any of them is not known."""
    known = 0
    for part in parts:
        if part is None:
            return None
        known += part
    return known


def remainder(whole: int, parts: int, used: int) -> int | None:
    """whole - parts, in bytes. The two are read one after the other, so what is negative by at most 1 % of `used` is 0;
    below that it is None, not known."""
    rest = whole - parts
    return max(rest, 0) if rest >= -_TOLERANCE * used else None


def _rises(before: Mapping[K, int | None], now: Mapping[K, int | None]) -> dict[K, int]:
    """Of each holder of now; one that came with all that it has."""
    rises = {}
    for holder, bytes_now in now.items():
        bytes_before = before.get(holder, 0)
        if bytes_now is not None and bytes_before is not None:
            rises[holder] = bytes_now - bytes_before
    return rises
