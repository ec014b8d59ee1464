"""The latest samples of every source. A scrape reads this and nothing else."""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oomcast.metric import Metric, MetricError, Sample

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family


class _Snapshot(NamedTuple):
    """What one source published. over: how many series each metric's cap kept out of it."""

    groups: Mapping[Metric, Sequence[Sample]]
    over: Mapping[Metric, int]


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

    def put(self, source: str, samples: Iterable[Sample]) -> None:
        """Replaces what `source` published. Series above a metric's cap are left out and counted.

        Raises MetricError, and publishes nothing, for a metric outside the table.
        """
        groups: dict[Metric, list[Sample]] = {}
        for sample in samples:
            metric = sample[0].metric
            group = groups.get(metric)
            if group is None:
                if metric not in self._order:
                    raise MetricError(f"{metric.name} is not in the metric table of this daemon")
                group = groups[metric] = []
            group.append(sample)
        over = {m: len(g) - m.max_series for m, g in groups.items() if len(g) > m.max_series}
        for metric in over:
            del groups[metric][metric.max_series :]
        with self._lock:
            self._snapshots[source] = _Snapshot(groups, over)
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
            for metric, count in snapshot.over.items():
                counts[metric] = counts.get(metric, 0) + count
        return counts

    def families(self) -> list[tuple[Metric, list[Sequence[Sample]]]]:
        """Every metric with series, in the order of the table, with its groups of samples by source."""
        found: dict[Metric, list[Sequence[Sample]]] = {}
        for snapshot in self._now():
            for metric, group in snapshot.groups.items():
                found.setdefault(metric, []).append(group)
        return sorted(found.items(), key=lambda item: self._order[item[0]])

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
