"""A collector over a directory of its own, and the events that it pushes."""

import logging
import queue
import time
from pathlib import Path

from oomcast.clock import Clock, SystemClock
from oomcast.contract import Context, Event, Facts, Roots
from oomcast_collectors.kernel_log import SPEC, KernelLogCollector

FIXTURES = Path(__file__).parents[2] / "fixtures" / "kmsg"


class Bench:
    """Collectors whose /dev is `dev`, and the events that they pushed."""

    def __init__(self, dev: Path) -> None:
        self.dev = dev
        self._events: queue.Queue[Event] = queue.Queue()
        self._made: list[KernelLogCollector] = []

    def collector(self, roots: Roots | None = None, clock: Clock | None = None) -> KernelLogCollector:
        """A collector, not started yet; stopped at the end of the test."""
        log = logging.getLogger("kernel_log")
        context = Context(roots or Roots(dev=self.dev), clock or SystemClock(), log, self._push)
        made = SPEC.create(SPEC.settings.model_validate({}), context)
        assert isinstance(made, KernelLogCollector)
        self._made.append(made)
        return made

    def event(self, timeout: float = 10.0) -> Event:
        """The next event; fails after `timeout` seconds without one."""
        return self._events.get(timeout=timeout)

    def no_event(self) -> bool:
        return self._events.empty()

    def close(self) -> None:
        for collector in self._made:
            collector.stop(time.monotonic() + 2)

    def _push(self, facts: Facts) -> None:
        for event in facts.events:
            self._events.put(event)


def values(collector: KernelLogCollector) -> dict[str, float]:
    """The samples of one run, by name and labels, without the prefix that all share."""
    samples = collector.collect().samples
    found = {s.series.head.strip().removeprefix("oomcast_kernel_log_"): s.value for s in samples}
    assert len(found) == len(samples)
    return {name: value for name, value in found.items() if isinstance(value, int | float)}
