"""The writes of a process that may not be done yet, by where they write to, by their stream and by their age."""

from collections.abc import Hashable, Iterator
from typing import NamedTuple

from oomcast_collectors.ebpf.child.cuda.ranges import Ranges, Span

Stream = int | tuple[int, int]
"""A handle, or (PER_THREAD, thread id)."""

Clock = dict[int, int]
"""How many writes of each lane come before, by the lane's number."""


class Write(NamedTuple):
    """span: what it writes to. lane, turn: the how manieth write of which life of the stream. site: as it was given."""

    span: Span
    stream: Stream
    lane: int
    turn: int
    site: Hashable


class Pending:
    """The latest `most` writes. dropped: those that had to make room or were forgotten."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.dropped = 0
        self._spans = Ranges()
        self._writes: dict[int, Write] = {}
        self._by_lane: dict[int, dict[int, Write]] = {}

    def add(self, write: Write) -> None:
        """Its span's number has to be higher than all before, its turn the highest of its lane."""
        self._writes[write.span.number] = write
        self._by_lane.setdefault(write.lane, {})[write.turn] = write
        self._spans.add(write.span)
        if len(self._writes) > self._most:
            self.remove(next(iter(self._writes.values())))
            self.dropped += 1

    def remove(self, write: Write) -> None:
        """Raises KeyError when it is not there."""
        del self._writes[write.span.number]
        self._spans.remove(write.span)
        of_lane = self._by_lane[write.lane]
        del of_lane[write.turn]
        if not of_lane:
            del self._by_lane[write.lane]

    def overlapping(self, start: int, end: int) -> Iterator[Write]:
        """Those that have an address in common with those from start to before end; may be removed meanwhile."""
        return (self._writes[span.number] for span in self._spans.overlapping(start, end))

    def complete(self, lane: int, turn: int) -> None:
        """Removes the first `turn` writes of a lane."""
        writes = self._by_lane.get(lane, {})
        while writes and (first := next(iter(writes))) <= turn:
            self.remove(writes[first])

    def everything(self) -> Clock:
        """What comes before a moment that comes after all of them."""
        return {lane: next(reversed(writes)) for lane, writes in self._by_lane.items()}

    def forget(self) -> None:
        self.dropped += len(self._writes)
        self._writes.clear()
        self._by_lane.clear()
        self._spans.clear()
