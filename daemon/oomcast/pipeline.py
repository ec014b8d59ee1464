"""Where facts go: samples to the store, levels to the forecast, events to the timeline and the reconcilers."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from oomcast.clock import Clock
from oomcast.contract import Event, Facts, Level
from oomcast.forecast import Forecaster
from oomcast.metric import Histogram, MetricError, Sample
from oomcast.reconcile import Reconciler
from oomcast.store import Store
from oomcast.timeline import Timeline

FORECAST, KILLS, XIDS, CRASHES = "forecast", "kills", "xids", "crashes"
"""Sources in the store that are derived, not collected."""

_MOST_OUTER = 100
"""Cgroups that have a counter for an ancestor's limit before its first kill: it must not take the room of others."""


class Merger(Protocol):
    """Puts together what several witnesses tell of one thing; for any thread."""

    def see(self, events: Iterable[Event]) -> None: ...

    def settle(self) -> list[Event]:
        """What was put together since the last call, for the timeline."""

    def samples(self) -> list[Sample]: ...


class Pipeline:
    """The sink of all runners. Called from collectors' threads; every part below has its own lock.

    others: what merges other events than kills, each by the source that its samples have in the store.
    """

    def __init__(
        self,
        store: Store,
        forecaster: Forecaster,
        timeline: Timeline,
        reconciler: Reconciler,
        clock: Clock,
        others: Mapping[str, Merger] | None = None,
    ) -> None:
        self._store = store
        self._forecaster = forecaster
        self._timeline = timeline
        self._reconciler = reconciler
        self._mergers: Mapping[str, Merger] = {KILLS: reconciler, **(others or {})}
        self._clock = clock
        self._pushers: dict[str, object] = {}

    def accept(self, source: str, facts: Facts, began: float = math.inf) -> None:
        """The whole result of one run of `source`. began: its monotonic start; samples pushed since then stay.

        Raises MetricError when a sample is outside the metric table or its value is none of the metric's kind.
        """
        _check(facts.samples)
        self._store.put(source, facts.samples, began)
        self._take(source, facts, whole=True)

    def push(self, source: str) -> Callable[[Facts], None]:
        """What a collector calls between its runs. The callable raises MetricError as accept() does.

        It does nothing any more once there is another for the same source: a thread that a replaced collector left
        behind has nothing to say about its successor.
        """
        pusher = self._pushers[source] = object()

        def take(facts: Facts) -> None:
            if self._pushers[source] is not pusher:
                return
            if facts.samples:
                _check(facts.samples)
                self._store.amend(source, facts.samples, self._clock.monotonic())
            self._take(source, facts, whole=False)

        return take

    def withdraw(self, source: str) -> None:
        self._store.drop(source)
        self._forecaster.pause(source)
        self._store.put(FORECAST, self._forecaster.samples())

    def note(self, events: Sequence[Event]) -> None:
        self._timeline.add(events)
        for merger in self._mergers.values():
            merger.see(events)

    def settle(self) -> None:
        """About once a second: counts what has waited for all its witnesses."""
        for source, merger in self._mergers.items():
            self._timeline.add(merger.settle())
            self._store.put(source, merger.samples())

    def _take(self, source: str, facts: Facts, *, whole: bool) -> None:
        # A run that finds nothing left to forecast (an empty GPU, an engine that is gone) ends what was forecast.
        if facts.levels or (whole and self._forecaster.follows(source)):
            self._forecaster.observe(source, facts.levels, self._clock.monotonic(), whole=whole)
            self._store.put(FORECAST, self._forecaster.samples())
            self._know(facts.levels)
        if facts.events:
            self.note(facts.events)

    def _know(self, levels: Iterable[Level]) -> None:
        # A kill counter that exists before the first kill lets increase() see that kill.
        lowest: dict[str, Level] = {}
        outer = 0
        for level in levels:
            if level.resource != "cgroup_memory":
                continue
            cgroup = level.labels[0][1]
            self._reconciler.know(cgroup, cgroup)
            # Ancestors come first. Of equal limits the inner one is hit first.
            around = lowest.get(level.within, level)
            binding = lowest[cgroup] = around if around.capacity < level.capacity else level
            if binding is not level and outer < _MOST_OUTER:
                outer += 1
                self._reconciler.know(cgroup, binding.labels[0][1])


def _check(samples: Iterable[Sample]) -> None:
    # Here, where it costs one collector its data: found while /metrics is written it would cost everybody's.
    for sample in samples:
        value = sample[1]
        # Nearly all of thousands; a plain number can always be written.
        if type(value) is int or type(value) is float:
            continue
        metric = sample[0].metric
        if isinstance(value, str):
            fits = value in metric.states
        elif isinstance(value, Histogram):
            fits = metric.kind == "histogram"
        else:
            fits = isinstance(value, int | float)
        if not fits:
            raise MetricError(f"{metric.name} is a {metric.kind} and cannot be a {type(value).__name__}")
