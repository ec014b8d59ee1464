"""Which processes may be engines: by their name, by a GPU they have open, and the parents of those."""

import os
from pathlib import Path

from oomcast.contract import Context
from oomcast_collectors.gpu_holders import GpuHolders
from oomcast_collectors.host.files import read_once
from oomcast_collectors.host.processes import ProcessFinder, ProcessStat, parse_stat
from oomcast_collectors.membership import LARGEST, memory_cgroup

_STAT_LIMIT = 4096
_MOST_ANCESTORS = 8


class Candidates:
    """Not thread-safe."""

    def __init__(self, context: Context) -> None:
        self._proc = os.fspath(context.roots.proc)
        self._finder = ProcessFinder(context.roots, context.serving)
        self._holders = GpuHolders(context.roots)

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


def _stat(proc: str, pid: int) -> ProcessStat | None:
    return parse_stat(read_once(f"{proc}/{pid}/stat", _STAT_LIMIT))
