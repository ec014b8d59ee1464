"""The set of watched cgroups over time: who came, who went, and what the gone ones had counted."""

from collections.abc import Iterator
from typing import NamedTuple

from oomcast.clock import Clock
from oomcast.metric import Sample
from oomcast_collectors.cgroup.files import Budget
from oomcast_collectors.cgroup.hierarchy import Mount
from oomcast_collectors.cgroup.node import Node, Past
from oomcast_collectors.cgroup.tree import Found, Tree
from oomcast_collectors.cgroup.version import Version

_MOST_QUIET, _MOST_KILLED = 200, 1000
"""Tombstones kept of cgroups without and with an OOM kill: fifty short-lived cgroups a second are normal somewhere."""


class _Tombstone(NamedTuple):
    until: float
    past: Past
    samples: list[Sample]


class Watch:
    """Nodes for what the tree finds, outermost first.

    Ancestors that are not selected are nodes too (shown is false): their limits bind all the same.
    """

    def __init__(
        self, tree: Tree, mount: Mount, version: Version, budget: Budget, clock: Clock, tombstone: float, *, root: bool
    ) -> None:
        self._tree = tree
        self._top = str(mount.path).rstrip("/")
        self._version = version
        self._budget = budget
        self._clock = clock
        self._tombstone = tombstone
        self._root = root
        self._by_path: dict[str, Node] = {}
        self._tombstones: dict[str, _Tombstone] = {}
        self.nodes: list[Node] = []
        """Every ancestor stands before its descendants."""

    @property
    def truncated(self) -> int:
        return self._tree.truncated

    def renew(self) -> list[Node]:
        """Brings the nodes up to date with the tree; returns the new ones. Raises OSError if its root is unreadable."""
        self._expire()
        added, removed = self._tree.scan()
        for found in removed:
            self.bury(found.path)
        came = [node for found in sorted(added, key=_depth) for node in self._came(found)]
        if added or removed:
            self.nodes = sorted(self._by_path.values(), key=_depth)
        return came

    def lost(self, node: Node) -> None:
        """A reading said that the node is gone: it has no series from now on but those of its tombstone."""
        self._tree.suspect(node.path)
        if not node.shown:
            self.bury(node.path)
            self.nodes = [other for other in self.nodes if other is not node]

    def tombstones(self) -> Iterator[Sample]:
        """The counters of cgroups that are gone."""
        for stone in self._tombstones.values():
            yield from stone.samples

    def bury(self, path: str) -> None:
        node = self._by_path.pop(path, None)
        if node is None:
            return
        node.close()
        if not node.shown or self._tombstone <= 0:
            return
        kills, majfaults = node.totals()
        stone = _Tombstone(self._clock.monotonic() + self._tombstone, Past(kills or 0, majfaults or 0), node.counted())
        self._tombstones.pop(path, None)
        self._tombstones[path] = stone
        self._trim(killed=bool(kills))

    def close(self) -> None:
        for node in self._by_path.values():
            node.close()

    def _came(self, found: Found) -> Iterator[Node]:
        if found.path == "/" and not self._root:
            return
        outer = found.path
        missing = []
        while outer := outer.rpartition("/")[0]:
            if outer not in self._by_path:
                missing.append(outer)
        for path in reversed(missing):
            yield self._add(path, 0, shown=False)
        yield self._add(found.path, found.inode, shown=True)

    def _add(self, path: str, inode: int, *, shown: bool) -> Node:
        known = self._by_path.pop(path, None)
        if known:
            known.close()
        stone = self._tombstones.pop(path, None)
        directory = self._top + (path if path != "/" else "")
        past = stone.past if stone else Past()
        node = Node(directory or "/", path, inode, self._version, self._budget, self._above(path), past, shown=shown)
        self._by_path[path] = node
        return node

    def _above(self, path: str) -> Node | None:
        outer = path.rpartition("/")[0]
        return self._by_path.get(outer or "/") if path != "/" else None

    def _expire(self) -> None:
        now = self._clock.monotonic()
        while self._tombstones:
            path, stone = next(iter(self._tombstones.items()))
            if stone.until > now:
                return
            del self._tombstones[path]

    def _trim(self, *, killed: bool) -> None:
        # Oldest first, and only among its own sort: a flood of quiet cgroups must not push a kill out.
        alike = [path for path, stone in self._tombstones.items() if bool(stone.past.kills) == killed]
        for path in alike[: max(len(alike) - (_MOST_KILLED if killed else _MOST_QUIET), 0)]:
            del self._tombstones[path]


def _depth(item: Node | Found) -> tuple[int, str]:
    return item.path.count("/") if item.path != "/" else 0, item.path
