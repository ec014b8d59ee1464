"""Which asynchronous writes of a process no one has ordered: vector clocks over CUDA streams.

A conflict is two writes that overlap where neither happens before the other. Wherever it is not known whether two are
ordered, they are taken to be: a conflict may be missed, none is invented.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from oomcast_collectors.ebpf.child.cuda.pending import Clock, Pending, Stream, Write
from oomcast_collectors.ebpf.child.cuda.ranges import Span

LEGACY: Stream = 0
PER_THREAD = 2


@dataclass(slots=True)
class _Lane:
    """A stream from its creation to its end. blocking: it and the legacy default stream wait for each other. sure: it
    is known whether its calls are being captured into a graph; else its writes may not be writes at all."""

    number: int
    blocking: bool
    sure: bool
    turn: int = 0
    clock: Clock = field(default_factory=dict)


class Ordering:
    """One process. Each call is to be told when it has returned, and has succeeded. Not thread-safe.

    What a thread waited for is ordered before all that any thread enqueues later, as threads may tell each other.
    """

    def __init__(self, *, writes: int = 10_000, lanes: int = 256, events: int = 10_000) -> None:
        """writes, lanes, events: how many are kept; beyond, the oldest are forgotten, or all."""
        self._most_lanes, self._most_events = lanes, events
        self._pending = Pending(writes)
        self._numbers = 0
        self._lanes_since = 0
        self._lanes: dict[Stream, _Lane] = {}
        self._ended: Clock = {}
        self._events: dict[Hashable, Clock] = {}
        self._capturing: set[Stream] = set()
        self._sure = False
        self._blind = False

    @property
    def dropped(self) -> int:
        """Writes that were forgotten before it was known that they are done."""
        return self._pending.dropped

    def write(self, stream: Stream, start: int, end: int, site: Hashable) -> list[Write]:
        """Enqueues a write from start to before end; the pending ones that it conflicts with.

        One that comes after another and covers it takes its place: a third that conflicts with both has one conflict.
        """
        lane = self._now(stream)
        if self._blind or self._capturing or not lane.sure or start >= end:
            return []
        lane.turn += 1
        lane.clock[lane.number] = lane.turn
        conflicts = []
        for other in self._pending.overlapping(start, end):
            if lane.clock.get(other.lane, 0) < other.turn:
                conflicts.append(other)
            elif start <= other.span.start and other.span.end <= end:
                self._pending.remove(other)
        self._pending.add(Write(Span(start, end, self._number()), stream, lane.number, lane.turn, site))
        return conflicts

    def touch(self, stream: Stream) -> None:
        """Something else was enqueued: in the legacy default stream it orders what blocking streams do."""
        self._now(stream)

    def record(self, event: Hashable, stream: Stream) -> None:
        lane = self._now(stream)
        if not lane.sure:
            self._events.pop(event, None)
        elif self._capturing:
            # It may be part of a graph, and no record at all: then what was recorded before still holds.
            self._record(event, _joined(lane.clock, self._recorded(event)))
        else:
            self._record(event, dict(lane.clock))

    def record_all(self, event: Hashable) -> None:
        """Records all that was enqueued in any stream."""
        self._record(event, self._pending.everything())

    def wait(self, stream: Stream, event: Hashable) -> None:
        lane = self._now(stream)
        if event not in self._events:
            # Waiting for an event of a capture draws the stream into it.
            lane.sure = lane.sure and self._sure
        _join(lane.clock, self._recorded(event))

    def launch(self, graph: Hashable, stream: Stream) -> None:
        """Launches of one graph run one after the other, in whatever streams."""
        _join(self._now(stream).clock, self._recorded(graph))
        self.record(graph, stream)

    def event_destroyed(self, event: Hashable) -> None:
        self._events.pop(event, None)

    def complete_stream(self, stream: Stream) -> None:
        """A thread waited for all in the stream, or saw that it is done; which cannot be while it is captured."""
        lane = self._now(stream)
        lane.sure = True
        self._complete(lane.clock)

    def host_function(self, stream: Stream) -> None:
        """A function of the process will run behind what is in the stream, and may tell others that this is done."""
        self._complete(self._now(stream).clock)

    def complete_event(self, event: Hashable) -> None:
        self._complete(self._recorded(event))

    def complete_all(self) -> None:
        self._complete(self._pending.everything())

    def synchronized(self) -> None:
        """A thread waited for a whole context; which cannot be while a stream of it is captured."""
        self.complete_all()
        self._sure = True
        for lane in self._lanes.values():
            lane.sure = True

    def created(self, stream: Stream, *, blocking: bool) -> None:
        self._bound()
        self.destroyed(stream)
        self._lanes[stream] = self._lane(blocking=blocking, sure=True)

    def destroyed(self, stream: Stream) -> None:
        """What is in it goes on, and the default stream still waits for it."""
        lane = self._lanes.pop(stream, None)
        self._capturing.discard(stream)
        if lane is not None and lane.blocking:
            _join(self._ended, lane.clock)

    def allocated(self, start: int, end: int) -> None:
        """Memory was given out: whatever was written there before belonged to somebody else."""
        for write in self._pending.overlapping(start, end):
            self._pending.remove(write)

    def capture_begun(self, stream: Stream) -> None:
        """Until it ends no write counts, as other streams may be drawn into the capture."""
        self._capturing.add(stream)

    def capture_ended(self, stream: Stream) -> None:
        self._capturing.discard(stream)
        self._of(stream).sure = True

    def gap(self) -> None:
        """Calls were missed: nothing that was known can be relied on."""
        self._forget()
        self._lanes.clear()
        self._capturing.clear()
        self._sure = False

    def blind(self) -> None:
        """The process orders its streams by means that cannot be followed: no conflicts from now on."""
        self._forget()
        self._blind = True

    def _now(self, stream: Stream) -> _Lane:
        """The stream with all that comes before what is enqueued now."""
        self._bound()
        lane = self._of(stream)
        if stream == LEGACY:
            _join(lane.clock, self._ended)
            for other in self._lanes.values():
                if other.blocking:
                    _join(lane.clock, other.clock)
        elif lane.blocking:
            _join(lane.clock, self._of(LEGACY).clock)
        return lane

    def _of(self, stream: Stream) -> _Lane:
        lane = self._lanes.get(stream)
        if lane is None:
            # Not seen created: it may be of either kind, and blocking ones are ordered more. The legacy one cannot be
            # captured.
            lane = self._lane(blocking=True, sure=self._sure or stream == LEGACY)
            self._lanes[stream] = lane
        return lane

    def _lane(self, *, blocking: bool, sure: bool) -> _Lane:
        self._lanes_since += 1
        return _Lane(self._number(), blocking, sure)

    def _bound(self) -> None:
        """Clocks have an entry for each lane that ever wrote, also of streams that are gone."""
        if self._lanes_since < self._most_lanes:
            return
        if len(self._lanes) > self._most_lanes // 2:
            self._lanes.clear()
        self._forget()

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _recorded(self, event: Hashable) -> Clock:
        """What the event stands for. One whose record was not seen may stand for anything."""
        clock = self._events.get(event)
        return self._pending.everything() if clock is None else clock

    def _record(self, event: Hashable, clock: Clock) -> None:
        self._events.pop(event, None)
        self._events[event] = clock
        if len(self._events) > self._most_events:
            del self._events[next(iter(self._events))]

    def _complete(self, clock: Mapping[int, int]) -> None:
        for lane, turn in clock.items():
            self._pending.complete(lane, turn)

    def _forget(self) -> None:
        """Drops all writes, and with them what orders them."""
        self._pending.forget()
        for known in (self._ended, self._events):
            known.clear()
        for lane in self._lanes.values():
            lane.clock.clear()
        self._lanes_since = len(self._lanes)


def _join(clock: Clock, other: Mapping[int, int]) -> None:
    for lane, turn in other.items():
        if turn > clock.get(lane, 0):
            clock[lane] = turn


def _joined(clock: Mapping[int, int], other: Mapping[int, int]) -> Clock:
    both = dict(clock)
    _join(both, other)
    return both
