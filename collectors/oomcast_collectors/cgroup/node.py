"""One watched cgroup: its open files, what it said last, and the facts made of that."""

import functools
import math
import os
from collections.abc import Sequence

from oomcast.contract import Level
from oomcast.metric import Sample
from oomcast_collectors.cgroup import metrics
from oomcast_collectors.cgroup.files import GONE, UNSUPPORTED, Budget, File, read_kept
from oomcast_collectors.cgroup.stat import Malformed
from oomcast_collectors.cgroup.tombstones import Counts
from oomcast_collectors.cgroup.version import Reading, Version

_CHARGE_BATCH = 64
"""Pages that each CPU may have charged ahead, which usage then reads too high (MEMCG_CHARGE_BATCH)."""

_LEAST_NOISE = 4 << 20


class Gone(Exception):
    """The cgroup was removed, or replaced by another one at the same path."""


class Node:
    """A cgroup at `directory`, called `path` on its series. shown: whether it has series of its own.

    above: its parent, if that is watched too; it is to be read first. limited: this cgroup or the nearest one around
    it that has a limit of its own. fresh: whether the last read() found anything new. full: whether it has the full
    set of series.
    """

    __slots__ = (
        "_counted", "_fds", "_files", "_labels", "_mark", "_outer", "_series", "_sizes", "_swap_left", "_texts",
        "above", "counts", "directory", "effective", "fresh", "full", "info", "inode", "level", "limited", "path",
        "reading", "samples", "shown", "version",
    )  # fmt: skip

    def __init__(
        self, directory: str, path: str, inode: int, version: Version, budget: Budget, counts: Counts, *, shown: bool
    ) -> None:
        self.directory = directory
        self.path = path
        self.inode = inode
        self.version = version
        self.counts = counts
        self.shown = shown
        self.above: Node | None = None
        self.limited: Node | None = None
        self.reading: Reading | None = None
        self.effective = math.inf
        self.level: Level | None = None
        self.samples: list[Sample] = []
        self.info: Sample | None = None
        self.full = False
        self.fresh = False
        self._files = [File(directory, name, budget, size) for name, size in version.files]
        self._fds: Sequence[int] = ()
        self._sizes: Sequence[int] = ()
        self._texts: Sequence[bytes] = ()
        self._mark: int | None = None
        """Stands for the texts last read: kept whole, those of thousands of cgroups are megabytes."""
        self._outer: tuple[float, Node | None] = (math.inf, None)
        self._swap_left = 0
        self._labels = (("cgroup", path),)
        self._counted: list[Sample] = []
        values = (path,)
        self._series = (
            metrics.USED.series_of(values),
            metrics.LIMIT.series_of(values),
            metrics.UNRECLAIMABLE.series_of(values),
            metrics.OOM_KILLS.series(path, version.kills_scope),
            metrics.PGMAJFAULT.series_of(values),
        )

    def read(self, swap_left: int) -> None:
        """Reads the core files, and renews what is made of them if anything changed.

        swap_left: bytes of swap left on the host. Raises Gone, OSError or Malformed.
        """
        texts = self.texts()
        above = self.above
        outer = (above.effective, above.limited) if above else (math.inf, None)
        mark = hash(tuple(texts))
        self.fresh = mark != self._mark or outer != self._outer
        if self.fresh:
            self._renew(self.version.decode(texts), outer)
            self._mark, self._outer = mark, outer
        self._texts = texts if self.full else ()
        if self.fresh or swap_left != self._swap_left:
            self._swap_left = swap_left
            self.level = self.levelled(self.reading)

    def texts(self) -> list[bytes]:
        """The core files' texts; empty for one that this kernel does not have. Raises Gone, OSError or Malformed."""
        if self._fds:
            texts = read_kept(self._fds, self._sizes)
            if texts is not None:
                return texts
        return self._each_text()

    def _each_text(self) -> list[bytes]:
        self._fds = ()
        texts = []
        missing = False
        for file in self._files:
            try:
                text = file.read()
                if not text:
                    raise Malformed(f"{file.path} is empty")
            except OSError as error:
                if error.errno not in GONE + UNSUPPORTED:
                    raise
                file.close()  # the controller may come back, which makes new files
                missing = True
                text = b""
            texts.append(text)
        # Files opened by their path may have been those of another cgroup that took the place of this one.
        kept = all(file.fd >= 0 for file in self._files)
        if missing or self._mark is None or not kept:
            self._still_there()
        if kept:
            self._fds = tuple(file.fd for file in self._files)
            self._sizes = tuple(file.size for file in self._files)
        return texts

    def levelled(self, now: Reading | None) -> Level | None:
        """The level of the cgroup's own limit; None without a limit. Swap that is left counts as room."""
        if now is None or now.limit is None or now.unreclaimable is None:
            return None
        outer = self._outer[1]
        swapped = now.swap_used or 0
        room = swapped + self._swap_left if now.swap_used is not None else 0
        if now.swap_limit is not None:
            room = min(room, now.swap_limit)
        return Level(
            "cgroup_memory",
            self._labels,
            now.unreclaimable + swapped,
            now.limit + room,
            self.inode,
            outer.path if outer else "",
            noise(now.limit),
        )

    @property
    def stat_text(self) -> bytes:
        """memory.stat as of the last read(), if the node is full."""
        return self._texts[1] if self._texts else b""

    @property
    def events_text(self) -> bytes:
        """memory.events (v2) or memory.oom_control (v1) as of the last read(), if full."""
        return self._texts[2] if self._texts else b""

    def counted(self) -> list[Sample]:
        """The counters, which outlive the cgroup."""
        totals = [count.total for count in self.counts]
        if [sample.value for sample in self._counted] != totals:
            series = zip(self._series[3:], totals, strict=True)
            self._counted = [Sample(one, total) for one, total in series if total is not None]
        return list(self._counted)

    def close(self) -> None:
        # It may be its own `limited`: left to the collector of garbage, thousands of them would wait for it.
        self.above = self.limited = None
        self._outer = (math.inf, None)
        self._fds = ()
        for file in self._files:
            file.close()

    def _renew(self, reading: Reading, outer: "tuple[float, Node | None]") -> None:
        self.reading = reading
        self.counts.kills.see(reading.kills)
        self.counts.majfaults.see(reading.pgmajfault)
        self.effective = outer[0]
        for limit in (reading.limit, reading.effective):
            if limit is not None and limit < self.effective:
                self.effective = limit
        self.limited = outer[1] if reading.limit is None else self
        used, effective, unreclaimable, *_ = self._series
        samples = self.samples = self.counted()
        if reading.used is not None:
            samples.append(Sample(used, reading.used))
        if reading.unreclaimable is not None:
            samples.append(Sample(unreclaimable, reading.unreclaimable))
        if self.effective != math.inf:
            samples.append(Sample(effective, self.effective))

    def _still_there(self) -> None:
        try:
            there = os.lstat(self.directory).st_ino
        except OSError as error:
            if error.errno not in GONE:
                raise
            raise Gone(self.path) from error
        if there != self.inode:
            raise Gone(self.path)


@functools.cache
def _ahead() -> int:
    """Bytes that all CPUs together may have charged ahead."""
    return _CHARGE_BATCH * os.sysconf("SC_PAGE_SIZE") * (os.cpu_count() or 1)


def noise(limit: int) -> float:
    """Bytes below which a rise of memory is no trend, for a cgroup of this limit."""
    return max(_ahead(), _LEAST_NOISE, 0.001 * limit)
