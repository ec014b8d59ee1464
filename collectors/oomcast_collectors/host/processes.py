"""Which processes of the host are inference engines. Reusable: `ProcessFinder(roots, patterns).find()`.

Listing /proc is cheap, opening files in it for every process is not, and reading a command line takes the lock of
the process' address space, which a process that is stuck in reclaim may hold. So a verdict is remembered.
"""

import errno
import fnmatch
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from oomcast.contract import Roots
from oomcast_collectors.host.commandline import names_of
from oomcast_collectors.host.files import read_once
from oomcast_collectors.membership import LARGEST, memberships, memory_cgroup

_STAT_LIMIT = 4096
_CMDLINE_LIMIT = 8192
_PF_EXITING = 0x00000004
_PF_KTHREAD = 0x00200000
# 5,000 processes that are looked at again every 32 scans make 156; this many cost about 15 ms.
_MAX_RECHECKS = 200
_LONGEST_GAP = 32
_NEVER = 1 << 62
_SETTLED_SECONDS = 60
_GONE = (errno.ENOENT, errno.ESRCH)


class Found(NamedTuple):
    """A process that matched. start_time: clock ticks since boot; with the pid it is the process' identity.

    name: the pattern without the asterisks around it, the process' own name if the pattern is nothing else, or
    the unit. cgroup_path: its path in the hierarchy that accounts memory (v1's memory if mounted, else v2's), as
    /proc/PID/cgroup has it; "" when unreadable.
    """

    pid: int
    start_time: int
    name: str
    cgroup_path: str


class ProcessStat(NamedTuple):
    """What /proc/PID/stat says. comm: decoded, bytes that are no UTF-8 as backslash escapes. exiting: it is ending, or
    a zombie. parent: the pid of its parent, 0 without one."""

    comm: str
    state: str
    kernel: bool
    exiting: bool
    major_faults: int
    start_time: int
    parent: int


@dataclass(slots=True)
class _Known:
    """A verdict. inode: of /proc/PID, which lives no longer than the process. gap, due: in scans."""

    inode: int
    start_time: int
    comm: str
    name: str | None
    due: int
    gap: int = 1


