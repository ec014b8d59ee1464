"""What the calls of one process did: its contexts, its streams, its memory, and which of its writes conflict."""

from collections import Counter
from enum import IntEnum
from typing import NamedTuple

from oomcast_collectors.ebpf.child.cuda.device_memory import DeviceMemory
from oomcast_collectors.ebpf.child.cuda.ordering import PER_THREAD, Ordering
from oomcast_collectors.ebpf.child.cuda.pending import Stream, Write

_MOST_HANDLES = 10_000


class Did(IntEnum):
    """What a call did; constants of the program."""

    WRITE = 1
    WRITE_SOMEWHERE = 2
    TOUCHED = 3
    STREAM_COMPLETE = 4
    EVENT_COMPLETE = 5
    CONTEXT_COMPLETE = 6
    ALL_COMPLETE = 7
    HOST_FUNCTION = 8
    RECORDED = 9
    STREAM_WAITS = 10
    CONTEXT_RECORDED = 11
    CONTEXT_WAITS = 12
    EVENT_DESTROYED = 13
    GRAPH_LAUNCHED = 14
    CAPTURE_BEGUN = 15
    CAPTURE_ENDED = 16
    CONTEXT_MADE = 17
    CONTEXT_DESTROYED = 18
    PRIMARY_RETAINED = 19
    PRIMARY_RELEASED = 20
    PRIMARY_RESET = 21
    STREAM_MADE = 22
    STREAM_DESTROYED = 23
    ALLOCATED = 24
    ALLOCATED_MANAGED = 25
    ALLOCATED_IN_STREAM = 26
    MAPPED = 27
    FREED = 28
    FREED_IN_STREAM = 29
    NOT_FOLLOWED = 30


class Call(NamedTuple):
    """stream: as the program tells it, 0 the legacy default stream. handle: of an event, graph, context or new stream,
    or a device's number. bytes: from address on; of a new stream, whether it is a blocking one. function, stack:
    addresses of code, of the function and of those that called it."""

    did: int
    tid: int = 0
    stream: int = 0
    handle: int = 0
    address: int = 0
    bytes: int = 0
    function: int = 0
    stack: tuple[int, ...] = ()

    @property
    def of(self) -> Stream:
        return (PER_THREAD, self.tid) if self.stream == PER_THREAD else self.stream


class Conflict(NamedTuple):
    """start, end: the addresses that both write to. The sites are (function, stack)."""

    start: int
    end: int
    streams: tuple[Stream, Stream]
    sites: tuple[tuple[int, tuple[int, ...]], tuple[int, tuple[int, ...]]]


