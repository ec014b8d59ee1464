"""The samples of one page by metric, and the sums of them."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from oomcast_collectors.exposition_text import Line

MAX_VALUES = 64
MAX_RANKS = 1024
MAX_TEXT = 64
_MAX_MODEL = 256
OTHER = "other"
_LARGEST = 1e18


class Where(NamedTuple):
    """The label `label` has a value that the regular expression `value` matches as a whole."""

    label: str
    value: str


class Samples:
    """same: labels in which series differ that tell the same thing; of these the largest counts."""

    def __init__(self, lines: Iterable[Line], names: Collection[str], same: frozenset[str]) -> None:
        self._same = same
        self._lines: dict[str, list[Line]] = {}
        for line in lines:
            if line.name in names:
                self._lines.setdefault(line.name, []).append(line)

    def __contains__(self, name: str) -> bool:
        return name in self._lines

    def named(self, name: str) -> list[Line]:
        return self._lines.get(name, [])

    def keep(self, name: str, label: str) -> None:
        """Forgets, if there is that metric, the series whose value of the label it does not have."""
        if name in self:
            kept = {line.labels.get(label) for line in self.named(name)}
            self._lines = {
                name: left
                for name, lines in self._lines.items()
                if (left := [x for x in lines if x.labels.get(label) in kept])
            }

    def label(self, names: Iterable[str], label: str) -> set[str]:
        """The values that the label has on the first of `names` that has it."""
        for name in names:
            if values := {line.labels[label][:_MAX_MODEL] for line in self.named(name) if line.labels.get(label)}:
                return values
        return set()

    def values(
        self, name: str, by: str = "", where: Where | None = None, *, add: bool = True, most: int = MAX_VALUES
    ) -> dict[str, float]:
        """The sum, or without `add` the largest, of the series of a metric by the value of a label ("" without one).

        What comes after the first `most` values is under OTHER.

        A sum with a part that is no number from 0 on is left out: what is left of it would look like a restart.
        """
        series: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
        bad: set[str] = set()
        for line in self.named(name):
            if where is not None and not re.fullmatch(where.value, line.labels.get(where.label, "")):
                continue
            key = _bounded(line.labels.get(by, ""), series, most)
            if not is_amount(line.value):
                bad.add(key)
                continue
            identity = self._identity(line.labels)
            group = series.setdefault(key, {})
            group[identity] = max(line.value, group.get(identity, 0.0))
        combine = sum if add else max
        return {key: combine(group.values()) for key, group in series.items() if key not in bad}

    def split(self, name: str, label: str) -> list[dict[float, float]]:
        """Of each series its values by a label that is a number, as buckets have one; nothing if one is no amount."""
        series: dict[frozenset[tuple[str, str]], dict[float, float]] = {}
        for line in self.named(name):
            try:
                bound = float(line.labels.get(label, ""))
            except ValueError:
                return []
            if not is_amount(line.value):
                return []
            values = series.setdefault(self._identity(line.labels, label), {})
            values[bound] = max(line.value, values.get(bound, 0.0))
        return list(series.values())

    def _identity(self, labels: Mapping[str, str], but: str = "") -> frozenset[tuple[str, str]]:
        return frozenset((name, value) for name, value in labels.items() if name not in self._same and name != but)


def is_amount(value: float) -> bool:
    """Whether it is a number from 0 on; NaN is not, nor is what no counter reaches."""
    return 0 <= value < _LARGEST


def _bounded(value: str, known: Mapping[str, object], most: int) -> str:
    # Few values of few characters: a page must not make as many series of ours as it has lines.
    value = value[:MAX_TEXT]
    return value if value in known or len(known) < most else OTHER
