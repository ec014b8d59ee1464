"""Which cgroups there are, found again on every pass for next to nothing."""

import errno
import fnmatch
import heapq
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from oomcast.clock import Clock

# Directories walked for each one that may be reported: filters may hide most of a tree, but not all of memory.
_WALKED_PER_FOUND = 8
_LONGEST_PATH = 3800
_REST_PER_VERIFICATION = 100
_SLACK = 64
"""Removed directories that may wait for their turn in the rotation, beside as many as there are."""
_GONE = frozenset({errno.ENOENT, errno.ENODEV, errno.ENOTDIR, errno.ENAMETOOLONG})


class Found(NamedTuple):
    """path: below the mount, "/" for its root, undecodable bytes as surrogates. inode: differs when made anew."""

    path: str
    inode: int


class _Directory:
    """seen: link count and mtime when its children were last listed. skipped: children there was no room for."""

    __slots__ = ("children", "depth", "inode", "parent", "path", "seen", "skipped")

    def __init__(self, path: str, parent: "_Directory | None") -> None:
        self.path = path
        self.parent = parent
        self.depth: int = parent.depth + 1 if parent else 0
        self.children: dict[str, _Directory] = {}
        self.inode = 0
        self.seen: tuple[int, int] | None = None
        self.skipped = 0


