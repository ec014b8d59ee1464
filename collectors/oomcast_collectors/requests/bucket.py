"""How many messages a second are taken."""


class Bucket:
    """A token bucket: `rate` tokens a second, and at most as many as a second brings."""

    def __init__(self, rate: int, now: float) -> None:
        self._rate = rate
        self._tokens = float(rate)
        self._at = now

    def take(self, now: float) -> bool:
        """Whether there was a token at `now`, in monotonic seconds."""
        self._tokens = min(self._tokens + (now - self._at) * self._rate, self._rate)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
