"""The probe allocations: what calls of targets gave and took back, and what is outstanding."""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from oomcast_collectors.ebpf import metrics
from oomcast_collectors.ebpf.child.allocations_cost import AllocationsCost
from oomcast_collectors.ebpf.child.allocations_leaks import Leaks, Site
from oomcast_collectors.ebpf.child.allocations_outstanding import Outstanding
from oomcast_collectors.ebpf.child.allocations_pairs import plan
from oomcast_collectors.ebpf.child.allocations_tables import MAPPINGS, AllocationsTables, Change, Counts
from oomcast_collectors.ebpf.child.allocators import LIBC
from oomcast_collectors.ebpf.child.heap import break_of
from oomcast_collectors.ebpf.child.part import Process, Tools
from oomcast_collectors.ebpf.child.program import Program
from oomcast_collectors.ebpf.description import SHIPPED, Description
from oomcast_collectors.ebpf.settings import EbpfSettings
from oomcast_collectors.ebpf.wire import Row

_COUNTS, _AGES, _SWEEP = 0.25, 1.0, 5.0
"""Seconds between two looks."""

_MOST_DEAD = 50
_FLOW_LIVE = 1 << 16
_TOTALS = (
    *(metrics.ALLOC_CALLS, metrics.ALLOC_BYTES, metrics.ALLOC_FREES, metrics.ALLOC_FREED_BYTES),
    *(metrics.ALLOC_FAILURES, metrics.ALLOC_UNKNOWN_FREES),
)
_OF_BLOCKS = (metrics.ALLOC_FREED_BYTES, metrics.ALLOC_UNKNOWN_FREES)


