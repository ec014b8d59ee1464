"""The child's life: who is followed, what comes from the kernel, and a report a second."""

import logging
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from oomcast.clock import SystemClock
from oomcast.contract import NotPresent, Roots
from oomcast_collectors.ebpf import metrics
from oomcast_collectors.ebpf.child.allocations.part import AllocationsPart
from oomcast_collectors.ebpf.child.attacher import Attacher
from oomcast_collectors.ebpf.child.bcc import Bcc, EbpfError, NotPermitted
from oomcast_collectors.ebpf.child.events import Events
from oomcast_collectors.ebpf.child.follow import Follower
from oomcast_collectors.ebpf.child.outlet import Outlet, Stop
from oomcast_collectors.ebpf.child.part import Process, Tools
from oomcast_collectors.ebpf.child.points import Points
from oomcast_collectors.ebpf.child.probes import Probes
from oomcast_collectors.ebpf.child.symbols.symbols import Symbols
from oomcast_collectors.ebpf.child.targets import Targets
from oomcast_collectors.ebpf.settings import EbpfSettings
from oomcast_collectors.ebpf.wire import Order, Report, Row, Stack, Wanted

_WAIT = 0.1
_SCAN = 1.0
_REPORT = 1.0
_ATTACHED = 10.0
"""Seconds that it may take at most until a process is followed: what a call costs is measured first."""


class Loop:
    """Raises NotPresent from its constructor where nothing can be had."""

    def __init__(self, order: Order, outlet: Outlet, stop: Stop) -> None:
        self._outlet = outlet
        self._stop = stop
        self._clock = SystemClock()
        self._log = logging.getLogger("ebpf")
        settings = EbpfSettings.model_validate(order.settings)
        roots = Roots(proc=Path(order.proc), pods=Path(order.pods))
        try:
            bcc = Bcc()
        except OSError as error:
            raise NotPresent(str(error)) from error
        self._bcc = bcc
        self._attacher = Attacher(order.proc, Points(), self._log)
        self._events = Events(bcc, self._log)
        self._symbols = Symbols(order.proc)
        pids = (order.stacks.pid,) if order.stacks else ()
        serving = tuple(order.serving)
        self._targets = Targets(settings.targets, serving, roots, self._clock, self._changed, pids)
        tools = Tools(
            *(bcc, settings, self._clock, self._log, order.proc, self._events),
            *(self._targets, self._attacher, self._symbols, outlet.send),
        )
        try:
            self._follower = Follower(bcc, self._targets, self._events)
        except NotPermitted as error:
            raise NotPresent(str(error)) from error
        self._probes = Probes(tools)
        self._scan_due = self._report_due = 0.0

    def run(self) -> None:
        """Until it is told to stop."""
        try:
            self._load()
            while not self._stop:
                self._turn()
        finally:
            self._close()

    def observe(self, wanted: Wanted) -> None:
        """For so long; then tells the stacks that hold most of what was allocated meanwhile. Raises EbpfError."""
        try:
            self._load()
            part = self._probes.part("allocations")
            if not isinstance(part, AllocationsPart):
                raise EbpfError("the probe allocations is not loaded")
            self._until(_ATTACHED, lambda: part.follows(wanted.pid, wanted.kind))
            if not part.follows(wanted.pid, wanted.kind):
                raise EbpfError(f"process {wanted.pid} has ended, or no function of {wanted.kind}")
            self._log.info("following process %d for %g s", wanted.pid, wanted.seconds)
            self._until(wanted.seconds, lambda: False)
            for site in part.top_stacks(wanted.pid, wanted.kind, wanted.most):
                self._outlet.send(Stack(site.bytes, site.blocks, tuple(map(str, site.frames))))
        finally:
            self._close()

    def _until(self, seconds: float, done: Callable[[], bool]) -> None:
        end = self._clock.monotonic() + seconds
        while not self._stop and self._clock.monotonic() < end and not done():
            self._turn()

    def _load(self) -> None:
        self._probes.load()
        self._bcc.tidy()

    def _turn(self) -> None:
        now = self._clock.monotonic()
        if now >= self._scan_due:
            self._scan_due = now + _SCAN
            self._targets.scan()
        self._attacher.refresh(now)
        self._symbols.refresh(now)
        self._probes.tick(now)
        if now >= self._report_due:
            self._report_due = now + _REPORT
            self._outlet.send(Report(list(self._rows())))
        self._events.wait(_WAIT)

    def _changed(self, process: Process, came: bool) -> None:
        if came:
            self._follower.follow(process.pid)
            self._symbols.prime(process.pid)
            self._probes.joined(process)
            self._attacher.join(process)
        else:
            self._follower.unfollow(process.pid)
            self._attacher.leave(process.pid)
            self._probes.left(process)

    def _rows(self) -> Iterator[Row]:
        for name, number in Counter(process.name for process in self._targets).items():
            yield Row(metrics.TARGETS.name, (name,), number)
        yield from self._follower.rows()
        yield from self._probes.rows()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        yield Row(metrics.CHILD_CPU.name, (), usage.ru_utime + usage.ru_stime)

    def _close(self) -> None:
        self._probes.close()
        self._follower.close()
        self._events.close()
        self._symbols.close()
