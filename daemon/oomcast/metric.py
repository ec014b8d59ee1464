"""What a metric is, and how one series of it is named.

A `Metric` is a row of the metric table. A collector asks it once per object for a `Series` (metric plus label
values, with the text before the value already rendered) and then emits `Sample(series, value)` on every run.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "info", "stateset", "histogram"]

# process_…: the names every Prometheus client uses for its own process, which dashboards rely on.
_NAME = re.compile(r"(oomcast|process)_[a-z][a-z0-9_]*\Z")
_LABEL = re.compile(r"[a-z][a-z0-9_]*\Z")
_SUFFIX: Mapping[str, str] = {"counter": "_total", "info": "_info"}
_RESERVED = ("_count", "_sum", "_bucket", "_created")
_NOT_BASE_UNITS = ("_ms", "_us", "_ns", "_kb", "_mb", "_gb", "_mib", "_gib", "_percent", "_minutes", "_hours")
_EXPONENTS = tuple(f"e+{digits - 1:02d}" for digits in range(16))
"""By the number of digits."""

TARGET_LABELS = frozenset(
    {"job", "instance", "node", "cluster", "namespace", "pod", "container", "endpoint", "service", "le", "quantile"}
)
"""Labels that scrape configurations attach to a target (or that the format reserves): a metric never uses them."""


class MetricError(ValueError):
    """A metric or series that breaks the naming contract: a defect in a collector, not in its input."""


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One row of the metric table.

    name: as scraped, with its suffix (`_total` for counters, `_info` for info). labels: in the order that
    `series()` takes their values. max_series: how many series of it may leave one collector; what is above is
    dropped and counted. states: the values of a state set. absent: when there is no series, for docs/metrics.md.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    max_series: int = 1000
    states: tuple[str, ...] = ()
    absent: str = ""

    def __post_init__(self) -> None:
        suffix = _SUFFIX.get(self.kind, "")
        if not _NAME.match(self.name) or not self.name.endswith(suffix):
            raise MetricError(f"{self.name}: a {self.kind} is named oomcast_…{suffix}")
        if self.kind not in _SUFFIX and self.name.endswith(tuple(_SUFFIX.values())):
            raise MetricError(f"{self.name}: the suffix belongs to another kind than {self.kind}")
        if self.family.endswith(_RESERVED):
            raise MetricError(f"{self.name}: {', '.join(_RESERVED)} are what the text format adds itself")
        if self.name.removesuffix(suffix).endswith(_NOT_BASE_UNITS):
            raise MetricError(f"{self.name}: base units only (_bytes, _seconds, _ratio)")
        for label in self.labels:
            if not _LABEL.match(label) or label in TARGET_LABELS:
                raise MetricError(f"{self.name}: label {label!r} is malformed or belongs to the scrape target")
        if len(set(self.labels)) != len(self.labels):
            raise MetricError(f"{self.name}: a label is named twice")
        if bool(self.states) != (self.kind == "stateset") or not self.help:
            raise MetricError(f"{self.name}: needs a help text, and states if and only if it is a state set")

    @property
    def family(self) -> str:
        """The OpenMetrics family name: the name without the suffix of its kind."""
        return self.name.removesuffix(_SUFFIX.get(self.kind, ""))

    def series(self, *values: str) -> "Series":
        """The series with these label values, in the order of `labels`; an empty value leaves its label out.

        Raises MetricError when the number of values differs from the number of labels.
        """
        return self.series_of(values)

    def series_of(self, values: tuple[str, ...]) -> "Series":
        """The same from a tuple, which several metrics' series of one object then share."""
        if len(values) != len(self.labels):
            raise MetricError(f"{self.name}: labels {self.labels} got {len(values)} values")
        return Series(self, values)


class Series:
    """A metric with its label values. `head` is the exposition text up to the value."""

    __slots__ = ("_text", "_value", "_values", "head", "metric")

    def __init__(self, metric: Metric, values: tuple[str, ...]) -> None:
        self.metric = metric
        self._values = values
        self.head = metric.name + label_text(self.labels) + " "
        # The last value and its text: most series of most snapshots repeat, and formatting is what costs. Not the whole
        # line: with twenty thousand series the heads would be there twice.
        self._value: object = None
        self._text = ""

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        """The pairs that are not empty, sorted by name as the text format of prometheus_client has them."""
        # Made when asked for: rare, while kept they are a tenth of the memory of twenty thousand series.
        return tuple(sorted((k, _utf8(v)) for k, v in zip(self.metric.labels, self._values, strict=True) if v))

    def line(self, value: float) -> str:
        """The exposition line of this series with `value`, newline included."""
        if value != self._value:
            self._text = _ending(value) if type(value) is int else f"{go_float(value)}\n"
            self._value = value
        return self.head + self._text

    def states(self, state: str) -> str:
        """The lines of a state set that is in `state`, one for each of its states."""
        if state != self._value:
            name = self.metric.name
            pairs = self.labels
            heads = ((one, label_text(tuple(sorted((*pairs, (name, one)))))) for one in self.metric.states)
            self._text = "".join(f"{name}{labels} {float(one == state)}\n" for one, labels in heads)
            self._value = state
        return self._text

    def __repr__(self) -> str:
        return f"<Series {self.head.strip()}>"


class Histogram(NamedTuple):
    """buckets: (upper bound as text, cumulative count), ending at "+Inf"; exemplars by upper bound."""

    buckets: tuple[tuple[str, float], ...]
    sum: float
    exemplars: Mapping[str, "Exemplar"] = {}


class Exemplar(NamedTuple):
    """labels: at most 128 characters in all (OpenMetrics). time: UTC seconds, or None."""

    labels: Mapping[str, str]
    value: float
    time: float | None = None


class Sample(NamedTuple):
    """One value of one series. value: a number; for a state set the name of its state; for a histogram a
    `Histogram`. created: UTC seconds at which a counter began at 0, if that is known."""

    series: Series
    value: float | str | Histogram
    created: float | None = None
    exemplar: Exemplar | None = None


def label_text(pairs: tuple[tuple[str, str], ...]) -> str:
    """`{a="b",c="d"}` with the values escaped, or nothing without labels."""
    if not pairs:
        return ""
    return "{" + ",".join(f'{k}="{escape(v)}"' for k, v in pairs) + "}"


def escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@lru_cache(1024)
def _ending(value: int) -> str:
    """The rest of a line; the few values that most series have (0, 1, a common limit) are one text for all."""
    return f"{go_float(value)}\n"


def go_float(value: float) -> str:
    """The number as prometheus_client writes it: Go's notation, exponents from 1e+06 on."""
    if type(value) is int and 999_999 < value < 10**15:
        # Bytes and counts: the digits of an int cost a quarter of those of a float, and are the same ones.
        digits = str(value)
        tail = digits[1:].rstrip("0")
        exponent = _EXPONENTS[len(digits)]
        return f"{digits[0]}.{tail}{exponent}" if tail else digits[0] + exponent
    text = repr(float(value))
    if text[-1] == "f":
        return "+Inf" if value > 0 else "-Inf"
    if text == "nan":
        return "NaN"
    dot = text.find(".")
    if dot > 6 and value > 0:
        mantissa = f"{text[0]}.{text[1:dot]}{text[dot + 1 :]}".rstrip("0.")
        return f"{mantissa}e+{dot - 1:02d}"
    return text


def _utf8(value: str) -> str:
    # Paths from the kernel may hold any byte; a lone surrogate would make the whole scrape unencodable.
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")
