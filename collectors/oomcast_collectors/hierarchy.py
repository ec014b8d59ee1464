"""Where the cgroup hierarchies are mounted. Asked of the kernel, never assumed."""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from oomcast.contract import NotPresent

_LONGEST_LINE = 65_536
_MOST_LINES = 200_000
_SMALL_FILE = 4096
_OPTIONS = frozenset({"memory_localevents", "memory_recursiveprot", "memory_hugetlb_accounting", "nsdelegate"})
_OCTAL = re.compile(r"\\([0-3][0-7]{2})")


@dataclass(frozen=True, slots=True)
class Mount:
    """path: where this process reaches it. root: which cgroup appears there, as the kernel names it: "/", a subtree
    ("/docker/ID") or, out of a private cgroup namespace, something above the own one ("/../..")."""

    path: Path
    version: Literal[1, 2]
    root: str = "/"


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """memory: the hierarchy with the memory controller. unified: the cgroup2 one, which has memory.pressure also
    while memory is on version 1; None without one, the same as `memory` in mode "v2".

    options: mount options of cgroup2 that change what its files mean. namespaced: `memory` shows only a part of the
    host's cgroups.
    """

    memory: Mount
    unified: Mount | None
    options: frozenset[str]
    mode: Literal["v1", "v2", "hybrid"]
    namespaced: bool


class MountLine(NamedTuple):
    """One cgroup line of mountinfo. device: "major:minor". point: where it is mounted, unescaped."""

    device: str
    root: str
    point: str
    kind: str
    options: frozenset[str]


class _Seen(NamedTuple):
    """A mount that is there. inode: of its root, or 0 if what is there is a copy of a cgroup tree."""

    mount: Mount
    line: MountLine
    inode: int


def find_hierarchies(proc: Path, prefix: Path | None = None) -> Hierarchies:
    """The cgroup hierarchies in the mount table of this process.

    Without a prefix this reads `self/mountinfo` below `proc`. That is right in a container too, wherever the host's
    proc and sysfs are mounted in it: the kernel resolves `self` for the reader, and lists the reader's mounts.
    With a prefix the table is another's (`1/mountinfo`, or `self/mountinfo` where only that is there) and the
    mount points in it are looked up below `prefix`: the host's root under /host, a fixture.

    Raises NotPresent if nothing here counts memory by cgroup; OSError if the table cannot be read.
    """
    lines = list(parse_mountinfo(_read_lines(_table(proc, prefix))))
    unified = _best([line for line in lines if line.kind == "cgroup2"], prefix)
    legacy = _best([line for line in lines if line.kind == "cgroup" and "memory" in line.options], prefix)
    options = unified.line.options & _OPTIONS if unified else frozenset()
    if legacy:
        mode: Literal["v1", "hybrid"] = "hybrid" if unified else "v1"
        return Hierarchies(legacy.mount, unified.mount if unified else None, options, mode, _is_part(legacy))
    if unified and "memory" in _controllers(unified.mount.path):
        return Hierarchies(unified.mount, unified.mount, options, "v2", _is_part(unified))
    raise NotPresent(_why_not(lines, unified, prefix))


def parse_mountinfo(lines: Iterable[str]) -> Iterator[MountLine]:
    """The cgroup mounts among lines of /proc/PID/mountinfo; lines that are not understood are passed over."""
    for line in lines:
        # Any number of optional fields stands before the "-".
        head, dash, tail = line.partition(" - ")
        first, last = head.split(" "), tail.split()
        if dash and len(first) >= 6 and len(last) >= 3 and last[0] in ("cgroup", "cgroup2"):
            root, point = unescape(first[3]), unescape(first[4])
            if root.startswith("/") and point.startswith("/"):
                yield MountLine(first[2], root, point, last[0], frozenset(last[-1].split(",")))


def unescape(field: str) -> str:
    """mountinfo's octal escapes: blank, tab, newline and backslash inside of a path."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), field)


def _table(proc: Path, prefix: Path | None) -> Path:
    other = proc / "1" / "mountinfo"
    return other if prefix is not None and other.exists() else proc / "self" / "mountinfo"


def _read_lines(path: Path) -> Iterator[str]:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise NotPresent(f"{path} is not there: no procfs is mounted at its place") from None
    with file:
        for _ in range(_MOST_LINES):
            line = file.readline(_LONGEST_LINE)
            if not line:
                return
            if b" - cgroup" in line:
                yield os.fsdecode(line)


def _best(lines: Iterable[MountLine], prefix: Path | None) -> _Seen | None:
    """The mount that shows most, of the same hierarchy in several places; then the one with the shortest path."""
    seen = [found for line in lines if (found := _look(line, prefix))]
    return min(seen, key=lambda s: (not s.inode, _depth(s.line.root), len(s.line.point), s.line.point), default=None)


def _look(line: MountLine, prefix: Path | None) -> _Seen | None:
    path = Path(line.point) if prefix is None else prefix / line.point.lstrip("/")
    try:
        status = path.stat()
    except OSError:
        return None
    # A mount hidden below a later one, or a copy in a fixture, is on another device than the table says.
    device = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    inode = status.st_ino if device == line.device else 0
    return _Seen(Mount(path, 2 if line.kind == "cgroup2" else 1, line.root), line, inode)


def _depth(root: str) -> int:
    parts = [part for part in root.split("/") if part]
    above = parts.count("..")
    return len(parts) - 2 * above


def _is_part(seen: _Seen) -> bool:
    # The root of a hierarchy has inode 1, and on version 2 no memory.current.
    if _depth(seen.mount.root) > 0 or seen.inode > 1:
        return True
    return seen.mount.version == 2 and (seen.mount.path / "memory.current").exists()


def _controllers(path: Path) -> list[str]:
    with (path / "cgroup.controllers").open() as file:
        return file.read(_SMALL_FILE).split()


def _why_not(lines: list[MountLine], unified: _Seen | None, prefix: Path | None) -> str:
    if unified:
        where = unified.mount.path
        if _is_part(unified):
            return f"{where} has no memory controller: enable it in its parent's cgroup.subtree_control"
        return f"{where} has no memory controller: boot with cgroup_enable=memory, without cgroup_disable=memory"
    points = sorted({line.point for line in lines if line.kind == "cgroup2" or "memory" in line.options})
    if points:
        below = f" below {prefix}" if prefix else ""
        return f"cgroups are mounted at {', '.join(points[:4])}, which cannot be reached{below}: mount the host's /sys"
    return "no cgroup hierarchy with a memory controller is mounted: mount cgroup2 at /sys/fs/cgroup"