class Tree:
    """The cgroup directories below a mount.

    A directory's link count is 2 and its children, so that of an unchanged tree only directories known to have
    children are looked at, and those made less than `full_every` seconds ago. Every directory is verified once in
    `full_every` seconds, a few on each pass. What is missed until then (a child that took another's place between
    two passes, the first child of an old directory) is found at once through `suspect`, and through `population`.
    Where a link count is below 2 it counts nothing, and the directory is listed every time.

    population: how many cgroups the kernel has, None if it does not say. When they became more than a pass has found,
    that pass goes on to verify every directory, as often as that costs a hundredth of the time.

    include, exclude: globs on the whole path ("*" also matches "/"); nothing included means all. max_depth: of the
    root's children it is 1. cap: how many are reported; of more, those nearest to the root.
    """

    def __init__(
        self,
        root: Path,
        clock: Clock,
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        max_depth: int = 32,
        cap: int = 2000,
        full_every: float = 60.0,
        population: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._top = os.fspath(root).rstrip("/")
        self._clock = clock
        self._include = _globs(include) if include else None
        self._exclude = _globs(exclude) if exclude else None
        self._max_depth = max_depth
        self._cap = cap
        self._room = max(cap * _WALKED_PER_FOUND, 64)
        self._full_every = full_every
        self._population = population
        self._counted: int | None = None
        self._rest_until = 0.0
        self._verified: float | None = None
        self._credit = 0.0
        self._rotation: deque[_Directory] = deque()
        self._suspects: set[str] = set()
        self._known: dict[str, _Directory] = {}
        self._matching: dict[str, _Directory] = {}
        self._watched: dict[str, _Directory] = {}
        self._found: dict[str, Found] = {}
        self._changed = False
        self._skipped = 0

    @property
    def truncated(self) -> int:
        """How many directories the last pass saw and did not report, for `cap` only."""
        return len(self._matching) - len(self._found) + self._skipped

    def suspect(self, path: str) -> None:
        """Has the next scan look at this path: a read of a file in it said that it is gone (ENODEV, ENOENT)."""
        self._suspects.add(path.rstrip("/"))

    def scan(self) -> tuple[list[Found], list[Found]]:
        """What appeared and what went since the last scan; the same path made anew is in both.

        Raises OSError if the root cannot be read, or if there are no file descriptors or memory to read with; what
        is known stays known, and the next scan goes on from there.
        """
        count, before = self._population(), len(self._known)
        self._walk()
        if self._more_than(count, len(self._known) - before):
            self._walk_all()
        if not self._changed:
            return [], []
        wanted = self._wanted()
        added = [found for path, found in wanted.items() if self._found.get(path) != found]
        removed = [found for path, found in self._found.items() if wanted.get(path) != found]
        self._found = wanted
        self._changed = False
        return added, removed

    def _wanted(self) -> dict[str, Found]:
        chosen: Iterable[_Directory] = self._matching.values()
        if len(self._matching) > self._cap:
            chosen = heapq.nsmallest(self._cap, self._matching.values(), key=lambda d: (d.depth, d.path))
        return {d.path: Found(d.path or "/", d.inode) for d in chosen}

    def _walk(self) -> None:
        first = not self._known
        if first:
            self._add(_Directory("", None))
        due = deque((directory, False) for directory in self._watched.values())
        due.extend((self._known[path], False) for path in self._suspects if path in self._known)
        due.extend((directory, True) for directory in self._due_for_verification())
        while due:
            directory, verify = due.popleft()
            if self._known.get(directory.path) is directory:
                due.extend((other, first) for other in self._look(directory, verify or first))
        self._suspects.clear()

    def _more_than(self, count: int | None, found: int) -> bool:
        """Whether cgroups were made since the last pass that this pass did not find."""
        if count is None:
            return False
        unexplained = self._counted is not None and count - self._counted > max(found, 0)
        if unexplained and self._clock.monotonic() < self._rest_until:
            return False  # the count stays as it was, so that the next pass asks again
        self._counted = count
        return unexplained

    def _walk_all(self) -> None:
        began = self._clock.monotonic()
        due = deque(self._rotation)
        while due:
            directory = due.popleft()
            if self._known.get(directory.path) is directory:
                due.extend(self._look(directory, verify=True))
        now = self._clock.monotonic()
        self._rest_until = now + (now - began) * _REST_PER_VERIFICATION

    def _due_for_verification(self) -> list[_Directory]:
        now = self._clock.monotonic()
        elapsed = now - self._verified if self._verified is not None else 0.0
        self._verified = now
        self._credit = min(self._credit + len(self._rotation) * elapsed / self._full_every, len(self._rotation))
        count = int(self._credit)
        self._credit -= count
        if len(self._rotation) > 2 * len(self._known) + _SLACK:
            self._rotation = deque(one for one in self._rotation if self._known.get(one.path) is one)
            count = min(count, len(self._rotation))
        turn = [self._rotation.popleft() for _ in range(count)]
        turn = [directory for directory in turn if self._known.get(directory.path) is directory]
        self._rotation.extend(turn)
        return turn

    def _look(self, directory: _Directory, verify: bool) -> list[_Directory]:
        """Brings one directory up to date; returns what has to be looked at after it."""
        try:
            status = os.lstat(self._top + (directory.path or "/"))
            if status.st_ino != directory.inode:
                self._made_anew(directory, status.st_ino)
            # Taken before the listing, so that what comes between the two is a change for the next pass.
            seen = (status.st_nlink, status.st_mtime_ns)
            if status.st_nlink == 2 and not directory.children:
                if verify and directory.parent is not None:
                    self._watched.pop(directory.path, None)
                return []
            if not verify and seen == directory.seen and status.st_nlink >= 2:
                return []
            further = self._list(directory)
            directory.seen = seen
        except OSError as error:
            if directory.parent is None or error.errno not in _GONE:
                raise
            return self._lost(directory)
        return further

    def _list(self, directory: _Directory) -> list[_Directory]:
        if directory.depth >= self._max_depth:
            self._watched.pop(directory.path, None)
            return []
        try:
            inodes, skipped = self._names(directory)
        except PermissionError:
            if directory.parent is None:
                raise
            return []
        self._watched[directory.path] = directory
        for name in directory.children.keys() - inodes.keys():
            self._drop(directory.children[name])
        further = [child for name, child in directory.children.items() if child.inode != inodes[name]]
        new = sorted(inodes.keys() - directory.children.keys())
        taken = [n for n in new if len(directory.path) + len(n) < _LONGEST_PATH][
            : max(self._room - len(self._known), 0)
        ]
        skipped += len(new) - len(taken)
        self._skipped += skipped - directory.skipped
        directory.skipped = skipped
        for name in taken:
            child = directory.children[name] = _Directory(f"{directory.path}/{name}", directory)
            self._add(child)
            further.append(child)
        return further

    def _add(self, directory: _Directory) -> None:
        self._known[directory.path] = self._watched[directory.path] = directory
        self._rotation.append(directory)

    def _names(self, directory: _Directory) -> tuple[dict[str, int], int]:
        """Its subdirectories with their inodes, and how many more there are than could be kept."""
        inodes: dict[str, int] = {}
        skipped = 0
        with os.scandir(self._top + (directory.path or "/")) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if len(inodes) < self._room or entry.name in directory.children:
                        inodes[entry.name] = entry.inode()
                    else:
                        skipped += 1
        return inodes, skipped

    def _made_anew(self, directory: _Directory, inode: int) -> None:
        for child in list(directory.children.values()):
            self._drop(child)
        self._skipped -= directory.skipped
        directory.skipped = 0
        directory.inode = inode
        directory.seen = None
        self._changed = True
        if self._matches(directory.path or "/"):
            self._matching[directory.path] = directory

    def _lost(self, directory: _Directory) -> list[_Directory]:
        parent = directory.parent
        known = directory.inode != 0
        self._drop(directory)
        # Another may have taken its place, which the parent's link count does not tell. One that vanished before it
        # was ever seen is no reason to look again.
        if parent is None or not known or parent.seen is None:
            return []
        parent.seen = None
        return [parent]

    def _drop(self, directory: _Directory) -> None:
        if directory.parent is not None:
            directory.parent.children.pop(directory.path.rpartition("/")[2], None)
        stack = [directory]
        while stack:
            gone = stack.pop()
            stack.extend(gone.children.values())
            self._skipped -= gone.skipped
            self._changed = True
            for table in (self._known, self._watched, self._matching):
                table.pop(gone.path, None)

    def _matches(self, path: str) -> bool:
        if self._include is not None and not self._include.match(path):
            return False
        return self._exclude is None or not self._exclude.match(path)


def _globs(patterns: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns))
