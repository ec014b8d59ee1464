"""Counters that are fed page by page."""

from collections.abc import Mapping

from oomcast_collectors.engine.counters import Counters
from oomcast_collectors.engine.reading import Count, Lengths, Reading


def page(
    started: float | None = None, lengths: Lengths | None = None, **counts: float | Mapping[str, float]
) -> Reading:
    named = {name: value if isinstance(value, Mapping) else {"": value} for name, value in counts.items()}
    return Reading("vllm", started=started, counts=named, lengths=lengths)  # type: ignore[arg-type]


class Fed:
    """Counters and the moment."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.at = 1000.0

    def take(self, reading: Reading | None, after: float = 1.0) -> bool:
        self.at += after
        return self.counters.look(reading, self.at)

    def totals(self, *names: Count) -> list[float | None]:
        return [self.counters.total(name) for name in names]
