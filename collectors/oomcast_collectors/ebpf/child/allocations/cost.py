"""What following allocations costs the targets, and when following libc is to pause for that."""

import time
from collections.abc import Callable, Iterator

from oomcast_collectors.ebpf.child.allocations.allocators import LIBC
from oomcast_collectors.ebpf.child.allocations.pairs import FLOW, MEASURED, Plan
from oomcast_collectors.ebpf.child.allocations.tables import Counts
from oomcast_collectors.ebpf.child.cost.calibration import measure
from oomcast_collectors.ebpf.child.cost.duty import duty
from oomcast_collectors.ebpf.child.cost.meter import CallCost, Meter
from oomcast_collectors.ebpf.child.part import Tools
from oomcast_collectors.ebpf.child.program import Program
from oomcast_collectors.ebpf.wire import Row


class AllocationsCost:
    """Not thread-safe. now: monotonic seconds."""

    def __init__(
        self,
        program: Program,
        tools: Tools,
        plan: Plan,
        enrol: Callable[[int], None],
        dismiss: Callable[[int], None],
    ) -> None:
        """Measures, for a moment. enrol, dismiss: see measure()."""
        settings = tools.settings.allocations
        self._program = program
        self._attacher = tools.attacher
        self._groups = plan.groups

        def measured(group: str) -> CallCost | None:
            return measure(program, tools.bcc, tools.log, enrol, dismiss, group, "mmap" if group == FLOW else "malloc")

        # All allocators that are not libc's are followed in one way.
        there = {probe.group for probe in program.description.uprobes}
        by_group = {group: measured(group) for group in (FLOW, LIBC, MEASURED) if group in there}
        costs = {kind: by_group.get(group, by_group.get(MEASURED)) for kind, group in plan.groups.items()}
        self._meter = Meter(program.name, costs, tools.clock.monotonic())
        self._duty = duty(settings, self._meter, tools.clock, tools.log, tools.tell)

    @property
    def share(self) -> float:
        """Of the time, in which libc is followed."""
        return self._duty.share if self._duty is not None else 0.0

    def add(self, kind: str, new: Counts, pid: int) -> None:
        """What was counted of a process since the last time."""
        calls, frees = new.calls + new.failures, new.frees + new.unknown
        group = self._groups[kind]
        # Of libc's functions those that are called most are not among them, and what mmap costs was measured with it.
        share = 0.0 if group in (LIBC, FLOW) else self._attacher.stepped(self._program, group, pid)
        self._meter.add(kind, calls, frees, round(share * (calls + frees)))

    def switch(self, now: float) -> bool:
        """Has libc followed, or not, as its share and the budget want it; whether that is another way now."""
        if self._duty is None:
            return False
        on = self._duty.tick(now)
        if on == self._attacher.is_on(self._program, LIBC):
            return False
        began = time.monotonic()
        self._attacher.switch(self._program, LIBC, on=on)
        self._duty.switched(time.monotonic() - began)
        return True

    def rows(self, now: float) -> Iterator[Row]:
        return self._meter.rows(now)
