"""The processes that hold memory of one GPU over time: who came, who went, and which have series of their own."""

import heapq
from collections.abc import Callable, Iterable, Mapping, Set

from oomcast.metric import Series
from oomcast_collectors.gpu.driver import ProcessMemory
from oomcast_collectors.gpu.growth import total
from oomcast_collectors.gpu.owners import Process

_FOLLOWED = 256
"""Most processes of a GPU that are looked up: a context alone takes hundreds of megabytes."""

_MARGIN = 64 << 20
"""Bytes by which another has to be ahead to take the place of one that is shown; less than that is no growth either."""

_MARGIN_RATIO = 0.1


class Holder:
    """A process on one GPU. since: monotonic seconds of the first look that had it. used: bytes, None where the driver
    does not tell. largest: the most that was seen, bytes."""

    __slots__ = ("_series", "largest", "process", "since", "used")

    def __init__(self, process: Process, since: float) -> None:
        self.process = process
        self.since = since
        self.used: int | None = None
        self.largest = 0
        self._series: tuple[Series, ...] = ()

    def see(self, process: Process, used: int | None) -> None:
        """Another look at the same process, whose name may have changed or become known."""
        if process != self.process:
            self.process = process
            self._series = ()
        self.used = used
        self.largest = max(self.largest, used or 0)

    def series(self, make: Callable[[Process], tuple[Series, ...]]) -> tuple[Series, ...]:
        """What `make` makes of the process, made once."""
        self._series = self._series or make(self.process)
        return self._series


class Holders:
    """Those of one GPU. shown: those with series of their own, at most twice `count`."""

    def __init__(self, count: int) -> None:
        self.all: Mapping[int, Holder] = {}
        self.shown: Set[Holder] = frozenset()
        self._count = count
        self._largest: Set[Holder] = frozenset()
        self._growing: Set[Holder] = frozenset()

    def renew(self, sums: Mapping[int, int | None], process: Callable[[int], Process], at: float) -> list[Holder]:
        """Takes a new list; returns those that went, as they were last. sums: bytes by pid."""
        before, now = self.all, {}
        for pid in heapq.nlargest(_FOLLOWED, sums, key=lambda pid: sums[pid] or 0):
            found = process(pid)
            holder = before.get(pid)
            if holder is None or not _same(holder.process, found):
                holder = Holder(found, at)
            holder.see(found, sums[pid])
            now[pid] = holder
        self.all = now
        return [old for pid, old in before.items() if now.get(pid) is not old and (pid in now or pid not in sums)]

    def choose(self, grown: Mapping[Holder, int]) -> None:
        """Chooses whom to show: the largest, and those that grew the most. Who is shown stays until another is clearly
        ahead, however long ago it grew, for each change is a series that begins and one that ends."""
        sizes = {holder: holder.used for holder in self.all.values() if holder.used is not None}
        rises = {one: grown.get(one, 0) for one in sizes if grown.get(one, 0) >= _MARGIN or one in self._growing}
        self._largest = _top(self._count, sizes, self._largest)
        self._growing = _top(self._count, rises, self._growing)
        self.shown = self._largest | self._growing


def sums_by_pid(processes: Iterable[ProcessMemory]) -> dict[int, int | None]:
    """The memory of each pid, which may be in several instances of a GPU: None where any of it is not told."""
    parts: dict[int, list[int | None]] = {}
    for entry in processes:
        parts.setdefault(entry.pid, []).append(entry.used)
    return {pid: total(values) for pid, values in parts.items()}


def _same(before: Process, now: Process) -> bool:
    # What was not found in /proc may be there now. The reverse cannot be: it is remembered.
    return before.start in (None, now.start)


def _top(count: int, values: Mapping[Holder, int], incumbents: Set[Holder]) -> Set[Holder]:
    def rank(holder: Holder) -> tuple[float, int]:
        value = max(values[holder], 0)
        bonus = max(_MARGIN, _MARGIN_RATIO * value) if holder in incumbents else 0
        return value + bonus, -holder.process.pid

    return frozenset(heapq.nlargest(count, values, key=rank))
