"""Memory that is given and not taken back for long: told of once, with the stacks that it was given to."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from oomcast.contract import Event
from oomcast_collectors.ebpf.child.allocations.tables import AllocationsTables
from oomcast_collectors.ebpf.child.part import Process, Tools
from oomcast_collectors.ebpf.child.symbols.symbols import Frame

_FRAMES = 20
_AGAIN = 1.5
"""Times the bytes that were told, from which on it is told again."""


class Site(NamedTuple):
    """What is outstanding of one stack, from the function that called the allocator outwards; none: not known."""

    bytes: int
    blocks: int
    frames: Sequence[Frame]


class Leaks:
    """Not thread-safe."""

    def __init__(self, tables: AllocationsTables, tools: Tools) -> None:
        self._tables = tables
        self._tools = tools
        self._settings = tools.settings.allocations
        self._told: dict[tuple[int, int], int] = {}

    def look(self, process: Process, owner: int, kind: tuple[int, str], old: tuple[int, int], now: int) -> None:
        """kind: its number and its name. old: the bytes and blocks older than leak_age. now: monotonic nanoseconds."""
        key = owner, kind[0]
        if old[0] <= self._settings.leak_bytes:
            self._told.pop(key, None)
        elif old[0] >= _AGAIN * self._told.get(key, 0):
            self._told[key] = old[0]
            self._tell(process, owner, kind, old, now)

    def forget(self, owner: int) -> None:
        for key in [key for key in self._told if key[0] == owner]:
            del self._told[key]

    def top(self, owners: dict[int, Process], kind: int, most: int, before: int | None = None) -> list[Site]:
        """The stacks with most bytes outstanding, of one kind. owners: of whom. before: only what was born before."""
        sums: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
        for block in self._tables.blocks():
            if block.kind == kind and block.owner in owners and (before is None or block.born < before):
                sums[block.owner, block.stack][0] += block.size
                sums[block.owner, block.stack][1] += 1
        largest = sorted(sums.items(), key=lambda item: -item[1][0])[:most]
        return [
            Site(size, blocks, self._frames(owners[owner].pid, stack)) for (owner, stack), (size, blocks) in largest
        ]

    def _frames(self, pid: int, stack: int) -> Sequence[Frame]:
        addresses = self._tables.addresses(stack)
        # All are addresses to return to, the first as well.
        return self._tools.symbols.frames([a - (at == 0) for at, a in enumerate(addresses)], pid)[:_FRAMES]

    def _tell(self, process: Process, owner: int, kind: tuple[int, str], old: tuple[int, int], now: int) -> None:
        settings = self._settings
        size, blocks = old
        fields: dict[str, str | int | float] = {
            **{"process": process.name, "pid": process.pid, "kind": kind[1], "bytes": size, "blocks": blocks},
            "older_than_seconds": settings.leak_age,
        }
        if process.cgroup:
            fields["cgroup"] = process.cgroup
        before = now - int(settings.leak_age * 1e9)
        for number, site in enumerate(self.top({owner: process}, kind[0], settings.stacks, before), 1):
            frames = "\n".join(map(str, site.frames)) or "[unknown]"
            fields[f"stack_{number}"] = f"{site.bytes} bytes in {site.blocks} blocks\n{frames}"
        summary = (
            f"{process.name} ({process.pid}) holds {size} bytes of {kind[1]} that were given more than "
            f"{settings.leak_age:g} s ago"
        )
        clock = self._tools.clock
        self._tools.tell(Event("allocation_leak", clock.time(), clock.monotonic(), summary, fields))
