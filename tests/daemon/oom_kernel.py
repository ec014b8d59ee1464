"""A simulated kernel with its witnesses of OOM kills, all imperfect in the ways the real ones are."""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from fakes import FakeClock
from oomcast.contract import Event
from oomcast.reconcile import Reconciler

PATHS = ("/a", "/a/x", "/a/y", "/a/y/z", "/b", "/b/w", "/b/w/v")
LEAVES = ("/a/x", "/a/y/z", "/b/w/v")


@dataclass(frozen=True)
class Kill:
    """One true kill. at: seconds after the start. named: whether the log's naming line survived the rate limit.
    log, ebpf: seconds after which that witness tells of it; ebpf None when it lost it. vanish: the victim's cgroup
    is gone right after the kill, and comes back, with a new inode, that many seconds later. twice: the victim is the
    first of a group that the kernel kills as a whole, and its counters have it twice."""

    at: float
    path: str
    limit: str = ""
    named: bool = True
    log: float = 0.0
    ebpf: float | None = None
    vanish: float | None = None
    twice: bool = False


@dataclass(frozen=True)
class Machine:
    """version: of the cgroup memory controller. parents_first: the order of reading. skew: seconds between two
    cgroups' reads in one run, all of which is reported at its end."""

    version: int = 2
    log: bool = True
    ebpf: bool = False
    vmstat: bool = True
    cgroups: bool = True
    parents_first: bool = True
    skew: float = 0.0


@dataclass
class Seen:
    """What reached the reconciler, by cgroup; the truth to compare with."""

    kills: int = 0
    named: dict[str, dict[str, int]] = field(default_factory=lambda: {"kernel_log": {}, "ebpf": {}})
    counted: dict[str, int] = field(default_factory=dict)


class Kernel:
    def __init__(self, machine: Machine, reconciler: Reconciler, clock: FakeClock) -> None:
        self.machine = machine
        self.reconciler = reconciler
        self.clock = clock
        self.seen = Seen()
        self.check: Callable[[], None] = lambda: None
        self._start = clock.mono
        self._todo: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._inode = {path: next(self._order) for path in PATHS}
        self._counter: dict[int, int] = dict.fromkeys(self._inode.values(), 0)
        self._read = dict(self._counter)
        self._vmstat = self._vmstat_read = 0
        self._log_until = 0.0

    def play(self, kills: list[Kill], until: float) -> None:
        """Lets it all happen, with a run of every collector and a settle() each second."""
        for pid, kill in enumerate(kills, 1):
            self._at(kill.at, lambda kill=kill, pid=pid: self._kill(kill, pid))  # type: ignore[misc] # mypy infers no default
        for second in range(int(until)):
            self._at(second + 0.5, self._run_vmstat)
            self._at(second + 0.1, self._run_cgroups)
            self._at(second + 0.9, self._settle)
        while self._todo:
            time, _, action = heapq.heappop(self._todo)
            self.clock.advance(max(0.0, self._start + time - self.clock.mono))
            action()
            self.check()

    def _at(self, time: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._todo, (time, next(self._order), action))

    def _now(self) -> float:
        return self.clock.mono - self._start

    def _kill(self, kill: Kill, pid: int) -> None:
        self.seen.kills += 1
        counted = 2 if kill.twice else 1
        self._vmstat += counted
        for path in PATHS:
            if path == kill.path or (self.machine.version == 2 and kill.path.startswith(path + "/")):
                inode = self._inode.get(path)
                if inode is not None:
                    self._counter[inode] += counted
        if self.machine.log:
            # The log is one stream: what is late holds up what follows.
            self._log_until = max(self._log_until, kill.at + kill.log)
            self._at(self._log_until, lambda: self._tell("kernel_log", kill, pid, kill.named))
            if kill.twice:
                self._at(self._log_until, lambda: self._see("oom_kill_repeated", {"cgroup": kill.path}))
        if self.machine.ebpf and kill.ebpf is not None:
            self._at(kill.at + kill.ebpf, lambda: self._tell("ebpf", kill, pid, True))
        if kill.vanish is not None:
            gone = [path for path in PATHS if (path + "/").startswith(kill.path + "/") and path in self._inode]
            for path in gone:
                del self._inode[path]
            self._at(self._now() + kill.vanish, lambda: self._create(gone))

    def _create(self, paths: list[str]) -> None:
        for path in paths:
            self._inode[path] = inode = next(self._order)
            self._counter[inode] = 0

    def _tell(self, witness: str, kill: Kill, pid: int, named: bool) -> None:
        fields: dict[str, str | int | float] = {
            "pid": pid,
            "comm": "x",
            "cgroup": "",
            "limit_cgroup": "",
            "constraint": "",
        }
        if witness == "ebpf":
            fields["witness"] = "ebpf"
        if named:
            fields["cgroup"] = kill.path
            if witness == "kernel_log":  # which alone knows whose limit it was
                fields |= {"limit_cgroup": kill.limit, "constraint": "memcg" if kill.limit else "none"}
            by_path = self.seen.named[witness]
            by_path[kill.path] = by_path.get(kill.path, 0) + 1
        self._see("oom_kill", fields)

    def _settle(self) -> None:
        self.reconciler.settle()

    def _run_vmstat(self) -> None:
        if self.machine.vmstat and self._vmstat > self._vmstat_read:
            self._see("host_oom_kills", {"kills": self._vmstat - self._vmstat_read})
            self._vmstat_read = self._vmstat

    def _run_cgroups(self) -> None:
        if not self.machine.cgroups:
            return
        found: list[tuple[str, int]] = []
        order = PATHS if self.machine.parents_first else PATHS[::-1]
        for place, path in enumerate(order):
            self._at(self._now() + place * self.machine.skew, lambda path=path: self._read_one(path, found))  # type: ignore[misc]
        self._at(self._now() + len(order) * self.machine.skew, lambda: self._report(found))

    def _read_one(self, path: str, found: list[tuple[str, int]]) -> None:
        inode = self._inode.get(path)
        if inode is None:
            return
        delta = self._counter[inode] - self._read.get(inode, 0)
        self._read[inode] = self._counter[inode]
        if delta:
            found.append((path, delta))

    def _report(self, found: list[tuple[str, int]]) -> None:
        scope = "own" if self.machine.version == 1 else "subtree"
        for path, delta in found:
            self.seen.counted[path] = self.seen.counted.get(path, 0) + delta
        events = [self._event("cgroup_oom_kills", {"cgroup": p, "kills": n, "scope": scope}) for p, n in found]
        self.reconciler.see(events)

    def _see(self, kind: str, fields: dict[str, str | int | float]) -> None:
        self.reconciler.see([self._event(kind, fields)])

    def _event(self, kind: str, fields: dict[str, str | int | float]) -> Event:
        return Event(kind, self.clock.time(), self.clock.monotonic(), kind, fields)
