"""The child's counters, carried on over its restarts, as samples."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from oomcast.metric import Kind, Metric, Sample, Series
from oomcast_collectors.ebpf import metrics
from oomcast_collectors.ebpf.wire import Row

_Key = tuple[str, tuple[str, ...]]
_MOST_SERIES = 20_000
_LARGEST = 2.0**64

BY_NAME: Mapping[str, Metric] = MappingProxyType({metric.name: metric for metric in metrics.METRICS})


class Totals:
    """Not thread-safe."""

    def __init__(self) -> None:
        self._series: dict[_Key, Series] = {}
        self._created: dict[_Key, float] = {}
        self._before: dict[_Key, float] = {}
        self._totals: dict[_Key, float] = {}
        self._gauges: dict[_Key, float] = {}

    def begin(self) -> None:
        """Another child counts from nothing; what the last one counted stays."""
        self._before = dict(self._totals)
        self._gauges = {}

    def take(self, rows: Iterable[Row], now: float) -> None:
        """now: UTC seconds. Raises ValueError on a row that is of no metric, and then takes nothing."""
        gauges: dict[_Key, float] = {}
        totals: dict[_Key, float] = {}
        new: dict[_Key, Series] = {}
        for row in rows:
            metric = BY_NAME.get(row.metric)
            if metric is None or len(row.labels) != len(metric.labels) or not _is_value(row.value, metric.kind):
                raise ValueError(f"not a series: {row!r:.200}")
            key = (row.metric, row.labels)
            if key not in self._series and key not in new:
                if len(self._series) + len(new) >= _MOST_SERIES:
                    raise ValueError(f"more than {_MOST_SERIES} series")
                new[key] = metric.series_of(row.labels)
            values = totals if metric.kind == "counter" else gauges
            values[key] = values.get(key, 0) + row.value
        self._series.update(new)
        self._created.update(dict.fromkeys(new, now))
        for key, value in totals.items():
            self._totals[key] = max(self._totals.get(key, 0), self._before.get(key, 0) + value)
        self._gauges = gauges

    def samples(self) -> list[Sample]:
        """Counters of things that are gone stay, gauges do not."""
        counters = [Sample(self._series[key], value, self._created[key]) for key, value in self._totals.items()]
        return counters + [Sample(self._series[key], value) for key, value in self._gauges.items()]


def _is_value(value: object, kind: Kind) -> bool:
    # NaN is not between any two numbers.
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return (0 if kind == "counter" else -_LARGEST) <= value <= _LARGEST
