"""What is known of the kills in one cgroup, and what was booked of them; kills.py has the tree that it is a node of."""

from collections import deque
from dataclasses import dataclass, field

from oomcast.contract import Event
from oomcast.kill_names import KERNEL_LOG, Names

NAMING = (KERNEL_LOG, "ebpf")
"""Witnesses that tell of each kill by itself and at once, or never."""


@dataclass(slots=True, eq=False)
class Node:
    path: str
    parent: "Node | None"
    report: Event
    own: dict[str, int] = field(default_factory=dict)
    subtree: dict[str, int] = field(default_factory=dict)
    repeated: int = 0
    repeated_here: int = 0
    known: int = 0
    known_below: int = 0
    booked: int = 0
    booked_below: int = 0
    children: int = 0
    changed: float = 0.0
    nameless: tuple[float, int] | None = None  # last booking here that nobody named: when, and all booked by then
    names: Names = field(default_factory=Names)
    history: deque[tuple[float, int]] = field(default_factory=lambda: deque([(float("-inf"), 0)]))

    def booked_here(self) -> int:
        return self.booked - self.booked_below

    def open(self) -> int:
        """Kills to be booked to this very node; below 0 while children are about to take some over."""
        return self.known - self.known_below - self.booked_here()

    def reported_here(self) -> dict[str, int]:
        """By witness, how many different victims it saw in this very cgroup."""
        return {w: n if w in NAMING else max(n - self.repeated_here, 0) for w, n in self.own.items()}

    def reported(self) -> dict[str, int]:
        """The same, here and below."""
        return {w: n if w in NAMING else max(n - self.repeated, 0) for w, n in self.subtree.items()}

    def known_at(self, time: float) -> int:
        """`known` at that moment; forgets what was before it."""
        while len(self.history) > 1 and self.history[1][0] <= time:
            self.history.popleft()
        return self.history[0][1]

    def known_since(self, time: float) -> int:
        """What was `known` at that moment and ever since: some of it may have been told to be a repetition."""
        self.known_at(time)
        return min(known for _, known in self.history)


def climb(node: Node, kills: int) -> int:
    """Accounts `kills` to the node and its ancestors; returns how many of them nobody had booked before.

    An ancestor that has booked all it knows has booked these too, then without knowing their cgroup.
    """
    while True:
        node.booked += kills
        if node.parent is None:
            return kills
        node.parent.booked_below += kills
        node = node.parent
        new = min(kills, node.known - node.booked)
        if new < kills and node.nameless is not None:
            node.nameless = node.nameless[0], node.nameless[1] - (kills - new)
        if not new:
            return 0
        kills = new


def has_room(node: Node | None) -> bool:
    """Whether it and all its ancestors know of more than they have booked."""
    while node is not None:
        if node.known <= node.booked:
            return False
        node = node.parent
    return True
