"""When a rise of GPU memory is a model that is being loaded, which must not look like the way to exhaustion."""

_EMPTY = 0.05
"""Share of usable memory below which a GPU is empty: contexts and libraries, no model."""


class Loading:
    """An engine loads its weights and reserves its pool right after it came, at gigabytes a second, and then stands.

    grace: seconds after which a rise that has not come to rest counts as a rise nevertheless.
    """

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._began: float | None = None
        self._empty = False

    def look(self, now: float, share: float, newest: float | None, stands_since: float | None) -> bool:
        """Whether memory is empty or being loaded. To be called about once a second; monotonic times.

        share: used of usable memory. newest: when the newest process came that holds a real part of it. stands_since:
        when memory came to rest the last time.
        """
        if share < _EMPTY:
            self._empty = True
            self._began = None
            return True
        if self._empty:
            self._empty = False
            self._began = now
        if newest is not None and (self._began is None or newest > self._began):
            self._began = newest
        began = self._began
        if began is None or now - began >= self._grace:
            return False
        return stands_since is None or stands_since < began
