"""Which processes may be engines: by their name, by a GPU they have open, and the parents of those."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from oomcast.contract import Context, Roots
from oomcast_collectors.engine.listeners import descriptors
from oomcast_collectors.host.files import read_once
from oomcast_collectors.host.processes import ProcessFinder, ProcessStat, parse_stat
from oomcast_collectors.membership import LARGEST, memory_cgroup

_STAT_LIMIT = 4096
_MOST_ANCESTORS = 8
_MOST_LOOKS = 500
"""Processes whose descriptors are read per scan: a tenth of a second."""

_LONGEST_GAP = 32
_GPU = re.compile(r"/dev/nvidia(?:\d+|-uvm)\Z")


class Candidates:
    """Not thread-safe."""

    def __init__(self, context: Context) -> None:
        self._proc = os.fspath(context.roots.proc)
        self._finder = ProcessFinder(context.roots, context.serving)
        self._holders = _Holders(context.roots)

    def find(self) -> dict[int, int]:
        """Start times by pid, in clock ticks since boot, without this process'. Raises OSError if /proc cannot be read.

        The server of an engine is often the parent of what is on the GPU: parents count while they are in the same
        cgroup.
        """
        found: dict[int, int] = {}
        for pid in {process.pid for process in self._finder.find()} | self._holders.find():
            self._add(pid, found)
        found.pop(int(Path(self._proc, "self").readlink().name), None)
        return found

    def _add(self, pid: int, found: dict[int, int]) -> None:
        cgroup = None
        for _ in range(_MOST_ANCESTORS):
            try:
                stat = _stat(self._proc, pid)
                where = memory_cgroup(read_once(f"{self._proc}/{pid}/cgroup", LARGEST))
            except OSError:  # it has ended, or may not be looked at
                return
            if stat is None or stat.kernel or cgroup not in (None, where):
                return
            found[pid] = stat.start_time
            pid, cgroup = stat.parent, where


@dataclass(slots=True)
class _Known:
    """inode: of /proc/PID, which lives no longer than the process. due, gap: in scans."""

    inode: int
    holds: bool
    due: int
    gap: int


class _Holders:
    """Who has an NVIDIA GPU open. One that has not is looked at again ever more rarely: reading the descriptors of all
    processes of a node takes a second."""

    def __init__(self, roots: Roots) -> None:
        self._proc = os.fspath(roots.proc)
        self._driver = roots.proc / "driver/nvidia"
        self._known: dict[int, _Known] = {}
        self._scan = 0

    def find(self) -> set[int]:
        if not self._driver.exists():
            return set()
        self._scan += 1
        before, self._known = self._known, {}
        looks = _MOST_LOOKS
        with os.scandir(self._proc) as entries:
            for entry in entries:
                if not (entry.name.isdigit() and entry.name.isascii()):
                    continue
                pid, inode = int(entry.name), entry.inode()
                known = before.get(pid)
                if known is None or known.inode != inode:
                    known = _Known(inode, False, self._scan, 1)
                if not known.holds and known.due <= self._scan and looks > 0:
                    looks -= 1
                    known.holds = self._has_gpu(pid)
                    # The pid spreads those that were all seen first at the same time.
                    known.due = self._scan + known.gap + pid % known.gap
                    known.gap = min(2 * known.gap, _LONGEST_GAP)
                self._known[pid] = known
        return {pid for pid, known in self._known.items() if known.holds}

    def _has_gpu(self, pid: int) -> bool:
        try:
            return any(map(_GPU.match, descriptors(self._proc, pid)))
        except OSError:  # it has ended, or may not be looked into, as the search for its ports will tell
            return False


def _stat(proc: str, pid: int) -> ProcessStat | None:
    return parse_stat(read_once(f"{proc}/{pid}/stat", _STAT_LIMIT))
