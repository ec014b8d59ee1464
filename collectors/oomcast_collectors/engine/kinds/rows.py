"""What makes a `Reading` of an engine's samples, by a table of rows: the code that all kinds share.

A row says which quantity comes from which metric. Of the rows for one quantity the first with a sample counts, and of a
row's names the first; so a rename is one more name, newest first.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple, get_args

from oomcast.slo import Objective
from oomcast_collectors.engine.kinds.histograms import lengths, short
from oomcast_collectors.engine.kinds.pools import PoolField, Ranks, pools
from oomcast_collectors.engine.kinds.samples import MAX_RANKS, MAX_VALUES, Samples, Where
from oomcast_collectors.engine.kinds.units import from_blocks
from oomcast_collectors.engine.reading import Count, Kind, Lengths, Reading
from oomcast_collectors.exposition_text import Line

Scalar = Literal["running", "waiting", "max_model_len", "started"]
Target = Count | PoolField | Scalar
_COUNTS: tuple[Count, ...] = get_args(Count)
_POOL_FIELDS: tuple[PoolField, ...] = get_args(PoolField)
_LARGEST: frozenset[Target] = frozenset({"usage", "block", "max_model_len", "started"})
"""Quantities whose series cannot be added up: the largest counts."""


class Row(NamedTuple):
    """One source of one quantity.

    plus: metrics to be added; without one of them there is no quantity. by: the label whose values split it, written as
    `form` has it; label: what it is called without one. also: it joins what rows before it found, under labels of its
    own. late: a metric whose presence says that the engine has this counter, but makes it at the first event: 0.
    """

    target: Target
    names: tuple[str, ...]
    plus: tuple[str, ...] = ()
    by: str = ""
    label: str = ""
    form: str = "{}"
    where: Where | None = None
    also: bool = False
    late: str = ""


class Extra(NamedTuple):
    """Another page of the engine, JSON; an engine without it (404) is read without it.

    apply: takes the decoded JSON, of whatever type, and the reading; returns the reading with what it adds.
    live: it changes from look to look; if not, the answer of one look holds until the engine restarts.
    """

    path: str
    apply: Callable[[object, Reading], Reading]
    live: bool = False


@dataclass(frozen=True)
class Table:
    """One kind of engine.

    rank: the label of the data-parallel rank. same: labels in which series differ that tell the same thing (processes
    of one server, tensor-parallel ranks), so the largest counts and they are never added up. model: the label with the
    served name. lengths, answers: histograms of the tokens of prompts and of answers. latencies: histograms in seconds,
    of the names the first that is there. paired: the latency that is counted together with the length. blocks: pools,
    queries and hits are in blocks. only: a metric and a label; where it is there, series are left out whose value of
    that label it has not. finish: what no row can say; more: the metrics that it reads. extras: in the order to apply
    them.
    """

    kind: Kind
    rows: tuple[Row, ...]
    rank: str = ""
    same: frozenset[str] = frozenset({"pid"})
    model: str = "model_name"
    lengths: str = ""
    answers: str = ""
    latencies: Mapping[Objective, tuple[str, ...]] = field(default_factory=dict)
    paired: Objective | None = None
    blocks: bool = False
    only: tuple[str, str] | None = None
    finish: Callable[[Samples, Reading], Reading] | None = None
    more: frozenset[str] = frozenset()
    extras: tuple[Extra, ...] = ()

    @cached_property
    def names(self) -> frozenset[str]:
        """Every metric that is read, as it is written on the page."""
        names = {name for row in self.rows for name in (*row.names, *row.plus, row.late) if name}
        return frozenset(names | _parts({self.lengths, self.answers} - {""}) | self.latency_names | self.more)

    @cached_property
    def latency_names(self) -> frozenset[str]:
        """Those of them that only latencies are read from."""
        return _parts(name for names in self.latencies.values() for name in names)

    def read(self, lines: Iterable[Line]) -> Reading:
        """What the lines say; those of metrics that are not in `names` change nothing.

        No value is told that is not a number from 0 on, nor a sum with such a part.
        """
        samples = Samples(lines, self.names, self.same)
        if self.only is not None:
            samples.keep(*self.only)
        found = self._found(samples)
        running = found.get("running", {}).values()
        prompts, latencies = lengths(samples, self.lengths), self._latencies(samples)
        reading = Reading(
            self.kind,
            pools=pools(_pool_fields(found), self.blocks),
            model=self._model(samples),
            started=max(found.get("started", {}).values(), default=None),
            max_model_len=int(max(found.get("max_model_len", {}).values(), default=0)) or None,
            running=sum(running) if running else None,
            waiting=found.get("waiting", {}),
            counts=_counts(found, short(samples, self.answers)),
            lengths=prompts,
            latencies=latencies,
            paired=self.paired if prompts is not None and self.paired in latencies else None,
        )
        if "queries" in reading.counts:
            reading = from_blocks(reading) if self.blocks else replace(reading, cache_unit="tokens")
        return self.finish(samples, reading) if self.finish else reading

    def _latencies(self, samples: Samples) -> dict[Objective, Lengths]:
        found: dict[Objective, Lengths] = {}
        for objective, names in self.latencies.items():
            name = next((name for name in names if f"{name}_bucket" in samples), "")
            histogram = lengths(samples, name)
            if histogram is not None:
                found[objective] = histogram
        return found

    def _found(self, samples: Samples) -> dict[Target, dict[str, float]]:
        """By quantity and label, what the rows say. Those of pools are by rank."""
        found: dict[Target, dict[str, float]] = {}
        for row in self.rows:
            if row.target in found and not (row.also and found[row.target]):
                continue
            name = next((name for name in row.names if name in samples), None)
            if name is not None:
                values = self._values(row, name, samples)
                # What is told without its bad part would be a sum that fell.
                found[row.target] = {**found.get(row.target, {}), **values} if values or row.by else {}
            elif row.late in samples:
                found[row.target] = {row.label: 0.0}
        return found

    def _values(self, row: Row, name: str, samples: Samples) -> dict[str, float]:
        by = self.rank if row.target in _POOL_FIELDS else row.by
        add = row.target not in _LARGEST
        most = MAX_RANKS if row.target in _POOL_FIELDS else MAX_VALUES
        values = samples.values(name, by, row.where, add=add, most=most)
        for other in row.plus:
            more = samples.values(other, by, row.where, add=add, most=most)
            values = {key: value + more[key] for key, value in values.items() if key in more}
        if row.target in _POOL_FIELDS:
            return values
        return {row.form.format(key) if key else row.label: value for key, value in values.items()}

    def _model(self, samples: Samples) -> str:
        """The name that it serves under, "" where several are told."""
        models = samples.label((name for row in self.rows for name in row.names), self.model)
        return models.pop() if len(models) == 1 else ""


def _parts(histograms: Iterable[str]) -> frozenset[str]:
    return frozenset(f"{name}{end}" for name in histograms for end in ("_bucket", "_sum"))


def _pool_fields(found: Mapping[Target, Ranks]) -> Mapping[PoolField, Ranks]:
    return {field: found[field] for field in _POOL_FIELDS if field in found}


def _counts(
    found: Mapping[Target, Mapping[str, float]], answers: Mapping[str, float]
) -> dict[Count, Mapping[str, float]]:
    """Queries and hits are told together or not at all: a ratio of one alone is none."""
    counts: dict[Count, Mapping[str, float]] = {count: found[count] for count in _COUNTS if found.get(count)}
    if answers:
        counts["short"] = answers
    if ("hits" in counts) != ("queries" in counts):
        counts.pop("hits", None)
        counts.pop("queries", None)
    return counts
