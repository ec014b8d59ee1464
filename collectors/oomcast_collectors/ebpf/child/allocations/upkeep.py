"""What the program leaves in its tables for others to take out."""

from collections import defaultdict
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from oomcast_collectors.ebpf.child.allocations.tables import MAPPINGS, AllocationsTables, Block

_SWEEP = 5.0
_MOST_DEAD = 50


class _Range(NamedTuple):
    """Addresses of which mappings were given back before a moment: what starts in there does not go beyond."""

    owner: int
    start: int
    end: int
    when: int

    def holds(self, block: Block) -> bool:
        return self.start <= block.address < self.end and block.born < self.when


class Upkeep:
    """Not thread-safe."""

    def __init__(self, tables: AllocationsTables) -> None:
        self._tables = tables
        self._ranges: list[_Range] = []
        self._dead: set[int] = set()
        self._due = 0.0

    def note(self, item: Any) -> None:
        """item: of the ring buffer `ranges`."""
        self._ranges.append(_Range(*(getattr(item, name) for name in ("owner", "from", "to", "when"))))

    def bury(self, owner: int) -> None:
        """An owner is followed no more."""
        self._dead.add(owner)

    def take_ranges(self, taken: Callable[[Block], None]) -> None:
        """Takes out the mappings that were given back. taken: is told of each that is counted."""
        ranges: dict[int, list[_Range]] = defaultdict(list)
        for one in self._ranges:
            if one.owner not in self._dead:
                ranges[one.owner].append(one)
        self._ranges.clear()
        if not ranges:
            return
        mappings = [block for block in self._tables.blocks() if block.space == MAPPINGS and block.owner in ranges]
        for block in mappings:
            given_back = any(one.holds(block) for one in ranges[block.owner])
            if given_back and self._tables.take_mapping(block) and block.kind:
                taken(block)

    def sweep(self, now: float) -> None:
        """Takes out what is left of the dead, now and then: it takes a while. now: monotonic seconds."""
        if not self._dead or (now < self._due and len(self._dead) < _MOST_DEAD):
            return
        self._due = now + _SWEEP
        dead: Collection[int] = self._dead
        self._dead = set()
        stacks = self._tables.stacks()
        self._tables.sweep(dead)
        # One that a program takes meanwhile is lost to that block, and comes back with the next one.
        for stack in stacks.difference(block.stack for block in self._tables.blocks()):
            self._tables.forget_stack(stack)
