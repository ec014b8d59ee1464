"""The probe cuda_streams: contexts, streams, and writes to the same device memory that nothing orders."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from oomcast.contract import Event
from oomcast_collectors.ebpf import metrics
from oomcast_collectors.ebpf.child.cuda.calls import Call, Conflict, CudaCalls, Did
from oomcast_collectors.ebpf.child.cuda.ordering import LEGACY
from oomcast_collectors.ebpf.child.cuda.pending import Stream
from oomcast_collectors.ebpf.child.part import Process, Tools
from oomcast_collectors.ebpf.child.program import Program
from oomcast_collectors.ebpf.description import Description
from oomcast_collectors.ebpf.settings import EbpfSettings
from oomcast_collectors.ebpf.wire import Row

_MOST_SEEN, _MOST_TOLD = 200, 1000
"""Pairs of call sites of one process that are given names, and of all that are told."""

_LOST = ("calls", "in_flight")
"""What the slots of the program's table `lost` count."""


def adapt(description: Description, text: str, settings: EbpfSettings) -> tuple[Description, str, Mapping[str, int]]:
    """What the calls do are constants of the program."""
    return description, text, {did.name: did.value for did in Did}


class _Followed:
    """points: in how many places the process was probed when that was last looked at. since: nanoseconds of the
    monotonic clock; calls before were seen while some were probed and others not yet. seen: conflicting sites."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.calls = CudaCalls()
        self.points = 0
        self.since = 0
        self.seen: set[object] = set()


class CudaStreamsPart:
    """Conflicts are counted each time, and told once for each two call sites."""

    def __init__(self, program: Program, tools: Tools) -> None:
        self._program = program
        self._tools = tools
        self._followed: dict[int, _Followed] = {}
        self._missed = 0
        self._dropped = 0
        self._conflicts: Counter[str] = Counter()
        self._told: set[object] = set()
        tools.events.open(program, "calls", self._take)
        tools.attacher.switch(program, "main", on=True)

    def joined(self, process: Process) -> None:
        self._followed[process.pid] = _Followed(process)

    def left(self, process: Process) -> None:
        followed = self._followed.pop(process.pid, None)
        if followed is not None:
            self._dropped += followed.calls.ordering.dropped

    def tick(self, now: float) -> None:
        for followed in self._followed.values():
            self._look(followed)

    def rows(self) -> Iterator[Row]:
        contexts: Counter[str] = Counter()
        streams: Counter[str] = Counter()
        for followed in self._followed.values():
            name = followed.process.name
            if followed.points:
                self._conflicts[name] += 0
            if (count := followed.calls.contexts) is not None:
                contexts[name] += count
            if (count := followed.calls.streams) is not None:
                streams[name] += count
        for metric, values in (
            (metrics.CONTEXTS, contexts),
            (metrics.STREAMS, streams),
            (metrics.CONFLICTS, self._conflicts),
        ):
            for name, value in values.items():
                yield Row(metric.name, (name,), value)
        for key, count in self._program.rows("lost"):
            yield Row(metrics.PROBE_LOST.name, (self._program.name, _LOST[key.value]), count)
        dropped = self._dropped + sum(followed.calls.ordering.dropped for followed in self._followed.values())
        yield Row(metrics.PROBE_LOST.name, (self._program.name, "writes"), dropped)

    def close(self) -> None:
        return

    def _look(self, followed: _Followed) -> None:
        points = self._tools.attacher.points(self._program, "main", followed.process.pid)
        if points > followed.points:
            followed.since = time.monotonic_ns()
            followed.calls.ordering.gap()
        followed.points = points

    def _take(self, item: Any) -> None:
        if item.missed != self._missed:
            self._missed = item.missed
            for followed in self._followed.values():
                followed.calls.gap()
        found = self._followed.get(item.pid)
        if found is None:
            return
        self._look(found)
        call = _call(item)
        if call.did in (Did.WRITE, Did.WRITE_SOMEWHERE) and item.time < found.since:
            call = call._replace(did=Did.TOUCHED)
        for conflict in found.calls.take(call):
            self._conflicts[found.process.name] += 1
            if conflict.sites not in found.seen and len(found.seen) < _MOST_SEEN:
                found.seen.add(conflict.sites)
                self._tell(found.process, conflict)

    def _tell(self, process: Process, conflict: Conflict) -> None:
        """Unless it was told already: the same code in another process is the same site."""
        # Libraries may have been loaded since.
        self._tools.symbols.prime(process.pid)
        sites = [self._site(process.pid, *site) for site in conflict.sites]
        named = (process.name, *(tuple(site) for site in sites))
        if named in self._told or len(self._told) >= _MOST_TOLD:
            return
        self._told.add(named)
        self._tools.tell(self._event(process, conflict, sites))

    def _event(self, process: Process, conflict: Conflict, sites: list[list[str]]) -> Event:
        fields: dict[str, str | int | float] = {
            "process": process.name,
            "pid": process.pid,
            "address": f"{conflict.start:#x}",
            "bytes": conflict.end - conflict.start,
        }
        for which, stream, site in zip(("first", "second"), conflict.streams, sites, strict=True):
            fields |= {
                f"{which}_function": site[0],
                f"{which}_stream": _name(stream),
                f"{which}_stack": "; ".join(site[1:]),
            }
        clock = self._tools.clock
        summary = (
            f"{process.name} (pid {process.pid}): {sites[0][0]} and {sites[1][0]} write to the same device "
            f"memory ({conflict.end - conflict.start} B) in two streams that nothing orders"
        )
        return Event("cuda_stream_conflict", clock.time(), clock.monotonic(), summary, fields)

    def _site(self, pid: int, function: int, stack: tuple[int, ...]) -> list[str]:
        """The function's name, and the frames of those that called it."""
        symbols = self._tools.symbols
        called = symbols.frames([function], pid)
        # The innermost address is one to return to as well: what it is in is one byte earlier.
        frames = symbols.frames((stack[0] - 1, *stack[1:]), pid) if stack else []
        return [called[0].function if called else "[unknown]", *map(str, frames)]


def _call(item: Any) -> Call:
    depth = max(item.depth, 0) // 8
    stack = tuple(item.stack[:depth]) if depth else ()
    fields = (item.what, item.tid, item.stream, item.handle, item.address, item.bytes, item.function)
    return Call(*fields, stack)


def _name(stream: Stream) -> str:
    if stream == LEGACY:
        return "legacy default stream"
    return f"default stream of thread {stream[1]}" if isinstance(stream, tuple) else f"{stream:#x}"
