"""The probe allocations: what calls of targets gave and took back, and what is outstanding."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from oomcast_collectors.ebpf import metrics
from oomcast_collectors.ebpf.child.allocations.allocators import LIBC
from oomcast_collectors.ebpf.child.allocations.cost import AllocationsCost
from oomcast_collectors.ebpf.child.allocations.heap import break_of
from oomcast_collectors.ebpf.child.allocations.leaks import Leaks, Site
from oomcast_collectors.ebpf.child.allocations.outstanding import Outstanding
from oomcast_collectors.ebpf.child.allocations.pairs import plan
from oomcast_collectors.ebpf.child.allocations.tables import AllocationsTables, Block, Change, Counts
from oomcast_collectors.ebpf.child.allocations.totals import AllocationTotals
from oomcast_collectors.ebpf.child.allocations.upkeep import Upkeep
from oomcast_collectors.ebpf.child.part import Process, Tools
from oomcast_collectors.ebpf.child.program import Program
from oomcast_collectors.ebpf.description import SHIPPED, Description
from oomcast_collectors.ebpf.settings import EbpfSettings
from oomcast_collectors.ebpf.wire import Row

_COUNTS, _AGES = 0.25, 1.0
"""Seconds between two looks."""

_FLOW_LIVE = 1 << 16


@dataclass(slots=True, eq=False)
class _Followed:
    """A target. counts: as they were last read. Both by number of kind."""

    process: Process
    owner: int
    counts: dict[int, Counts]
    outstanding: dict[int, Outstanding]


class AllocationsPart:
    """owner: the number of a process in the program's tables, never used twice."""

    def __init__(self, program: Program, tools: Tools) -> None:
        self._program = program
        self._tools = tools
        self._settings = tools.settings.allocations
        self._plan = plan(self._settings)
        self._kinds = {number: kind for kind, number in self._plan.numbers.items()}
        self._tables = AllocationsTables(program, tools.bcc)
        self._leaks = Leaks(self._tables, tools)
        self._upkeep = Upkeep(self._tables)
        self._totals = AllocationTotals()
        self._last_owner = 0
        self._owners: dict[int, int] = {}
        self._followed: dict[int, _Followed] = {}
        self._counts_due = self._ages_due = 0.0
        tools.events.open(program, "ranges", self._upkeep.note)
        self._cost = AllocationsCost(program, tools, self._plan, self._enrol, self._dismiss)
        for group in self._plan.spaces:
            tools.attacher.switch(program, group, on=group != LIBC)

    def joined(self, process: Process) -> None:
        self._enrol(process.pid)
        owner, now = self._owners[process.pid], time.monotonic_ns()
        outstanding = {kind: Outstanding(Counts(), now) for kind in self._kinds}
        self._followed[owner] = _Followed(process, owner, dict.fromkeys(self._kinds, Counts()), outstanding)

    def left(self, process: Process) -> None:
        owner = self._owners.get(process.pid, 0)
        followed = self._followed.pop(owner, None)
        if followed is None:
            return
        for kind in self._kinds:
            self._count(followed, kind, self._tables.counts_of(owner, kind))
        self._leaks.forget(owner)
        self._dismiss(process.pid)

    def tick(self, now: float) -> None:
        if now >= self._counts_due:
            self._counts_due = now + _COUNTS
            self._read_counts()
            self._switch(now)
        if now >= self._ages_due:
            self._ages_due = now + _AGES
            self._upkeep.take_ranges(self._take)
            self._read_ages()
        self._upkeep.sweep(now)

    def rows(self) -> Iterator[Row]:
        for followed in self._followed.values():
            for kind, group in self._plan.groups.items():
                if self._points(followed, group):
                    self._totals.know((followed.process.name, kind))
        yield from self._totals.rows(self._keeps)
        yield from self._gauges()
        for kind, group in self._plan.groups.items():
            yield Row(metrics.FOLLOWED_SHARE.name, (kind,), self._share(group))
        for table, lost in self._tables.losses().items():
            yield Row(metrics.PROBE_LOST.name, (self._program.name, table), lost)
        yield from self._cost.rows(self._tools.clock.monotonic())

    def close(self) -> None:
        return

    def follows(self, pid: int, kind: str) -> bool:
        """Whether probes of a kind are attached to the process. Raises KeyError on an unknown kind."""
        followed = self._followed.get(self._owners.get(pid, 0))
        return followed is not None and self._points(followed, self._plan.groups[kind]) > 0

    def top_stacks(self, pid: int | None, kind: str, most: int) -> list[Site]:
        """The stacks with most bytes outstanding, of one process or of all. Raises KeyError on an unknown kind."""
        owners = {owner: one.process for owner, one in self._followed.items() if pid in (None, one.process.pid)}
        return self._leaks.top(owners, self._plan.numbers[kind], most)

    def _enrol(self, pid: int) -> None:
        self._last_owner += 1
        self._owners[pid] = self._last_owner
        self._tables.enrol(pid, self._last_owner, self._kinds, break_of(self._tools.proc, pid))

    def _dismiss(self, pid: int) -> None:
        owner = self._owners.pop(pid)
        self._tables.dismiss(pid, owner, self._kinds)
        self._upkeep.bury(owner)

    def _share(self, group: str) -> float:
        """Of the time in which a group is followed."""
        return self._cost.share if group == LIBC else 1.0

    def _keeps(self, kind: str) -> bool:
        """Whether blocks of a kind are followed, and not only counted."""
        return self._plan.groups[kind] != LIBC or self._settings.libc == "full"

    def _points(self, followed: _Followed, group: str) -> int:
        return self._tools.attacher.points(self._program, group, followed.process.pid)

    def _outstanding(self) -> Iterator[tuple[_Followed, int, Outstanding]]:
        """Of all that is followed all of the time, where a function of the kind was found."""
        for followed in self._followed.values():
            for kind, outstanding in followed.outstanding.items():
                name = self._kinds[kind]
                group = self._plan.groups[name]
                if self._keeps(name) and self._share(group) == 1 and self._points(followed, group):
                    yield followed, kind, outstanding

    def _gauges(self) -> Iterator[Row]:
        now = time.monotonic_ns()
        sums: Counter[tuple[str, tuple[str, ...]]] = Counter()
        growths: dict[tuple[str, ...], float] = {}
        for followed, kind, outstanding in self._outstanding():
            labels = followed.process.name, self._kinds[kind]
            for age, size, blocks in outstanding.classes(self._settings.ages, now):
                sums[metrics.OUTSTANDING_BYTES.name, (*labels, age)] += size
                sums[metrics.OUTSTANDING_BLOCKS.name, (*labels, age)] += blocks
            growth = outstanding.growth()
            if growth is not None:
                growths[labels] = growths.get(labels, 0) + growth
        for (name, of_class), value in sums.items():
            yield Row(name, of_class, value)
        for labels_of_growth, growth in growths.items():
            yield Row(metrics.GROWTH.name, labels_of_growth, growth)

    def _read_counts(self) -> None:
        for (owner, kind), counts in self._tables.counts().items():
            followed = self._followed.get(owner)
            if followed is not None:
                self._count(followed, kind, counts)

    def _count(self, followed: _Followed, kind: int, counts: Counts) -> None:
        new = counts.since(followed.counts[kind])
        followed.counts[kind] = counts
        followed.outstanding[kind].count(counts)
        if any(new):
            name = self._kinds[kind]
            self._cost.add(name, new, followed.process.pid)
            # What a call counts as it returns may be of a group that has been switched off.
            share = self._share(self._plan.groups[name]) or 1.0
            self._totals.add((followed.process.name, name), new, share)

    def _switch(self, now: float) -> None:
        if not self._cost.switch(now) or self._settings.libc != "full":
            return
        # What was outstanding is not known any more.
        kind, space = self._plan.numbers[LIBC], self._plan.spaces[LIBC]
        self._tables.sweep((), [(owner, space) for owner in self._followed])
        for followed in self._followed.values():
            followed.outstanding[kind] = Outstanding(followed.counts[kind], time.monotonic_ns())

    def _read_ages(self) -> None:
        now = time.monotonic_ns()
        done, since = map(_by_owner, self._tables.changes())
        for followed in self._followed.values():
            for kind, outstanding in followed.outstanding.items():
                key = followed.owner, kind
                outstanding.change(done.get(key, ()), since.get(key, ()), now)
        for followed, kind, outstanding in self._outstanding():
            old = outstanding.older(self._settings.leak_age, now)
            self._leaks.look(followed.process, followed.owner, (kind, self._kinds[kind]), old, now)

    def _take(self, block: Block) -> None:
        followed = self._followed[block.owner]
        followed.outstanding[block.kind].take(block.size, block.born, time.monotonic_ns())
        labels = followed.process.name, self._kinds[block.kind]
        self._totals.add(labels, Counts(freed_bytes=block.size))


def adapt(description: Description, text: str, settings: EbpfSettings) -> tuple[Description, str, Mapping[str, int]]:
    """With the allocators that the settings name, and tables for as much as they can fill."""
    planned = plan(settings.allocations)
    parts = [(SHIPPED / f"allocations_{part}.c").read_text() for part in ("calls", "places", "mappings")]
    live, most = settings.allocations.live, settings.targets.most
    constants = {
        "LIVE": live if len(planned.spaces) > 1 else min(live, _FLOW_LIVE),
        # More than are followed at once: there is one to measure what a call costs.
        "OWNERS": 2 * most,
        "COUNTS": 2 * most * len(planned.numbers),
    }
    uprobes = (*description.uprobes, *planned.uprobes)
    text = "".join((text, *parts, planned.text))
    return description.model_copy(update={"uprobes": uprobes}), text, constants


def _by_owner(changes: Sequence[Change]) -> Mapping[tuple[int, int], Sequence[Change]]:
    found: dict[tuple[int, int], list[Change]] = defaultdict(list)
    for change in changes:
        found[change.owner, change.kind].append(change)
    return found
