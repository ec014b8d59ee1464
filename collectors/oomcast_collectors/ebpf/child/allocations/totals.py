"""What was counted of all processes of a name since the child began, by kind."""

from collections.abc import Callable, Iterator

from oomcast_collectors.ebpf import metrics
from oomcast_collectors.ebpf.child.allocations.tables import Counts
from oomcast_collectors.ebpf.wire import Row

_METRICS = (
    *(metrics.ALLOC_CALLS, metrics.ALLOC_BYTES, metrics.ALLOC_FREES, metrics.ALLOC_FREED_BYTES),
    *(metrics.ALLOC_FAILURES, metrics.ALLOC_UNKNOWN_FREES),
)
"""In the order of Counts."""

_OF_BLOCKS = (metrics.ALLOC_FREED_BYTES, metrics.ALLOC_UNKNOWN_FREES)
Labels = tuple[str, str]
"""The name of a process, and a kind."""


class AllocationTotals:
    """Not thread-safe."""

    def __init__(self) -> None:
        self._totals: dict[Labels, list[float]] = {}

    def know(self, labels: Labels) -> None:
        """It is counted, from nothing on if it was not."""
        self._totals.setdefault(labels, [0] * len(_METRICS))

    def add(self, labels: Labels, new: Counts, share: float = 1.0) -> None:
        """share: of the time in which it was counted."""
        self.know(labels)
        totals = self._totals[labels]
        for at, number in enumerate(new[: len(_METRICS)]):
            totals[at] += number if share == 1 else number / share

    def rows(self, keeps: Callable[[str], bool]) -> Iterator[Row]:
        """keeps: whether blocks of a kind are followed, and not only counted."""
        for labels, totals in self._totals.items():
            for metric, total in zip(_METRICS, totals, strict=True):
                if metric not in _OF_BLOCKS or keeps(labels[1]):
                    yield Row(metric.name, labels, total)
