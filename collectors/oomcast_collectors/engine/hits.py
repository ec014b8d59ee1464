"""The hit ratio of the prefix cache over a sliding window, what is normal for this engine, and its collapse.

Computed from counters alone, by tokens: engines' own ratios are of their last batch, or of their whole life.
"""

from collections import deque
from statistics import median
from typing import NamedTuple

from oomcast_collectors.engine.history import Past

SLOT = 300.0
"""Seconds of one entry of the long-term past, at least."""

NORMAL_SPAN = 6 * 3600.0
"""Seconds of which the median is what is normal."""

FEWEST_SLOTS = 6
"""Below half an hour of traffic nothing is known to be normal."""

REUSED = 0.5
"""Normal ratio below which a workload reuses too little for its loss to matter."""

COLLAPSED = 1 / 3
RECOVERED = 1 / 2
"""Shares of the normal ratio: below the one a collapse begins, above the other it ends."""

_FORGOTTEN = 3600.0
"""Seconds after which a slot says nothing about the present."""


class Collapse(NamedTuple):
    """ratio: of the last two slots, the higher one. normal: the median of those before them."""

    ratio: float
    normal: float


class Hits:
    """Fed with totals that never fall. ratio: 0 to 1, None where too few tokens were looked up or the look failed.

    After looks that failed the window reaches back to the last one that succeeded.
    """

    def __init__(self, window: float, min_queries: float) -> None:
        self.ratio: float | None = None
        self._window = window
        self._min_queries = min_queries
        self._past = Past[tuple[float, float]](window)
        self._last: tuple[float, float] | None = None
        self._slots = _Slots(min_queries)

    def look(self, queries: float | None, hits: float | None, at: float) -> None:
        """queries, hits: tokens in all, None if the look failed or the engine does not tell. at: monotonic seconds."""
        self.ratio = None
        if queries is None or hits is None:
            return
        if self._last is not None:
            self._slots.add(queries - self._last[0], hits - self._last[1], at)
        self._last = (queries, hits)
        self._past.add(at, self._last)
        before = self._past.before(at - self._window)
        if before is not None and queries - before.value[0] >= self._min_queries:
            self.ratio = _ratio(queries - before.value[0], hits - before.value[1])

    def normal(self, at: float) -> float | None:
        """The median ratio of the last six hours, None below half an hour of traffic."""
        return self._slots.normal(at, skip=0)

    def collapse(self, at: float) -> Collapse | None:
        """How far the ratio has fallen, while it is below what is normal for two slots in a row."""
        return self._slots.collapse(at)


class _Slots:
    """Ratios of disjoint spans of SLOT seconds or more, each with enough tokens.

    A slot counts without the one look that has most queries: one long new prompt is no collapse.
    """

    def __init__(self, min_queries: float) -> None:
        self._min_queries = min_queries
        self._closed = deque[tuple[float, float]](maxlen=int(NORMAL_SPAN / SLOT))
        self._began: float | None = None
        self._queries = self._hits = 0.0
        self._largest = (0.0, 0.0)
        self._collapse: Collapse | None = None

    def add(self, queries: float, hits: float, at: float) -> None:
        if self._began is None:
            self._began = at
        self._queries += queries
        self._hits += hits
        self._largest = max(self._largest, (queries, hits))
        rest = self._queries - self._largest[0]
        if at - self._began >= SLOT and rest >= self._min_queries:
            self._closed.append((at, _ratio(rest, self._hits - self._largest[1])))
            self._began = at
            self._queries = self._hits = 0.0
            self._largest = (0.0, 0.0)
            self._collapse = self._judge(at)

    def normal(self, at: float, skip: int) -> float | None:
        """The median without the last `skip` slots."""
        ratios = [ratio for when, ratio in self._closed if at - when <= NORMAL_SPAN]
        ratios = ratios[: len(ratios) - skip]
        return median(ratios) if len(ratios) >= FEWEST_SLOTS else None

    def collapse(self, at: float) -> Collapse | None:
        return self._collapse if self._closed and at - self._closed[-1][0] <= _FORGOTTEN else None

    def _judge(self, at: float) -> Collapse | None:
        normal = self.normal(at, skip=2)
        if normal is None or normal < REUSED:
            return None
        last = self._closed[-1][1]
        if self._collapse is not None:
            return Collapse(last, normal) if last < RECOVERED * normal else None
        worst = max(last, self._closed[-2][1])
        return Collapse(worst, normal) if worst < COLLAPSED * normal else None


def _ratio(queries: float, hits: float) -> float:
    # The two counters are read one after the other: a hit may be in whose query is not.
    return min(max(hits / queries, 0.0), 1.0)
