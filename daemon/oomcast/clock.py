"""Time as an argument, so that nothing that measures time has to wait for it in a test."""

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time names a moment, monotonic time measures a distance; never the one for the other."""

    def time(self) -> float:
        """Seconds since the epoch, UTC; may jump."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment; never goes back."""


class SystemClock:
    """The machine's own clocks."""

    def time(self) -> float:
        return time.time()  # noqa: TID251 - the one place that may

    def monotonic(self) -> float:
        return time.monotonic()
