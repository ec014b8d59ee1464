"""One memory that is read again and again: which readings are sound, the last of them, and what became of them."""

from oomcast_collectors.gpu.driver import Memory
from oomcast_collectors.gpu.window import MemoryWindow, View

_SETTLES = 3.0
"""Seconds for which another total has to be told before it is believed: a GPU may lose capacity (Xid 168)."""

_FRESH = 1.0
_LONGEST_PERIOD = 10.0
_TOLERANCE = 128
"""Parts that miss the total by up to 1/128 of it: the driver may read them one after the other."""


def lasts(period: float, gap: float) -> float:
    """Seconds for which a reading may be shown: one, and twice the period of the settings or what really is between
    two readings, which is not how long a GPU was silent in between."""
    return _FRESH + 2 * max(period, min(gap, _LONGEST_PERIOD))


class Track:
    """Of a GPU or a MIG instance. invalid: readings that were dropped. ever_read: whether any was not. period: as
    `lasts` has it.

    Written by one thread, read by another.
    """

    def __init__(self, window: float, exhausted_ratio: float, period: float = 0.0) -> None:
        self.window = MemoryWindow(window, exhausted_ratio)
        self.invalid = 0
        self._last: tuple[float, Memory] | None = None
        self.ever_read = False
        self._before: tuple[float, Memory] | None = None
        self._period = period
        self._total = 0
        self._other: tuple[int, float] | None = None

    def take(self, at: float, memory: Memory) -> bool:
        """at: monotonic. True: there is news, see `MemoryWindow.add`."""
        last = self._last
        # Memory stands still most of the time, and what was found sound is so again.
        known = last is not None and memory == last[1] and self._other is None
        if not known and not self._is_sound(at, memory):
            self.invalid += 1
            return False
        self._before, self._last = last, (at, memory)
        self.ever_read = True
        return self.window.add(at, memory)

    def fresh(self, now: float) -> Memory | None:
        """The last reading, unless it is too old to be shown."""
        last, before = self._last, self._before
        if last is None:
            return None
        gap = last[0] - before[0] if before else 0.0
        return last[1] if now - last[0] < lasts(self._period, gap) else None

    def view(self, now: float) -> View | None:
        return self.window.view(now)

    def lose(self) -> None:
        """There are no readings any more: nothing old may be shown."""
        self._last = self._before = None
        self.window.interrupt()

    def _is_sound(self, at: float, memory: Memory) -> bool:
        total, used, free, reserved = memory
        off = used + free + (reserved or 0) - total
        if total <= 0 or used < 0 or free < 0 or not -total <= off * _TOLERANCE <= total:
            return False
        if total == self._total or not self._total:
            self._total = total
            self._other = None
            return True
        if self._other is None or self._other[0] != total:
            self._other = total, at
        elif at - self._other[1] >= _SETTLES:
            self._total = total
            return True
        return False
