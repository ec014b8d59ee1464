"""The child's life: who is followed, what comes from the kernel, and a report a second."""

import logging
import resource
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from oomcast.clock import SystemClock
from oomcast.contract import NotPresent, Roots
from oomcast_collectors.ebpf import metrics
from oomcast_collectors.ebpf.child.attacher import Attacher
from oomcast_collectors.ebpf.child.bcc import Bcc
from oomcast_collectors.ebpf.child.events import Events
from oomcast_collectors.ebpf.child.follow import Follower
from oomcast_collectors.ebpf.child.outlet import Outlet, Stop
from oomcast_collectors.ebpf.child.part import Process, Tools
from oomcast_collectors.ebpf.child.points import Points
from oomcast_collectors.ebpf.child.probes import Probes
from oomcast_collectors.ebpf.child.symbols import Symbols
from oomcast_collectors.ebpf.child.targets import Targets
from oomcast_collectors.ebpf.settings import EbpfSettings
from oomcast_collectors.ebpf.wire import Order, Report, Row

_WAIT = 0.1
_SCAN = 1.0
_REPORT = 1.0


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
        self._attacher = Attacher(order.proc, Points(bcc), self._log)
        self._events = Events(bcc, self._log)
        self._symbols = Symbols(bcc, order.proc)
        self._targets = Targets(settings.targets, tuple(order.serving), roots, self._clock, self._changed)
        tools = Tools(
            *(bcc, settings, self._clock, self._log, order.proc, self._events),
            *(self._targets, self._attacher, self._symbols, outlet.send),
        )
        self._follower = Follower(bcc, self._targets, self._events)
        self._probes = Probes(tools)

    def run(self) -> None:
        """Until it is told to stop."""
        try:
            self._probes.load()
            self._bcc.tidy()
            scan = report = 0.0
            while not self._stop:
                now = self._clock.monotonic()
                if now >= scan:
                    scan = now + _SCAN
                    self._targets.scan()
                self._attacher.refresh(now)
                self._probes.tick(now)
                if now >= report:
                    report = now + _REPORT
                    self._outlet.send(Report(list(self._rows())))
                self._events.wait(_WAIT)
        finally:
            self._close()

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
