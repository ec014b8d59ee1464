"""What following allocations costs the targets, and when following libc is to pause for that."""

import time
from collections.abc import Callable, Iterator

from oomcast_collectors.ebpf.child.allocations_pairs import FLOW, Plan
from oomcast_collectors.ebpf.child.allocations_tables import Counts
from oomcast_collectors.ebpf.child.allocators import LIBC
from oomcast_collectors.ebpf.child.calibration import measure
from oomcast_collectors.ebpf.child.cost import Meter
from oomcast_collectors.ebpf.child.duty import duty
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
        flow = measure(program, tools.bcc, tools.log, enrol, dismiss, "mmap")
        # Other allocators' functions are followed as libc's are; where those are not, what mmap costs is more.
        heap = measure(program, tools.bcc, tools.log, enrol, dismiss, "malloc") if settings.libc != "off" else flow
        costs = {kind: flow if group == FLOW else heap for kind, group in plan.groups.items()}
        self._meter = Meter(program.name, costs, tools.clock.monotonic())
        self._duty = duty(settings, self._meter, tools.clock, tools.log, tools.tell)

    @property
    def share(self) -> float:
        """Of the time, in which libc is followed."""
        return self._duty.share if self._duty is not None else 0.0

    def add(self, kind: str, new: Counts) -> None:
        """What was counted since the last time."""
        self._meter.add(kind, new.calls + new.failures, new.frees + new.unknown)

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
