"""The set of watched cgroups over time: who came, who went, and who encloses whom."""

import os
from collections.abc import Iterator

from oomcast_collectors.cgroup.files import Budget
from oomcast_collectors.cgroup.node import Node
from oomcast_collectors.cgroup.tombstones import Count, Counts, Tombstones
from oomcast_collectors.cgroup.tree import Tree
from oomcast_collectors.cgroup.version import Version
from oomcast_collectors.hierarchy import Mount


class Watch:
    """Nodes for what the tree finds. Ancestors that are not selected are nodes too: their limits bind all the same.

    root: whether the root of the mount is a cgroup like others, because the mount shows only a part of the host.
    """

    def __init__(
        self, tree: Tree, mount: Mount, version: Version, budget: Budget, tombstones: Tombstones, *, root: bool
    ) -> None:
        self._tree = tree
        self._top = os.fspath(mount.path).rstrip("/")
        self._version = version
        self._budget = budget
        self._tombstones = tombstones
        self._root = root
        self._shown: dict[str, Node] = {}
        self._hidden: dict[str, Node] = {}
        self._first = True
        self.nodes: list[Node] = []
        """Every ancestor stands before its descendants."""

    @property
    def truncated(self) -> int:
        return self._tree.truncated

    @property
    def count(self) -> int:
        return len(self._shown)

    def renew(self) -> list[Node]:
        """Brings the nodes up to date with the tree; returns the new ones. Raises OSError if its root is unreadable."""
        # What enters because others made room for it may be old.
        seen = not self._first and self._tree.truncated == 0
        added, removed = self._tree.scan()
        self._first = False
        for found in removed:
            self._bury(found.path)
        came = [self._add(found.path, found.inode, seen=seen) for found in added if found.path != "/" or self._root]
        if added or removed:
            self._find_hidden()
            nodes = {**self._shown, **self._hidden}
            self.nodes = sorted(nodes.values(), key=lambda node: (_depth(node.path), node.path))
            for node in self.nodes:
                node.above = next((nodes[path] for path in self._around(node.path) if path in nodes), None)
        return came

    def lost(self, node: Node) -> None:
        """A reading said that the node is gone: the next renewal looks for it."""
        self._tree.suspect(node.path)

    def close(self) -> None:
        for path in list(self._shown):
            self._bury(path)
        for node in self._hidden.values():
            node.close()

    def _add(self, path: str, inode: int, *, seen: bool) -> Node:
        counts = self._tombstones.claim(path, inode) or Counts(Count(seen=seen), Count(seen=seen))
        node = self._shown[path] = self._node(path, inode, counts, shown=True)
        return node

    def _node(self, path: str, inode: int, counts: Counts, *, shown: bool) -> Node:
        return Node(self._directory(path), path, inode, self._version, self._budget, counts, shown=shown)

    def _bury(self, path: str) -> None:
        node = self._shown.pop(path, None)
        if node is not None:
            node.close()
            self._tombstones.bury(path, node.inode, node.counts, node.counted())

    def _find_hidden(self) -> None:
        before, self._hidden = self._hidden, {}
        for shown in self._shown:
            for path in self._around(shown):
                if path in self._shown or path in self._hidden:
                    break
                try:
                    inode = os.lstat(self._directory(path)).st_ino
                except OSError:
                    continue  # then the one inside of it is gone as well, and the next renewal finds that
                node = before.pop(path, None)
                if node is None or node.inode != inode:
                    if node is not None:
                        node.close()
                    node = self._node(path, inode, Counts(Count(seen=False), Count(seen=False)), shown=False)
                self._hidden[path] = node
        for node in before.values():
            node.close()

    def _around(self, path: str) -> Iterator[str]:
        """The paths of its ancestors, innermost first."""
        outer = path
        while outer := outer.rpartition("/")[0]:
            yield outer
        if self._root and path != "/":
            yield "/"

    def _directory(self, path: str) -> str:
        return self._top + path.rstrip("/") or "/"


def _depth(path: str) -> int:
    return path.count("/") if path != "/" else 0
