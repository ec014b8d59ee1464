"""Counters that outlive the cgroup they counted."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from oomcast.clock import Clock
from oomcast.metric import Sample

_MOST_QUIET, _MOST_KILLED = 200, 1000
"""Kept of cgroups without and with an OOM kill: fifty short-lived cgroups a second are normal somewhere."""


class Count:
    """One of the kernel's counters, made to never go back.

    It starts anew with a cgroup made anew, and before Linux 5.2 a parent's fell when a child was removed; `total` then
    goes on from where it was. seen: whether all that it starts with came about under the daemon's eyes.
    """

    __slots__ = ("_base", "_last", "_reported")

    def __init__(self, *, seen: bool) -> None:
        self._base = 0
        self._last: int | None = None
        self._reported = 0 if seen else None

    @property
    def total(self) -> int | None:
        """None before the kernel gave any number."""
        return None if self._last is None else self._base + self._last

    def see(self, value: int | None) -> None:
        """The kernel's number of this moment, None if it gives none."""
        if value is not None:
            if self._last is not None and value < self._last:
                self._base += self._last - value
            self._last = value

    def restart(self) -> None:
        """Another cgroup took the place of this one: its number starts at 0."""
        self._base = self.total or 0
        self._last = None if self._last is None else 0

    def rise(self) -> int:
        """By how much it rose since the last call; what was there before the daemon is history."""
        total = self.total
        if total is None:
            return 0
        before, self._reported = self._reported, total
        return 0 if before is None else total - before


class Counts(NamedTuple):
    kills: Count
    majfaults: Count


class _Tombstone(NamedTuple):
    until: float
    inode: int
    counts: Counts
    samples: Sequence[Sample]


class Tombstones:
    """What the cgroups that went away had counted, by path, each for `keep` seconds.

    A flood of quiet cgroups pushes out older quiet ones, never a kill.
    """

    def __init__(self, clock: Clock, keep: float) -> None:
        self._clock = clock
        self._keep = keep
        self._quiet: dict[str, _Tombstone] = {}
        self._killed: dict[str, _Tombstone] = {}

    def bury(self, path: str, inode: int, counts: Counts, samples: Sequence[Sample]) -> None:
        """samples: of its counters; none of a cgroup that never counted."""
        if self._keep <= 0 or not samples:
            return
        stones, most = (self._killed, _MOST_KILLED) if counts.kills.total else (self._quiet, _MOST_QUIET)
        stones[path] = _Tombstone(self._clock.monotonic() + self._keep, inode, counts, samples)
        if len(stones) > most:
            del stones[next(iter(stones))]

    def claim(self, path: str, inode: int) -> Counts | None:
        """The counts with which the cgroup that is there now goes on; None if none was there."""
        stone = self._quiet.pop(path, None) or self._killed.pop(path, None)
        if stone is None:
            return None
        # The very same cgroup comes back after it was left out for a while: max_cgroups, a hierarchy mounted anew.
        if stone.inode != inode:
            for count in stone.counts:
                count.restart()
        return stone.counts

    def samples(self) -> Iterator[Sample]:
        now = self._clock.monotonic()
        for stones in (self._quiet, self._killed):
            while stones and (oldest := next(iter(stones))) and stones[oldest].until <= now:
                del stones[oldest]
            for stone in stones.values():
                yield from stone.samples
