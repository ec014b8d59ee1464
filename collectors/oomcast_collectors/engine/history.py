"""The recent past of a value, in coarse steps: its memory does not depend on how often one looks."""

from collections import deque
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Entry(NamedTuple, Generic[T]):
    """at: monotonic seconds."""

    at: float
    value: T


class Past(Generic[T]):
    """Entries of the last `span` seconds, at least span / steps apart, and the newest one before those."""

    def __init__(self, span: float, steps: int = 60) -> None:
        self._span = span
        self._step = span / steps
        self._entries: deque[Entry[T]] = deque()

    def add(self, at: float, value: T) -> bool:
        """at: monotonic seconds, not before those of the last call. Says whether it became an entry."""
        entries = self._entries
        kept = not entries or at - entries[-1].at >= self._step
        if kept:
            entries.append(Entry(at, value))
        while len(entries) > 1 and entries[1].at <= at - self._span:
            entries.popleft()
        return kept

    def before(self, at: float) -> Entry[T] | None:
        """The newest entry that is not after `at`; where all are, the oldest; None without any."""
        found = self._entries[0] if self._entries else None
        for entry in self._entries:
            if entry.at > at:
                break
            found = entry
        return found

    def values(self) -> list[T]:
        """Of all entries, the oldest first."""
        return [entry.value for entry in self._entries]
