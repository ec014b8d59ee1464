"""One watched cgroup: its open files, what it said last, and the facts made of that."""

import math
import os
from collections.abc import Sequence
from pathlib import Path

from oomcast.contract import Level
from oomcast.metric import Sample, Series
from oomcast_collectors.cgroup import metrics
from oomcast_collectors.cgroup.files import GONE, Budget, File
from oomcast_collectors.cgroup.version import Reading, Version

_CHARGE_BATCH = 64
"""Pages that each CPU may have charged ahead, which usage then reads too high (MEMCG_CHARGE_BATCH)."""

_LEAST_NOISE = 4 << 20


class Gone(Exception):
    """The cgroup was removed, or replaced by another one at the same path."""


class Past:
    """What a path counted before: OOM kills and major faults of cgroups that were there earlier."""

    __slots__ = ("kills", "pgmajfault")

    def __init__(self, kills: int = 0, pgmajfault: int = 0) -> None:
        self.kills = kills
        self.pgmajfault = pgmajfault


class Node:
    """A cgroup at `directory`, called `path` on its series. above: its parent, if that is not the root.

    inode: 0 takes whichever cgroup is there now. shown: whether it has series of its own.
    """

    __slots__ = (
        "_files",
        "_limit_above",
        "_series",
        "_texts",
        "above",
        "directory",
        "effective",
        "fresh",
        "full",
        "info",
        "inode",
        "known_kills",
        "level",
        "past",
        "path",
        "reading",
        "samples",
        "shown",
        "version",
    )

    def __init__(
        self,
        directory: str,
        path: str,
        inode: int,
        version: Version,
        budget: Budget,
        above: "Node | None",
        past: Past,
        *,
        shown: bool = True,
    ) -> None:
        self.directory = directory
        self.path = path
        self.inode = inode
        self.version = version
        self.shown = shown
        self.above = above
        self.past = past
        self.reading: Reading | None = None
        self.effective = math.inf
        self.level: Level | None = None
        self.samples: list[Sample] = []
        self.info: Sample | None = None
        self.full = False
        """Whether it has the full set of series."""
        self.known_kills: int | None = None
        """The kills that were reported already; None before the first reading."""
        self.fresh = True
        """Whether the last read() found anything new."""
        self._files: list[File | None] = [File(directory, name, budget, size) for name, size in version.files]
        self._texts: Sequence[bytes] = ()
        self._limit_above = math.inf
        self._series = _series(path, version.kills_scope)

    def read(self, swap_free: int) -> None:
        """Reads the core files, and renews reading, samples and level if anything changed.

        swap_free: bytes of swap left on the host. Raises Gone, OSError or Malformed.
        """
        texts = self.texts()
        limit_above = self.above.effective if self.above else math.inf
        self.fresh = texts != self._texts or limit_above != self._limit_above
        if self.fresh:
            reading = self._held(self.version.decode(texts))
            self.effective = min(
                limit_above, *(x for x in (reading.limit, reading.effective) if x is not None), math.inf
            )
            self.reading = reading
            self._texts, self._limit_above = texts, limit_above
            self._renew(reading)
        if self.level is not None and swap_free:
            self.level = self.levelled(swap_free)

    def texts(self) -> list[bytes]:
        """The core files' texts; empty for one that this kernel does not have. Raises Gone or OSError."""
        texts = []
        for i, file in enumerate(self._files):
            try:
                texts.append(file.read() if file else b"")
            except OSError as error:
                if error.errno not in GONE:
                    raise
                self._still_there()
                self._files[i] = None  # the directory stands, so the kernel has no such file
                texts.append(b"")
        return texts

    def levelled(self, swap_free: int, reading: Reading | None = None) -> Level | None:
        """The level of the cgroup's own limit; None without a limit. Swap that is left counts as room."""
        now = reading or self.reading
        if now is None or now.limit is None or now.unreclaimable is None:
            return None
        outer = self.above.limited() if self.above else None
        swapped = now.swap_used or 0
        room = swapped + swap_free if now.swap_used is not None else 0
        if now.swap_limit is not None:
            room = min(room, now.swap_limit)
        return Level(
            "cgroup_memory",
            (("cgroup", self.path),),
            now.unreclaimable + swapped,
            now.limit + room,
            self.inode,
            outer.path if outer else "",
            noise(now.limit),
        )

    @property
    def stat_text(self) -> bytes:
        """memory.stat as of the last read()."""
        return self._texts[1] if self._texts else b""

    @property
    def events_text(self) -> bytes:
        """memory.events (v2) or memory.oom_control (v1) as of the last read()."""
        return self._texts[2] if self._texts else b""

    def limited(self) -> "Node | None":
        """This cgroup or the nearest ancestor with a limit of its own."""
        node: Node | None = self
        while node is not None and (node.reading is None or node.reading.limit is None):
            node = node.above
        return node

    def counted(self) -> list[Sample]:
        """The counters that outlive the cgroup."""
        kills, majfaults = self.totals()
        found = []
        if kills is not None:
            found.append(Sample(self._series[3], kills))
        if majfaults is not None:
            found.append(Sample(self._series[4], majfaults))
        return found

    def totals(self) -> tuple[int | None, int | None]:
        """OOM kills and major faults at this path, those of earlier cgroups included."""
        reading = self.reading
        if reading is None:
            return None, None
        return (
            None if reading.kills is None else reading.kills + self.past.kills,
            None if reading.pgmajfault is None else reading.pgmajfault + self.past.pgmajfault,
        )

    def close(self) -> None:
        for file in self._files:
            if file:
                file.close()

    def _held(self, now: Reading) -> Reading:
        """Counters of a parent went back on some kernels when a child died (before 5.2): what was counted stays."""
        last = self.reading
        if last is not None:
            self.past.kills += max((last.kills or 0) - (now.kills or 0), 0)
            self.past.pgmajfault += max((last.pgmajfault or 0) - (now.pgmajfault or 0), 0)
        return now

    def _renew(self, reading: Reading) -> None:
        used, limit, unreclaimable, *_ = self._series
        samples = self.samples = self.counted()
        if reading.used is not None:
            samples.append(Sample(used, reading.used))
        if reading.unreclaimable is not None:
            samples.append(Sample(unreclaimable, reading.unreclaimable))
        if self.effective != math.inf:
            samples.append(Sample(limit, self.effective))
        self.level = self.levelled(0)

    def _still_there(self) -> None:
        try:
            there = Path(self.directory).stat().st_ino
        except OSError as error:
            raise Gone(self.path) from error
        if self.inode and there != self.inode:
            raise Gone(self.path)


def noise(limit: int) -> float:
    """Bytes below which a rise of memory is no trend, for a cgroup of this limit."""
    pages = _CHARGE_BATCH * os.sysconf("SC_PAGE_SIZE") * (os.cpu_count() or 1)
    return max(pages, _LEAST_NOISE, 0.001 * limit)


def _series(path: str, scope: str) -> tuple[Series, ...]:
    return (
        metrics.USED.series(path),
        metrics.LIMIT.series(path),
        metrics.UNRECLAIMABLE.series(path),
        metrics.OOM_KILLS.series(path, scope),
        metrics.PGMAJFAULT.series(path),
    )