@dataclass(slots=True, eq=False)
class _Followed:
    """A target. counts: as they were last read; outstanding: by number of kind."""

    process: Process
    counts: dict[int, Counts]
    outstanding: dict[int, Outstanding] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Range:
    """Addresses of which mappings were given back that the program did not take out itself."""

    owner: int
    start: int
    end: int
    when: int


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
        self._last_owner = 0
        self._owners: dict[int, int] = {}
        self._followed: dict[int, _Followed] = {}
        self._dead: set[int] = set()
        self._ranges: list[_Range] = []
        self._totals: dict[tuple[str, str], list[float]] = {}
        self._counts_due = self._ages_due = self._sweep_due = 0.0
        tools.events.open(program, "ranges", self._note)
        self._cost = AllocationsCost(program, tools, self._plan, self._enrol, self._dismiss)
        for group in self._plan.spaces:
            tools.attacher.switch(program, group, on=group != LIBC)

    def joined(self, process: Process) -> None:
        self._enrol(process.pid)
        owner = self._owners[process.pid]
        self._followed[owner] = _Followed(process, dict.fromkeys(self._kinds, Counts()))
        now = time.monotonic_ns()
        for kind in self._kinds:
            self._followed[owner].outstanding[kind] = Outstanding(Counts(), now)

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
            self._take_ranges()
            self._read_ages()
        if self._dead and (now >= self._sweep_due or len(self._dead) >= _MOST_DEAD):
            self._sweep_due = now + _SWEEP
            self._sweep()

    def rows(self) -> Iterator[Row]:
        self._name_kinds()
        for labels, totals in self._totals.items():
            for metric, total in zip(_TOTALS, totals, strict=True):
                if metric not in _OF_BLOCKS or self._keeps(labels[1]):
                    yield Row(metric.name, labels, total)
        now = time.monotonic_ns()
        for followed, kind, outstanding in self._outstanding():
            labels = followed.process.name, self._kinds[kind]
            for age, size, blocks in outstanding.classes(self._settings.ages, now):
                yield Row(metrics.OUTSTANDING_BYTES.name, (*labels, age), size)
                yield Row(metrics.OUTSTANDING_BLOCKS.name, (*labels, age), blocks)
            growth = outstanding.growth()
            if growth is not None:
                yield Row(metrics.GROWTH.name, labels, growth)
        for kind_name, group in self._plan.groups.items():
            yield Row(metrics.FOLLOWED_SHARE.name, (kind_name,), self._share(group))
        for table, lost in self._tables.losses().items():
            yield Row(metrics.PROBE_LOST.name, (self._program.name, table), lost)
        yield from self._cost.rows(self._tools.clock.monotonic())

    def close(self) -> None:
        return

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
        self._dead.add(owner)

    def _note(self, item: Any) -> None:
        self._ranges.append(_Range(*(getattr(item, name) for name in ("owner", "from", "to", "when"))))

    def _share(self, group: str) -> float:
        return self._cost.share if group == LIBC else 1.0

    def _keeps(self, kind: str) -> bool:
        """Whether blocks of a kind are followed, and not only counted."""
        return self._plan.groups.get(kind) != LIBC or self._settings.libc == "full"

    def _outstanding(self) -> Iterator[tuple[_Followed, int, Outstanding]]:
        """Of all that is followed all of the time, where a function of the kind was found."""
        for followed in self._followed.values():
            for kind, outstanding in followed.outstanding.items():
                name = self._kinds[kind]
                group = self._plan.groups[name]
                if self._keeps(name) and self._share(group) == 1 and self._points(followed, group):
                    yield followed, kind, outstanding

    def _points(self, followed: _Followed, group: str) -> int:
        return self._tools.attacher.points(self._program, group, followed.process.pid)

    def _name_kinds(self) -> None:
        for followed in self._followed.values():
            for kind, group in self._plan.groups.items():
                if self._points(followed, group):
                    self._totals.setdefault((followed.process.name, kind), [0] * len(_TOTALS))

    def _read_counts(self) -> None:
        for (owner, kind), counts in self._tables.counts().items():
            followed = self._followed.get(owner)
            if followed is not None:
                self._count(followed, kind, counts)

    def _count(self, followed: _Followed, kind: int, counts: Counts) -> None:
        new = counts.since(followed.counts[kind])
        followed.counts[kind] = counts
        followed.outstanding[kind].count(counts)
        if any(new[: len(_TOTALS)]):
            name = self._kinds[kind]
            self._cost.add(name, new, followed.process.pid)
            self._total(followed, name, new[: len(_TOTALS)])

    def _total(self, followed: _Followed, kind: str, new: tuple[int, ...]) -> None:
        share = self._share(self._plan.groups[kind]) or 1.0
        totals = self._totals.setdefault((followed.process.name, kind), [0] * len(_TOTALS))
        for at, number in enumerate(new):
            totals[at] += number if share == 1 else number / share

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
        for owner, followed in self._followed.items():
            for kind, outstanding in followed.outstanding.items():
                outstanding.change(done.get((owner, kind), ()), since.get((owner, kind), ()), now)
        owners = {id(followed): owner for owner, followed in self._followed.items()}
        for followed, kind, outstanding in self._outstanding():
            old = outstanding.older(self._settings.leak_age, now)
            self._leaks.look(followed.process, owners[id(followed)], (kind, self._kinds[kind]), old, now)

    def _take_ranges(self) -> None:
        ranges: dict[int, list[_Range]] = defaultdict(list)
        for one in self._ranges:
            ranges[one.owner].append(one)
        self._ranges.clear()
        if not ranges:
            return
        for block in list(self._tables.blocks()):
            followed = self._followed.get(block.owner)
            if followed is None or block.space != MAPPINGS or block.owner not in ranges:
                continue
            inside = (r.start <= block.address < r.end and block.born < r.when for r in ranges[block.owner])
            if any(inside) and self._tables.take_mapping(block) and block.kind:
                followed.outstanding[block.kind].take(block.size, block.born, time.monotonic_ns())
                self._total(followed, self._kinds[block.kind], (0, 0, 0, block.size, 0, 0))

    def _sweep(self) -> None:
        dead, self._dead = self._dead, set()
        stacks = self._tables.stacks()
        self._tables.sweep(dead)
        for stack in stacks.difference(block.stack for block in self._tables.blocks()):
            self._tables.forget_stack(stack)


def adapt(description: Description, text: str, settings: EbpfSettings) -> tuple[Description, str, Mapping[str, int]]:
    """With the allocators that the settings name, and tables for as much as they can fill."""
    planned = plan(settings.allocations)
    parts = [(SHIPPED / f"allocations_{part}.c").read_text() for part in ("calls", "mappings")]
    uprobes = (*description.uprobes, *planned.uprobes)
    live, most = settings.allocations.live, settings.targets.most
    constants = {
        "LIVE": live if len(planned.spaces) > 1 else min(live, _FLOW_LIVE),
        # One more at least than are followed at once, to measure what a call costs.
        "OWNERS": 2 * most,
        "COUNTS": 2 * most * len(planned.numbers),
    }
    text = "".join((text, *parts, planned.text))
    return description.model_copy(update={"uprobes": uprobes}), text, constants


def _by_owner(changes: list[Change]) -> Mapping[tuple[int, int], list[Change]]:
    found: dict[tuple[int, int], list[Change]] = defaultdict(list)
    for change in changes:
        found[change.owner, change.kind].append(change)
    return found
