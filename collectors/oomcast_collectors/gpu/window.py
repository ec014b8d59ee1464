"""What happened to one memory between two scrapes: peaks, steps, gaps, time exhausted, and the plateau it returns to.

Fed with every reading from the sampling thread, read once a second from another. What is closed is replaced as a whole
and never changed, so the reader needs no lock; what it may miss of the open second it sees a second later.
"""

import math
from typing import NamedTuple

from oomcast_collectors.gpu.driver import Memory

EPISODE = 0.5
"""Seconds for which memory has to be exhausted to count as exhausted once."""

_LONGEST_GAP = 1.0
"""Seconds without a reading after which nobody knows whether memory was still exhausted, unless it is read that
rarely all the time."""

_PLATEAU_STEP = 10.0
_PLATEAU_STEPS = 6
_PLATEAU_BAND = 0.01
_NEWS = 0.01
"""Share of usable memory by which a peak has to rise above the one that was last told to be told at once."""


class _Second(NamedTuple):
    """The readings of one second. began, ended: monotonic times of the first and the last of them."""

    began: float
    ended: float
    peak: int
    free: int
    step: int
    gap: float
    readings: int


class View(NamedTuple):
    """Over the window, in bytes and seconds. period: None with a single reading."""

    peak: int
    free_min: int
    step: int
    period: float | None
    largest_gap: float


class MemoryWindow:
    """seconds: the length of the window; what is older by up to a second is in it too, so that none can slip through.

    exhausted_seconds, exhaustions: since the first reading. plateau: bytes, None where there is none.
    """

    def __init__(self, seconds: float, exhausted_ratio: float) -> None:
        self._seconds = seconds
        self._ratio = exhausted_ratio
        self._closed: tuple[_Second, ...] = ()
        self._turn = -math.inf
        self._at = self._began = 0.0
        self._used = self._free = self._peak = self._step = self._count = 0
        self._gap = 0.0
        self._told = math.inf
        self._total = -1
        self._reserved: int | None = None
        self.usable = 0
        self._limit = math.inf
        self._full_since: float | None = None
        self._counted = False
        self._pace = 0.0
        """The gap before the last reading that was full."""
        self.exhausted_seconds = 0.0
        self.exhaustions = 0
        self.plateau: int | None = None
        self.plateau_since: float | None = None
        """Monotonic time at which the plateau was found; it moves within it without being found anew."""
        self._lows: tuple[int, ...] = ()
        self._low = 0
        self._low_until = -math.inf

    def add(self, at: float, memory: Memory) -> bool:
        """A reading that was found to be sound. at: monotonic, ascending. True: there is news that should not wait for
        the next regular look, a higher peak or an exhaustion that counts."""
        total, used, free, reserved = memory
        if total != self._total or reserved != self._reserved:
            self._resize(total, reserved)
        # The first reading of all has nothing to be far from, nor to be a step from.
        gap = at - self._at if self._count else 0.0
        step = used - self._used if self._count else 0
        if at >= self._turn:
            self._close(at, used, free)
        self._at = at
        self._used = used
        self._count += 1
        if used > self._peak:
            self._peak = used
        if free < self._free:
            self._free = free
        if step > self._step:
            self._step = step
        if gap > self._gap:
            self._gap = gap
        if used < self._low:
            self._low = used
        if used < self._limit:
            self._full_since = None
            return used > self._told
        return self._is_full(at, gap) or used > self._told

    def view(self, now: float) -> View | None:
        """None when there was no reading. The last one counts however old it is. What is given counts as told."""
        # The open second first: it may be closed meanwhile, and twice in a maximum is no harm.
        last = _Second(self._began, self._at, self._peak, self._free, self._step, self._gap, self._count)
        known = [s for s in (*self._closed, last) if s.readings]
        seconds = [s for s in known if s.ended >= now - self._seconds] or known[-1:]
        if not seconds:
            return None
        readings = sum(s.readings for s in {s.began: s for s in seconds}.values())
        view = View(
            max(s.peak for s in seconds),
            min(s.free for s in seconds),
            max(s.step for s in seconds),
            (seconds[-1].ended - seconds[0].began) / (readings - 1) if readings > 1 else None,
            max(*(s.gap for s in seconds), now - seconds[-1].ended),
        )
        self._told = view.peak + self.usable * _NEWS
        return view

    def interrupt(self) -> None:
        """Readings stop for good or for long: what they were about to show is not shown by what comes after."""
        self._closed = ()
        self._count = 0
        self._full_since = None
        self._lows = ()
        self._turn = self._low_until = -math.inf
        self.plateau = self.plateau_since = None

    def _close(self, at: float, used: int, free: int) -> None:
        if self._count:
            done = _Second(self._began, self._at, self._peak, self._free, self._step, self._gap, self._count)
            oldest = at - self._seconds - 1
            self._closed = (*(s for s in self._closed if s.ended >= oldest), done)
        if at >= self._low_until:
            self._close_low(at, used)
        self._turn = at + 1.0
        self._began = at
        self._peak = used
        self._free = free
        self._step = self._count = 0
        self._gap = 0.0

    def _close_low(self, at: float, used: int) -> None:
        if at - self._low_until > _PLATEAU_STEP:
            self._lows = ()  # the first, or the first after a pause
        else:
            self._lows = (*self._lows[1 - _PLATEAU_STEPS :], self._low)
            self._settle(at)
        self._low = used
        self._low_until = at + _PLATEAU_STEP

    def _settle(self, at: float) -> None:
        lows = self._lows
        band = self.usable * _PLATEAU_BAND
        if len(lows) == _PLATEAU_STEPS and max(lows) - min(lows) <= band:
            if self.plateau is None or abs(lows[-1] - self.plateau) > band:
                self.plateau_since = at
            self.plateau = lows[-1]
        elif self.plateau is not None and lows[-1] < self.plateau - band:
            self.plateau = self.plateau_since = None

    def _resize(self, total: int, reserved: int | None) -> None:
        self._total, self._reserved = total, reserved
        self.usable = total - (reserved or 0)
        self._limit = self._ratio * self.usable

    def _is_full(self, at: float, gap: float) -> bool:
        """Memory is exhausted at this reading. True once per episode, when it has lasted long enough to count."""
        since, pace, self._pace = self._full_since, self._pace, gap
        if since is None or gap > max(_LONGEST_GAP, 2 * pace):
            self._full_since = at
            self._counted = False
            return False
        self.exhausted_seconds += gap
        if self._counted or at - since < EPISODE:
            return False
        self._counted = True
        self.exhaustions += 1
        return True
