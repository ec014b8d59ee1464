"""What histograms of an engine say about its objectives, written into its book."""

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from oomcast.slo import OBJECTIVES, Objective, Slo
from oomcast_collectors.slo.attribution import Attribution
from oomcast_collectors.slo.book import Book
from oomcast_collectors.slo.classes import Bin, Classes
from oomcast_collectors.slo.limits import observed


class Gained(Protocol):
    """What one histogram gained between two looks. edges: the bounds that it has. bins: those with a count."""

    @property
    def edges(self) -> Sequence[float]: ...

    @property
    def bins(self) -> Sequence[Bin]: ...


class Histograms:
    """Of one engine. Not safe for threads, as the book."""

    def __init__(self, slo: Slo, book: Book) -> None:
        self._book = book
        self._wanted = {which: Classes(slo).limits(which) for which in OBJECTIVES}
        self._attributions = {which: Attribution(slo, which) for which in OBJECTIVES}

    def look(
        self,
        lengths: Sequence[Bin],
        latencies: Mapping[Objective, Gained],
        paired: Objective | None,
        at: float,
        longest: float = math.inf,
    ) -> None:
        """What was gained since the last look, in tokens and in seconds. paired: the objective whose latency is counted
        together with the length, None if none is. at: monotonic seconds. longest: tokens that no prompt exceeds."""
        for objective, gained in latencies.items():
            if objective == paired:
                self._attribute(objective, lengths, gained, at, longest)
            else:
                self._observe(objective, gained, at)

    def _attribute(
        self, objective: Objective, lengths: Sequence[Bin], gained: Gained, at: float, longest: float
    ) -> None:
        attribution = self._attributions[objective]
        found = attribution.look(lengths, gained.bins, gained.edges, longest)
        self._book.limits(objective, attribution.limits)
        if found is not None:
            self._book.counted(objective, found.requests, found.violations, at)

    def _observe(self, objective: Objective, gained: Gained, at: float) -> None:
        found = observed(self._wanted[objective], gained.edges, gained.bins)
        if found is not None:
            self._book.observed(objective, *found, at)