class CudaCalls:
    """Not thread-safe. ordering: of the process' streams."""

    def __init__(self) -> None:
        self.ordering = Ordering()
        self._memory = DeviceMemory()
        self._contexts: set[int] = set()
        self._primaries: Counter[int] = Counter()
        self._streams: set[int] = set()
        self._knows_contexts = self._knows_streams = False

    @property
    def contexts(self) -> int | None:
        """Those that were seen made and not destroyed; None before the first was seen."""
        return len(self._contexts) + len(self._primaries) if self._knows_contexts else None

    @property
    def streams(self) -> int | None:
        return len(self._streams) if self._knows_streams else None

    def gap(self) -> None:
        """Calls were missed."""
        self.ordering.gap()
        self._memory.clear()
        self._contexts.clear()
        self._primaries.clear()
        self._streams.clear()
        self._knows_contexts = self._knows_streams = False

    def take(self, call: Call) -> list[Conflict]:
        """Takes the next call in. Raises ValueError on one that does nothing known."""
        did = Did(call.did)
        if did in (Did.WRITE, Did.WRITE_SOMEWHERE):
            return self._write(call, did)
        self._count(did, call)
        self._allocate(did, call)
        self._order(did, call)
        return []

    def _write(self, call: Call, did: Did) -> list[Conflict]:
        start, end = call.address, call.address + call.bytes
        device = self._memory.is_device(start)
        # Copies in unified memory are synchronous, and what is not known to be the device's may be the host's.
        if device is False or (did is Did.WRITE_SOMEWHERE and not device):
            self.ordering.touch(call.of)
            return []
        others = self.ordering.write(call.of, start, end, (call.function, call.stack))
        return [_conflict(other, call) for other in others]

    def _count(self, did: Did, call: Call) -> None:
        match did:
            case Did.CONTEXT_MADE:
                self._contexts.add(call.handle)
            case Did.PRIMARY_RETAINED:
                self._primaries[call.handle] += 1
            case Did.CONTEXT_DESTROYED:
                self._contexts.discard(call.handle)
            case Did.PRIMARY_RELEASED if self._primaries[call.handle] > 1:
                self._primaries[call.handle] -= 1
            case Did.PRIMARY_RELEASED | Did.PRIMARY_RESET:
                del self._primaries[call.handle]
            case Did.STREAM_MADE:
                self._streams.add(call.handle)
            case Did.STREAM_DESTROYED:
                self._streams.discard(call.stream)
        self._knows_contexts |= did in (Did.CONTEXT_MADE, Did.PRIMARY_RETAINED)
        self._knows_streams |= did is Did.STREAM_MADE
        if did in (Did.CONTEXT_DESTROYED, Did.PRIMARY_RELEASED, Did.PRIMARY_RESET) and not self.contexts:
            self._streams.clear()
        if len(self._contexts) + len(self._primaries) + len(self._streams) > _MOST_HANDLES:
            self.gap()

    def _allocate(self, did: Did, call: Call) -> None:
        match did:
            case Did.ALLOCATED | Did.ALLOCATED_MANAGED | Did.ALLOCATED_IN_STREAM:
                self._memory.allocated(call.address, call.bytes, device=did is not Did.ALLOCATED_MANAGED)
            case Did.FREED | Did.FREED_IN_STREAM:
                self._memory.freed(call.address)

    def _order(self, did: Did, call: Call) -> None:
        """Whatever may wait for the whole device is taken to do so."""
        order = self.ordering
        match did:
            case Did.TOUCHED:
                order.touch(call.of)
            case Did.STREAM_COMPLETE:
                order.complete_stream(call.of)
            case Did.HOST_FUNCTION:
                order.host_function(call.of)
            case Did.EVENT_COMPLETE | Did.CONTEXT_WAITS:
                order.complete_event(call.handle)
            case Did.CONTEXT_COMPLETE:
                order.synchronized()
            case Did.RECORDED:
                order.record(call.handle, call.of)
            case Did.STREAM_WAITS:
                order.wait(call.of, call.handle)
            case Did.CONTEXT_RECORDED:
                order.record_all(call.handle)
            case Did.EVENT_DESTROYED:
                order.event_destroyed(call.handle)
            case Did.GRAPH_LAUNCHED:
                order.launch(call.handle, call.of)
            case Did.CAPTURE_BEGUN:
                order.capture_begun(call.of)
            case Did.CAPTURE_ENDED:
                order.capture_ended(call.of)
            case Did.STREAM_MADE:
                order.created(call.handle, blocking=bool(call.bytes))
            case Did.STREAM_DESTROYED:
                order.destroyed(call.of)
            case Did.ALLOCATED_IN_STREAM:
                order.touch(call.of)
                order.allocated(call.address, call.address + call.bytes)
            case Did.MAPPED:
                order.allocated(call.address, call.address + call.bytes)
            case Did.FREED_IN_STREAM:
                order.touch(call.of)
            case Did.NOT_FOLLOWED:
                order.blind()
            case Did.CONTEXT_MADE | Did.PRIMARY_RETAINED:
                return
            case _:
                order.complete_all()


def _conflict(first: Write, second: Call) -> Conflict:
    site = first.site
    assert isinstance(site, tuple)
    end = min(first.span.end, second.address + second.bytes)
    streams, sites = (first.stream, second.of), (site, (second.function, second.stack))
    return Conflict(max(first.span.start, second.address), end, streams, sites)