class ProcessFinder:
    """Finds processes by glob patterns (case-insensitive) or by systemd unit; see `names_of` for what is matched.

    Remembers its verdicts, so keep the object. A process that does not match is looked at again, first after one
    scan and then ever more rarely, for it may exec or set its title; one that is old already, rarely from the first
    on. Not thread-safe.
    """

    def __init__(self, roots: Roots, patterns: Iterable[str], units: Iterable[str] = ()) -> None:
        self._proc = os.fspath(roots.proc)
        unique = dict.fromkeys(p for p in patterns if p)
        self._patterns = [(re.compile(fnmatch.translate(p), re.IGNORECASE).match, label_of(p), p) for p in unique]
        self._units = {u if "." in u else f"{u}.service" for u in units if u}
        self._known: dict[str, _Known] = {}
        self._scan = 0
        self._settled = 0
        self._ticks = os.sysconf("SC_CLK_TCK")

    @property
    def names(self) -> list[str]:
        """The names that are known beforehand."""
        return list(dict.fromkeys([label for _, label, _ in self._patterns if label] + sorted(self._units)))

    def find(self) -> list[Found]:
        """The matching processes of this moment, by pid. Raises OSError when /proc cannot be listed."""
        self._scan += 1
        self._settled = self._settled_before()
        before, self._known = self._known, {}
        rechecks = _MAX_RECHECKS
        with os.scandir(self._proc) as entries:
            for entry in entries:
                pid = entry.name
                if not (pid.isdigit() and pid.isascii()):
                    continue
                known = before.get(pid)
                # /proc gives a new process a new inode number, and 1 when it has no memory for one.
                if known is not None and known.inode == entry.inode() != 1 and known.name is None:
                    if known.due > self._scan or rechecks == 0:
                        self._known[pid] = known
                        continue
                    rechecks -= 1
                judged = self._judge(pid, entry.inode(), known)
                if judged is not None:
                    self._known[pid] = judged
        return sorted(
            Found(int(pid), k.start_time, k.name, self._cgroup_path(pid))
            for pid, k in self._known.items()
            if k.name is not None
        )

    def _judge(self, pid: str, inode: int, known: _Known | None) -> _Known | None:
        """The verdict on a process; None when it is gone."""
        try:
            stat = parse_stat(read_once(f"{self._proc}/{pid}/stat", _STAT_LIMIT))
        except OSError as error:
            return None if error.errno in _GONE else _Known(inode, -1, "", None, self._scan + _LONGEST_GAP)
        if stat is None:
            return _Known(inode, -1, "", None, self._scan + _LONGEST_GAP)
        if stat.kernel:
            return _Known(inode, stat.start_time, stat.comm, None, _NEVER)
        if known is not None and (known.start_time, known.comm) == (stat.start_time, stat.comm):
            known.inode = inode
            if known.due > self._scan:
                return known
            gap = min(known.gap * 2, _LONGEST_GAP)
        else:
            gap = 1 if known is not None or stat.start_time >= self._settled else _LONGEST_GAP
        name = self._name(pid, stat)
        # The pid spreads those that were all seen first at the same time.
        return _Known(inode, stat.start_time, stat.comm, name, self._scan + gap + int(pid) % gap, gap)

    def _settled_before(self) -> int:
        """The start time, in ticks since boot, up to which a process has had the time to become what it is."""
        try:
            uptime = float(read_once(f"{self._proc}/uptime", 64).split()[0])
            return int((uptime - _SETTLED_SECONDS) * self._ticks)
        except (OSError, ValueError, IndexError, OverflowError):
            return 0

    def _name(self, pid: str, stat: ProcessStat) -> str | None:
        name = self._match([stat.comm], stat.comm)
        if name is None:
            name = self._match(names_of(self._read(pid, "cmdline", _CMDLINE_LIMIT)), stat.comm)
        if name is None and self._units:
            units = self._units.intersection(cgroup_components(self._read(pid, "cgroup", LARGEST)))
            name = min(units, default=None)
        return name

    def _match(self, candidates: list[str], comm: str) -> str | None:
        for match, label, pattern in self._patterns:
            if any(match(c) for c in candidates):
                return label or comm or pattern
        return None

    def _cgroup_path(self, pid: str) -> str:
        return memory_cgroup(self._read(pid, "cgroup", LARGEST))

    def _read(self, pid: str, name: str, limit: int) -> bytes:
        try:
            return read_once(f"{self._proc}/{pid}/{name}", limit)
        except OSError:  # a process may end, or hide, between any two reads
            return b""


def label_of(pattern: str) -> str:
    """What a pattern is called in labels: `vllm*` is vllm; "" if there is nothing but asterisks."""
    return pattern.strip("*")


def parse_stat(data: bytes) -> ProcessStat | None:
    """/proc/PID/stat; None when it is malformed. A process can call itself `) R 1 1`, or have a newline in its name."""
    start, end = data.find(b"("), data.rfind(b")")
    fields = data[end + 1 :].split()
    if start < 0 or end < start or len(fields) < 20:
        return None
    parent, flags, faults, started = numbers = fields[1], fields[6], fields[9], fields[19]
    if not (all(map(bytes.isdigit, numbers)) and max(map(len, fields[:20])) <= 20):
        return None
    comm, state = data[start + 1 : end].decode("utf-8", "backslashreplace"), fields[0].decode("ascii", "replace")
    kernel, exiting = bool(int(flags) & _PF_KTHREAD), bool(int(flags) & _PF_EXITING)
    return ProcessStat(comm, state, kernel, exiting, int(faults), int(started), int(parent))


def cgroup_components(data: bytes) -> set[str]:
    """The names in the paths that systemd makes: its own hierarchy, v1 or v2."""
    names: set[str] = set()
    for controllers, path in memberships(data):
        if controllers in ([""], ["name=systemd"]):
            names.update(path.split("/"))
    return names
