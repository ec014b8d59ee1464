"""Memory of cgroups, v1, v2 and hybrid: what is used, what of it cannot be reclaimed, limits, faults, OOM kills."""

import threading

from oomcast.contract import CollectorSpec, Context, Facts, NotPresent
from oomcast.metric import Sample
from oomcast_collectors.cgroup import metrics
from oomcast_collectors.cgroup.lane import FastLane
from oomcast_collectors.cgroup.sweep import CgroupSettings, Sweep
from oomcast_collectors.cgroup.tombstones import Tombstones
from oomcast_collectors.cgroup.troubles import Troubles
from oomcast_collectors.hierarchy import find_hierarchies

__all__ = ["SPEC", "CgroupCollector", "CgroupSettings"]


class CgroupCollector:
    """Reads every watched cgroup once per run, and those about to be full ten times a second (lane.py)."""

    def __init__(self, settings: CgroupSettings, context: Context) -> None:
        self._settings = settings
        self._context = context
        self._troubles = Troubles(context.log, context.clock)
        self._tombstones = Tombstones(context.clock, settings.tombstone)
        self._sweep: Sweep | None = None
        self._ended = False
        # The lane reads through the descriptors of nodes: none may be closed, and its number reused, meanwhile.
        self._lock = threading.Lock()
        self._lane = FastLane(context.clock, context.push, self._lock)

    def start(self) -> None:
        self._lane.start()

    def stop(self, deadline: float) -> None:
        self._ended = True
        self._lane.stop(deadline)
        if self._lock.acquire(timeout=max(deadline - self._context.clock.monotonic(), 0)):
            self._close()
            self._lock.release()

    def collect(self) -> Facts:
        with self._lock:
            if self._ended:
                raise NotPresent("it was stopped", removed=True)
            try:
                return self._run()
            finally:
                if self._ended:  # stop() did not wait for this run
                    self._close()

    def _run(self) -> Facts:
        if self._sweep and self._sweep.outdated():
            self._close()
        if self._sweep is None:
            roots = self._context.roots
            hierarchies = find_hierarchies(roots.proc, roots.host)
            self._sweep = Sweep(hierarchies, self._settings, self._context, self._troubles, self._tombstones)
        facts = self._sweep.run()
        facts.samples.append(Sample(metrics.READ_ERRORS.series(), self._troubles.errors))
        self._lane.consider(self._sweep.nodes)
        return facts

    def _close(self) -> None:
        if self._sweep:
            self._lane.consider(())
            self._sweep.close()
            self._sweep = None


SPEC = CollectorSpec(
    "cgroup",
    "memory, limits, faults and OOM kills of cgroups",
    CgroupSettings,
    metrics.METRICS,
    CgroupCollector,
)
