"""The tables of the program `allocations`, as its C has them."""

import ctypes
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self

from oomcast_collectors.ebpf.child.bcc import Bcc
from oomcast_collectors.ebpf.child.program import Program
from oomcast_collectors.ebpf.child.tables import Table

MAPPINGS = 0
"""The space of mappings and of the break."""

LOSSES = ("blocks", "calls", "stacks", "ages", "ranges")
_HALF = 32
_LOW = (1 << _HALF) - 1
_NO_STACK = 1 << 31


class Counts(NamedTuple):
    """Of one process and kind since it is followed. live: what is outstanding."""

    calls: int = 0
    bytes: int = 0
    frees: int = 0
    freed_bytes: int = 0
    failures: int = 0
    unknown: int = 0
    live_bytes: int = 0
    live_blocks: int = 0

    def since(self, before: Self) -> "Counts":
        return Counts(*(new - old for new, old in zip(self, before, strict=True)))


class Change(NamedTuple):
    """Of what is outstanding of one process and kind, by the epoch of birth."""

    owner: int
    kind: int
    epoch: int
    bytes: int
    blocks: int


class Block(NamedTuple):
    """born: monotonic nanoseconds. stack: below 0 without one."""

    owner: int
    space: int
    address: int
    size: int
    born: int
    stack: int
    kind: int


class AllocationsTables:
    """Not thread-safe. Everything that reads raises EbpfError where the kernel refuses."""

    def __init__(self, program: Program, bcc: Bcc) -> None:
        self._program = program
        self._owners: Any = program.table("owners")
        self._heaps: Any = program.table("heaps")
        self._counts: Any = program.table("counts")
        self._sides: Any = program.table("sides")
        self._stacks: Any = program.table("stacks")
        names = ("blocks", "calls", "counts", "ages", "places")
        self._tables = {name: Table(bcc.lib, program.table(name)) for name in names}
        self._side = 0

    def enrol(self, pid: int, owner: int, kinds: Iterable[int], heap_end: int) -> None:
        """Has the program follow a process. heap_end: its break; 0 where that is not known."""
        for kind in kinds:
            self._counts[self._counts.Key(owner, kind)] = self._counts.Leaf()
        if heap_end:
            self._heaps[self._heaps.Key(owner)] = self._heaps.Leaf(heap_end, heap_end, heap_end)
        self._owners[self._owners.Key(pid)] = self._owners.Leaf(owner)

    def dismiss(self, pid: int, owner: int, kinds: Iterable[int]) -> None:
        """Ends that. What is left in the tables goes with sweep()."""
        _delete(self._owners, self._owners.Key(pid))
        _delete(self._heaps, self._heaps.Key(owner))
        for kind in kinds:
            _delete(self._counts, self._counts.Key(owner, kind))

    def counts(self) -> Mapping[tuple[int, int], Counts]:
        """By owner and kind."""
        table, fields = self._tables["counts"], len(Counts._fields)
        found = {}
        for count, keys, values in table.chunks():
            for at in range(count):
                cpus = values[at * table.value_words : (at + 1) * table.value_words]
                sums = (_signed(sum(cpus[field::fields])) for field in range(fields))
                found[keys[at] & _LOW, keys[at] >> _HALF] = Counts(*sums)
        return found

    def counts_of(self, owner: int, kind: int) -> Counts:
        """Raises KeyError when it is not followed."""
        cpus = self._counts[self._counts.Key(owner, kind)]
        names = [name for name, _ in self._counts.sLeaf._fields_]
        return Counts(*(sum(getattr(one, name) for one in cpus) for name in names))

    def changes(self) -> tuple[list[Change], list[Change]]:
        """(those until the last time, which are now the caller's, those since then, which come again).

        For a caller once in a second, so that no program is still at work on the former.
        """
        done: list[Change] = []
        since: list[Change] = []
        table = self._tables["ages"]
        for count, keys, values in table.chunks():
            for at in range(count):
                first, second = keys[2 * at], keys[2 * at + 1]
                numbers = _signed(values[2 * at]), _signed(values[2 * at + 1])
                change = Change(first & _LOW, first >> _HALF, second & _LOW, *numbers)
                (since if second >> _HALF == self._side else done).append(change)
        other = 1 - self._side
        table.delete(b"".join(_age_key(change, other) for change in done))
        self._side = other
        self._sides[self._sides.Key(0)] = self._sides.Leaf(other)
        return done, since

    def blocks(self) -> Iterator[Block]:
        for count, keys, values in self._tables["blocks"].chunks():
            rows = zip(keys[: 2 * count : 2], keys[1 : 2 * count : 2], *_columns(values, count, 3), strict=True)
            for first, address, size, born, last in rows:
                stack = last & _LOW
                signed = stack - (1 << _HALF) if stack & _NO_STACK else stack
                yield Block(first & _LOW, first >> _HALF, address, size, born, signed, last >> _HALF)

    def take_mapping(self, block: Block) -> bool:
        """Takes out a mapping that has not changed since; whether it was there."""
        table: Any = self._program.table("blocks")
        key = table.Key(block.owner, block.space, block.address)
        found = table.get(key)
        if found is None or (found.size, found.born) != (block.size, block.born):
            return False
        _delete(table, key)
        return True

    def sweep(self, owners: Collection[int], spaces: Collection[tuple[int, int]] = ()) -> None:
        """Takes out what is left of owners, and of spaces of (owner, space)."""
        of_spaces = {space << _HALF | owner for owner, space in spaces}

        def goes(first: int) -> bool:
            return first in of_spaces or first & _LOW in owners

        for name in ("blocks", "calls"):
            self._tables[name].sweep(goes)
        if owners:
            for name in ("ages", "places"):
                self._tables[name].sweep(lambda first: first & _LOW in owners)

    def stacks(self) -> set[int]:
        """The numbers of all stacks that are kept."""
        return {key.value for key in self._stacks}

    def forget_stack(self, number: int) -> None:
        _delete(self._stacks, self._stacks.Key(number))

    def addresses(self, stack: int) -> list[int]:
        """Of a stack, from the innermost on; none of one that is not kept."""
        if stack < 0:
            return []
        try:
            found = self._stacks[self._stacks.Key(stack)].ip
        except KeyError:
            return []
        return [address for address in found if address]

    def losses(self) -> Mapping[str, int]:
        """By what could not be kept."""
        return {LOSSES[key.value]: count for key, count in self._program.rows("lost")}


def _columns(words: memoryview, count: int, width: int) -> Iterator[memoryview]:
    return (words[column : width * count : width] for column in range(width))


def _signed(number: int) -> int:
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >> 63 else number


def _age_key(change: Change, side: int) -> bytes:
    return bytes((ctypes.c_uint32 * 4)(change.owner, change.kind, change.epoch, side))


def _delete(table: Any, key: Any) -> None:
    try:
        del table[key]
    except KeyError:  # gone, or never there
        return
