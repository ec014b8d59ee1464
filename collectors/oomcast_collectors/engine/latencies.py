"""What the histograms of an engine gained from one look to the next, over its restarts."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from oomcast.slo import Objective
from oomcast_collectors.engine.counters import SETTLE
from oomcast_collectors.engine.length_totals import Bounds, LengthTotals, gained, sound
from oomcast_collectors.engine.reading import Lengths

Bin = tuple[float, float, float]
"""low, high, count: of values above low and up to high."""


class Gain(NamedTuple):
    """edges: the bounds of the histogram that the engine has now. bins: those with a count, from 0 to infinity."""

    edges: Bounds
    bins: list[Bin]


class Gains:
    """Of totals that never fall, by the bounds under which they were counted."""

    def __init__(self) -> None:
        self._last: Mapping[Bounds, Lengths] = {}

    def look(self, parts: Mapping[Bounds, Lengths]) -> list[Bin]:
        """The bins that gained since the last look. What the first totals hold was counted before."""
        last, self._last = self._last, parts or self._last
        if not last:
            return []
        return [one for bounds, total in parts.items() for one in _bins(gained(total, last.get(bounds)))]


class Latencies:
    """Latencies of one engine."""

    def __init__(self) -> None:
        self._histograms: dict[Objective, _Histogram] = {}

    def look(self, latencies: Mapping[Objective, Lengths], restarted: bool, at: float) -> Mapping[Objective, Gain]:
        """Takes one look's histograms; tells the gains of those that are sound. restarted: whether this look saw a
        restart. at: its monotonic seconds."""
        for histogram in self._histograms.values():
            histogram.anew = histogram.anew or restarted
        for objective, lengths in latencies.items():
            if sound(lengths):
                self._histograms.setdefault(objective, _Histogram(at)).add(lengths, at)
        return {
            objective: Gain(tuple(bound for bound, _ in lengths.buckets), self._histograms[objective].gained())
            for objective, lengths in latencies.items()
            if sound(lengths)
        }


class _Histogram:
    """anew: the engine restarted since the last look at this histogram."""

    def __init__(self, at: float) -> None:
        self.anew = False
        self._totals = LengthTotals()
        self._gains = Gains()
        self._whole_at = at

    def add(self, lengths: Lengths, at: float) -> None:
        """Takes what goes on from the last histogram, or begins at 0 after a restart. Any other is one that lacks the
        part of a process for a moment, or began anew unseen, which shows by its staying so."""
        settled = at - self._whole_at >= SETTLE
        if not self._totals.parts() or self._totals.fits(lengths):
            self._totals.add(lengths)
        elif self.anew:
            self._totals.end_life()
            self._totals.add(lengths)
        elif settled:
            self._totals.rebase(lengths)
        else:
            return
        self.anew = False
        self._whole_at = at

    def gained(self) -> list[Bin]:
        return self._gains.look(self._totals.parts())


def _bins(lengths: Lengths) -> Iterator[Bin]:
    low = below = 0.0
    for high, count in lengths.buckets:
        if count > below:
            yield low, high, count - below
        low, below = high, count
