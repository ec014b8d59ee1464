"""The daemon without HTTP: collectors, their schedule, and what becomes of their facts."""

import logging
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path

from oomcast import chores, forecast, health, reconcile, timeline, xids
from oomcast.chores import Chores
from oomcast.clock import Clock
from oomcast.contract import CollectorSpec, Roots
from oomcast.crashes import CrashReconciler
from oomcast.exposition import Exposition
from oomcast.forecast import Forecaster
from oomcast.health import Health
from oomcast.identity import identify, owner
from oomcast.metric import Metric
from oomcast.pipeline import CRASHES, XIDS, Merger, Pipeline
from oomcast.podnames import PodNames
from oomcast.reconcile import Reconciler
from oomcast.restart import Restart
from oomcast.runner import Runner
from oomcast.scheduler import Scheduler
from oomcast.settings import Settings
from oomcast.station import Station
from oomcast.store import Store
from oomcast.timeline import Timeline
from oomcast.xids import XidReconciler

CORE_METRICS: tuple[Metric, ...] = (
    *health.METRICS,
    *chores.METRICS,
    *forecast.METRICS,
    *reconcile.METRICS,
    *xids.METRICS,
    *timeline.METRICS,
)

_FIRST_STOP = 1.0
_REST = 0.05
_SELF = "oomcast"


class Core:
    """roots: where pod names are read; each collector is given those of its settings."""

    def __init__(self, specs: Sequence[CollectorSpec], roots: Roots, clock: Clock) -> None:
        self.clock = clock
        self.store = Store([*CORE_METRICS, *(metric for spec in specs for metric in spec.metrics)])
        self.exposition = Exposition(self.store)
        self.timeline = Timeline()
        log = logging.getLogger("oomcast")
        pods = PodNames(roots.pods, clock, log)
        reconciler = Reconciler(clock, lambda path: _owner(pods, path), logging.getLogger("oomcast.kills"))
        coredumps = (roots.host or Path("/")) / "var/lib/systemd/coredump"
        others: dict[str, Merger] = {
            XIDS: XidReconciler(clock, logging.getLogger("oomcast.xids")),
            CRASHES: CrashReconciler(clock, coredumps, logging.getLogger("oomcast.crashes")),
        }
        self._pipeline = Pipeline(self.store, Forecaster(), self.timeline, reconciler, clock, others)
        self.scheduler = Scheduler(clock, logging.getLogger("oomcast.scheduler"))
        self.restart = Restart(os.environ, clock)
        self.station = Station(specs, self._pipeline, self.scheduler, clock, self.restart.ask)
        work = {"schedule": self.scheduler.tick, "kills": self._pipeline.settle, "health": self._publish}
        self._chores = Chores(work, clock, log)
        self.health = Health(self.store, clock, self.scheduler, self._chores, lambda: self.station.runners)

    def start(self, settings: Settings) -> None:
        self.station.apply(settings, self.clock.monotonic() + _FIRST_STOP)
        self.scheduler.start()
        self.tick()

    def tick(self) -> None:
        """What has to be done about once a second beside the collectors' runs; never raises."""
        self._chores.run()

    def rest(self, patience: float, since: float = -math.inf) -> None:
        """Waits, at most `patience` seconds, until each collector has ended a run that began after the monotonic
        `since`, or has been given up and hangs."""
        end = self.clock.monotonic() + patience
        while self.clock.monotonic() < end and any(_awaited(runner, since) for runner in self.station.runners):
            time.sleep(_REST)
            self.scheduler.tick()
        self.tick()

    def again(self, patience: float) -> None:
        """Has each collector run anew, as `rest` has it."""
        since = self.clock.monotonic()
        self.scheduler.restart()
        self.rest(patience, since)

    def stop(self, deadline: float) -> None:
        """Stops the schedule and the collectors, before the monotonic `deadline`."""
        self.scheduler.stop()
        self.station.stop(deadline)

    def _publish(self) -> None:
        self.store.put(_SELF, [*self.health.samples(), *self.timeline.samples()])


def _awaited(runner: Runner, since: float) -> bool:
    return not runner.stuck and (runner.finished_from is None or runner.finished_from < since)


def _owner(pods: PodNames, path: str) -> str:
    identity = identify(path)
    pod = pods.pod(identity.pod_uid) if identity.pod_uid else None
    container = pods.container(identity.pod_uid, identity.container_id) if pod else ""
    return owner(identity, path, pod, container)
