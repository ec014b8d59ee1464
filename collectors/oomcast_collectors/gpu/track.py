"""One memory that is read again and again: which readings are sound, the last of them, and what became of them."""

from oomcast_collectors.gpu.driver import Memory
from oomcast_collectors.gpu.window import MemoryWindow, View

_SETTLES = 3.0
"""Seconds for which another total has to be told before it is believed: a GPU may lose capacity (Xid 168)."""

_FRESH = 1.0
_TOLERANCE = 128
"""Parts that miss the total by up to 1/128 of it: the driver may read them one after the other."""


class Track:
    """Of a GPU or a MIG instance. invalid: readings that were dropped. ever_read: whether any was not.

    Written by one thread, read by another.
    """

    def __init__(self, window: float, exhausted_ratio: float) -> None:
        self.window = MemoryWindow(window, exhausted_ratio)
        self.invalid = 0
        self._last: tuple[float, Memory] | None = None
        self.ever_read = False
        self._patience = _FRESH
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
        self._last = at, memory
        self.ever_read = True
        return self.window.add(at, memory)

    def fresh(self, now: float) -> Memory | None:
        """The last reading, unless it is too old to be shown: over a second, and over twice the mean distance."""
        last = self._last
        return last[1] if last and now - last[0] < self._patience else None

    def view(self, now: float) -> View | None:
        view = self.window.view(now)
        if view and view.period:
            self._patience = _FRESH + 2 * view.period
        return view

    def lose(self) -> None:
        """There are no readings any more: nothing old may be shown."""
        self._last = None
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
