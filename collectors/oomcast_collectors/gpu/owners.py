"""Whose the pids are that a driver lists: name, cgroup and owner, from /proc."""

import logging
import os
from collections.abc import Set
from dataclasses import dataclass

from oomcast.contract import Context
from oomcast.logs import OnChange
from oomcast_collectors.cgroup_names import CgroupNames
from oomcast_collectors.host.files import read_once
from oomcast_collectors.host.processes import ProcessStat, parse_stat
from oomcast_collectors.membership import LARGEST, memory_cgroup

_STAT_LIMIT = 4096
_ASK_AGAIN = 10.0
"""Seconds for which a pid that /proc does not have is not looked for again."""


@dataclass(frozen=True, slots=True)
class Process:
    """start: clock ticks since boot, with the pid the process' identity; None where /proc does not have it, as with a
    pid of another namespace: then the rest is "". name: its comm. cgroup: as oomcast_cgroup_info calls it, "" for one
    that is not among those. path: the same as /proc/PID/cgroup has it, "" if unreadable."""

    pid: int
    start: int | None = None
    name: str = ""
    cgroup: str = ""
    path: str = ""


class Owners:
    """Remembers what it found: a process that is known costs one read of /proc/PID/stat. Not thread-safe."""

    def __init__(self, context: Context) -> None:
        self._proc = os.fspath(context.roots.proc)
        self._clock = context.clock
        self._names = CgroupNames(context)
        self._told = OnChange(context.log, clock=context.clock)
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._known: dict[int, Process] = {}
        self._missing: dict[int, float] = {}

    def process(self, pid: int) -> Process:
        """The process that has this pid now. One that /proc no longer has stays what it was while its pid is kept: the
        driver may list it for a while after its end."""
        known = self._known.get(pid)
        if known is None and self._clock.monotonic() < self._missing.get(pid, float("-inf")):
            return Process(pid)
        try:
            stat = self._stat(pid)
        except OSError as error:
            self._told.report(error.errno, 0, logging.WARNING, f"a process of a GPU cannot be looked at: {error}")
            stat = None
        if stat is None:
            if known is None:
                self._missing[pid] = self._clock.monotonic() + _ASK_AGAIN
            return known or Process(pid)
        # A new name: it may have become another program, and that in another cgroup.
        if known is None or not known.path or (known.start, known.name) != (stat.start_time, stat.comm):
            path = self._path(pid)
            known = Process(pid, stat.start_time, stat.comm, self._names.name(path), path)
            self._known[pid] = known
        return known

    def keep(self, pids: Set[int]) -> None:
        """Forgets all others."""
        self._known = {pid: known for pid, known in self._known.items() if pid in pids}
        self._missing = {pid: until for pid, until in self._missing.items() if pid in pids}

    def alive(self, process: Process) -> bool | None:
        """Whether it still runs; None where that is not known. One that is ending, or a zombie, does not."""
        if process.start is None:
            return None
        try:
            stat = self._stat(process.pid)
        except OSError:
            return None
        return stat is not None and stat.start_time == process.start and not stat.exiting

    def age(self, process: Process) -> float:
        """Seconds since it started; 0 where that is not known."""
        if process.start is None:
            return 0.0
        try:
            uptime = float(read_once(f"{self._proc}/uptime", 64).split()[0])
        except (OSError, ValueError, IndexError) as error:
            self._told.report("uptime", repr(error), logging.WARNING, f"ages of processes are not known: {error}")
            return 0.0
        return max(uptime - process.start / self._ticks, 0.0)

    def owner(self, process: Process) -> str:
        """The name that the kills of its cgroup are counted under; "" where its cgroup is not known."""
        path = process.cgroup or process.path
        return self._names.owner(path) if path else ""

    def _stat(self, pid: int) -> ProcessStat | None:
        """None where there is no such process; a kernel thread holds no memory of a GPU, so the pid means another one.
        Raises OSError where /proc does not tell."""
        try:
            stat = parse_stat(read_once(f"{self._proc}/{pid}/stat", _STAT_LIMIT))
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if stat is None or stat.kernel else stat

    def _path(self, pid: int) -> str:
        try:
            return memory_cgroup(read_once(f"{self._proc}/{pid}/cgroup", LARGEST))
        except OSError:  # it may end between two reads, and a kernel may have no cgroups
            return ""
