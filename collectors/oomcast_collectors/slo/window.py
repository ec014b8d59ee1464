"""Sums over a sliding window, in coarse steps: their memory does not depend on how much is added."""

from array import array
from collections import deque

_STEPS = 60


class Window:
    """totals: sums since the beginning, which the owner adds to, each time after `step`.

    It reaches back `span` seconds and at most a step more.
    """

    __slots__ = ("_due", "_entries", "_span", "totals")

    def __init__(self, span: float, size: int) -> None:
        self.totals = [0.0] * size
        self._span = span
        self._due = float("-inf")
        self._entries: deque[tuple[float, array[float]]] = deque()

    def step(self, at: float) -> None:
        """at: monotonic seconds, not before those of the last call."""
        if at >= self._due:
            # What was added came before it was due, however long ago that was.
            self._entries.append((self._due, array("d", self.totals)))
            self._due = at + self._span / _STEPS
            self._forget(at)

    def recent(self, at: float) -> list[float]:
        """What was added to each of the totals in the window that ends at `at`."""
        self.step(at)
        self._forget(at)
        return [now - before for now, before in zip(self.totals, self._entries[0][1], strict=True)]

    def _forget(self, at: float) -> None:
        while len(self._entries) > 1 and self._entries[1][0] <= at - self._span:
            self._entries.popleft()
