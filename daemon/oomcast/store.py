"""The latest samples of every source. A scrape reads this and nothing else."""

import math
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oomcast.metric import Metric, MetricError, Sample

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family


class _Snapshot(NamedTuple):
    """What one source published. over: the series that each metric's cap kept out of it. Series by their heads.

    Readers have the groups outside the lock: they are replaced, never changed. The rest is for the writer alone.
    places: of the series in their group, for metrics that were amended. pushed: what was amended since the source's
    last run, with the monotonic time of it.
    """

    groups: Mapping[Metric, Sequence[Sample]]
    over: Mapping[Metric, frozenset[str]]
    places: dict[Metric, dict[str, int]]
    pushed: dict[str, tuple[Sample, float]]


class Store:
    """Snapshots by source; each is replaced as a whole by one assignment, so a reader never sees half of one.

    Also a prometheus_client Collector: registered on a CollectorRegistry it yields the same families that
    exposition.py writes faster.
    """

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._order = {metric: i for i, metric in enumerate(metrics)}
        if len({metric.name for metric in self._order}) != len(self._order):
            raise MetricError("the metric table names a metric twice")
        self._snapshots: dict[str, _Snapshot] = {}
        self._lock = threading.Lock()
        self.version = 0
        """Changes with every put and drop: equal versions mean equal text."""

    def put(self, source: str, samples: Iterable[Sample], began: float = math.inf) -> None:
        """Replaces what `source` published. Series above a metric's cap are left out and counted.

        began: monotonic time at which the reading of `samples` began. What was amended since then stays.
        Raises MetricError, and publishes nothing, for a metric outside the table.
        """
        groups: dict[Metric, list[Sample]] = {}
        for sample in samples:
            metric = sample[0].metric
            group = groups.get(metric)
            if group is None:
                self._require(metric)
                group = groups[metric] = []
            group.append(sample)
        over = {m: frozenset(s[0].head for s in g[m.max_series :]) for m, g in groups.items() if len(g) > m.max_series}
        for metric in over:
            del groups[metric][metric.max_series :]
        snapshot = _Snapshot(groups, over, {}, {})
        with self._lock:
            old = self._snapshots.get(source)
            # A pushed value came before or after the run read the same series: nobody knows. It is out already, so the
            # run's could only take it back (a counter that falls is a reset to Prometheus); the next run decides.
            kept = [pushed for pushed in old.pushed.values() if pushed[1] >= began] if old else ()
            for sample, at in kept:
                snapshot = _amended(snapshot, (sample,), at)
            self._snapshots[source] = snapshot
            self.version += 1

    def amend(self, source: str, samples: Sequence[Sample], at: float) -> None:
        """Replaces these series among what `source` published last, and adds those that it lacks, up to the caps.

        at: the monotonic time of it. Ignored while the source has nothing published. The last of several calls holds.
        Raises MetricError, and changes nothing, for a metric outside the table.
        """
        for sample in samples:
            self._require(sample[0].metric)
        # Under one lock from the reading of the snapshot to its replacement: what was put or dropped meanwhile would
        # otherwise be undone.
        with self._lock:
            snapshot = self._snapshots.get(source)
            if snapshot and samples:
                self._snapshots[source] = _amended(snapshot, samples, at)
                self.version += 1

    def drop(self, source: str) -> None:
        """Takes all series of `source` away."""
        with self._lock:
            if self._snapshots.pop(source, None):
                self.version += 1

    def count(self, source: str) -> int:
        """How many series `source` has."""
        snapshot = self._snapshots.get(source)
        return sum(len(group) for group in snapshot.groups.values()) if snapshot else 0

    def dropped(self) -> Mapping[Metric, int]:
        """How many series each metric's cap keeps out at present."""
        counts: dict[Metric, int] = {}
        for snapshot in self._now():
            for metric, over in snapshot.over.items():
                counts[metric] = counts.get(metric, 0) + len(over)
        return counts

    def families(self) -> list[tuple[Metric, list[Sequence[Sample]]]]:
        """Every metric with series, in the order of the table, with its groups of samples by source."""
        found: dict[Metric, list[Sequence[Sample]]] = {}
        for snapshot in self._now():
            for metric, group in snapshot.groups.items():
                found.setdefault(metric, []).append(group)
        return sorted(found.items(), key=lambda item: self._order[item[0]])

    def _require(self, metric: Metric) -> None:
        if metric not in self._order:
            raise MetricError(f"{metric.name} is not in the metric table of this daemon")

    def _now(self) -> "list[_Snapshot]":
        with self._lock:
            return list(self._snapshots.values())

    def describe(self) -> "Iterator[Family]":
        """Empty families of the whole table, so that registering does not collect."""
        from oomcast.families import empty  # see collect()

        return map(empty, self._order)

    def collect(self) -> "Iterator[Family]":
        """The prometheus_client view of `families()`."""
        # Imported when asked for: a scrape does without, and it is 1.2 MB of a daemon that has to stay small.
        from oomcast.families import filled

        return (filled(metric, groups) for metric, groups in self.families())


def _amended(snapshot: _Snapshot, samples: Iterable[Sample], at: float) -> _Snapshot:
    changed: dict[Metric, list[Sample]] = {}
    over = snapshot.over
    for sample in samples:
        metric, head = sample.series.metric, sample.series.head
        group = changed.get(metric)
        if group is None:
            group = changed[metric] = list(snapshot.groups.get(metric, ()))
        places = snapshot.places.get(metric)
        if places is None:
            places = snapshot.places[metric] = {known.series.head: place for place, known in enumerate(group)}
        place = places.get(head)
        if place is not None:
            group[place] = sample
        elif len(group) < metric.max_series:
            places[head] = len(group)
            group.append(sample)
        else:
            left_out = over.get(metric, frozenset())
            if head not in left_out:
                over = {**over, metric: left_out | {head}}
            continue
        snapshot.pushed[head] = sample, at
    return _Snapshot({**snapshot.groups, **changed}, over, snapshot.places, snapshot.pushed)
