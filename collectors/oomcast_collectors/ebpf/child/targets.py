"""Who is followed: processes by name, unit, container or GPU, and what they fork."""

import fnmatch
import os
from collections.abc import Callable, Collection, Iterator

from oomcast.clock import Clock
from oomcast.contract import Roots
from oomcast.identity import identify
from oomcast.podnames import PodNames
from oomcast_collectors.ebpf.child.deaths.departed import Departed
from oomcast_collectors.ebpf.child.part import Process
from oomcast_collectors.ebpf.settings import Targets as TargetSettings
from oomcast_collectors.gpu_holders import GpuHolders
from oomcast_collectors.host.files import read_once
from oomcast_collectors.host.processes import ProcessFinder, ProcessStat, parse_stat
from oomcast_collectors.membership import LARGEST, memory_cgroup
from oomcast_collectors.verdicts import Verdicts

_STAT_LIMIT = 4096
_MOST_NAMES = 64
OTHER = "other"
"""The label of processes whose names are too many."""


class Names:
    """Values of a label; whoever is called something chooses a series."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def label(self, name: str) -> str:
        """The name, or `other` once there are too many."""
        if name not in self._known and len(self._known) >= _MOST_NAMES:
            return OTHER
        self._known.add(name)
        return name


class Targets:
    """changed: is called with (process, came) for each that comes, and with came False for each that goes; one that
    executes another program goes and comes. Not thread-safe."""

    def __init__(
        self,
        settings: TargetSettings,
        serving: tuple[str, ...],
        roots: Roots,
        clock: Clock,
        changed: Callable[[Process, bool], None],
        pids: tuple[int, ...] = (),
    ) -> None:
        """pids: processes that are wanted whatever the settings say."""
        self._pids = pids
        self._settings = settings
        self._proc = os.fspath(roots.proc)
        self._changed = changed
        patterns = (*settings.processes, *(serving if settings.engines else ()))
        self._finder = ProcessFinder(roots, patterns, settings.units)
        self._pods = PodNames(roots.pods, clock)
        self._containers = Verdicts(self._proc, self._container) if settings.containers else None
        self._holders = GpuHolders(roots) if settings.gpu else None
        self._names = Names()
        self._ended = Departed(clock)
        self._processes: dict[int, Process] = {}
        self._self = os.getpid()

    def __iter__(self) -> Iterator[Process]:
        return iter(tuple(self._processes.values()))

    def __len__(self) -> int:
        return len(self._processes)

    def get(self, pid: int) -> Process | None:
        return self._processes.get(pid)

    def scan(self) -> None:
        """Looks at all processes. Raises OSError when /proc cannot be listed."""
        wanted = {found.pid: found.name for found in self._finder.find()}
        for finder in (self._containers, self._holders):
            for pid in finder.find() if finder else ():
                wanted.setdefault(pid, "")
        for pid in self._pids:
            wanted.setdefault(pid, "")
        wanted.pop(self._self, None)
        for process in tuple(self._processes.values()):
            stat = self._stat(process.pid)
            gone = stat is None or stat.start_time != process.start
            # A follower stays as long as it lives: its name may be anything.
            if gone or (process.pid not in wanted and not process.parent):
                self.gone(process.pid)
        for pid in sorted(wanted.keys() - self._processes.keys(), key=self._began):
            if len(self._processes) >= self._settings.most and not self._make_room(wanted):
                break
            self._add(pid, wanted[pid], 0)

    def forked(self, parent: int, pid: int) -> None:
        """A target forked `pid`."""
        by = self._processes.get(parent)
        if by is not None and pid not in self._processes:
            self._add(pid, by.name, parent)

    def executed(self, pid: int) -> None:
        """A process executes another program; a target stays one, as what it forked does."""
        process = self._processes.get(pid) or self._ended.get(pid)
        stat = self._stat(pid)
        if process is not None and stat is not None and stat.start_time == process.start:
            self.gone(pid)
            self._add(pid, process.name, process.parent or process.pid)

    def gone(self, pid: int) -> None:
        process = self._processes.pop(pid, None)
        if process is not None:
            self._changed(process, False)

    def ended(self, pid: int) -> None:
        """The first thread of a target ended, and so the process, unless another of its threads is about to execute a
        program, which then has this pid."""
        process, stat = self._processes.get(pid), self._stat(pid)
        if process is not None and (stat is None or stat.exiting or stat.start_time != process.start):
            self._ended.add(process)
            self.gone(pid)

    def _add(self, pid: int, name: str, parent: int) -> None:
        if len(self._processes) >= self._settings.most:
            return
        stat = self._stat(pid)
        if stat is None or stat.kernel or stat.exiting:
            return
        try:
            cgroup = memory_cgroup(read_once(f"{self._proc}/{pid}/cgroup", LARGEST))
        except OSError:
            cgroup = ""
        process = Process(pid, stat.start_time, self._names.label(name or stat.comm), stat.comm, cgroup, parent)
        self._processes[pid] = process
        self._changed(process, True)

    def _make_room(self, wanted: Collection[int]) -> bool:
        """Lets the youngest go that is followed for its parent only: a storm of forks must not keep an engine out."""
        followers = [p for p in self._processes.values() if p.parent and p.pid not in wanted]
        if followers:
            self.gone(max(followers, key=lambda process: process.start).pid)
        return bool(followers)

    def _began(self, pid: int) -> int:
        stat = self._stat(pid)
        return stat.start_time if stat is not None else 0

    def _stat(self, pid: int) -> ProcessStat | None:
        try:
            return parse_stat(read_once(f"{self._proc}/{pid}/stat", _STAT_LIMIT))
        except OSError:
            return None

    def _container(self, pid: int) -> str:
        identity = identify(memory_cgroup(read_once(f"{self._proc}/{pid}/cgroup", LARGEST)))
        names = [identity.container_id, identity.lxc_name, identity.container_id[:12]]
        if identity.pod_uid:
            pod = self._pods.pod(identity.pod_uid)
            names += [pod.pod] if pod else []
            names.append(self._pods.container(identity.pod_uid, identity.container_id))
        matching = [
            name for name in filter(None, names) if any(fnmatch.fnmatchcase(name, p) for p in self._settings.containers)
        ]
        return matching[0] if matching else ""
