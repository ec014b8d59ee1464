"""Time to exhaustion of every level, from what cannot be reclaimed, for the binding constraint only.

Of levels that enclose one another (a container in its pod) and fill together, one incident must make one series:
the one that runs out first. It stays the binding one until another is clearly nearer, so that two limits of the
same size do not take turns.
"""

import math
import threading
from collections.abc import Iterable

from oomcast.contract import Level
from oomcast.metric import Metric, Sample, Series
from oomcast.trend import Trend

TIME_TO_EXHAUSTION = Metric(
    "oomcast_time_to_exhaustion_seconds",
    "gauge",
    "Time until the resource runs out if what cannot be reclaimed keeps rising as it does now; +Inf when it does not"
    " rise. Of resources that enclose one another only the binding one has a series.",
    ("resource", "cgroup", "gpu", "engine"),
    max_series=2000,
    absent="for the first seconds after the resource, or its cgroup, appeared; where it has no limit; where an"
    " enclosing or enclosed limit is nearer",
)
METRICS = (TIME_TO_EXHAUSTION,)

_TAKE_OVER = 0.8
"""Another level becomes the binding one when its time is below this share of the present one's."""


class Forecaster:
    """Keeps the trend of every level. Called from collectors' threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sources: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], _Track]] = {}

    def observe(self, source: str, levels: Iterable[Level], now: float, *, whole: bool) -> None:
        """now: monotonic seconds of the reading. whole: `levels` are all that the source has; others are gone."""
        with self._lock:
            tracks = self._sources.setdefault(source, {})
            seen = set()
            for level in levels:
                key = (level.resource, level.labels)
                track = tracks.get(key)
                if track is None or track.level.identity != level.identity:
                    track = tracks[key] = _Track(level)
                track.add(level, now)
                seen.add(key)
            if whole:
                for key in tracks.keys() - seen:
                    del tracks[key]
                _bind(tracks.values())

    def follows(self, source: str) -> bool:
        """Whether it has a level of this source."""
        with self._lock:
            return bool(self._sources.get(source))

    def pause(self, source: str) -> None:
        """The source has nothing to say for now: no series until it reports again. Its past is kept."""
        with self._lock:
            for track in self._sources.get(source, {}).values():
                track.remaining = None

    def samples(self) -> list[Sample]:
        """One sample per binding level that has been watched long enough."""
        with self._lock:
            return [
                Sample(track.series, track.remaining)
                for tracks in self._sources.values()
                for track in tracks.values()
                if track.binding and track.remaining is not None
            ]


class _Track:
    __slots__ = ("binding", "level", "remaining", "series", "trend")

    def __init__(self, level: Level) -> None:
        self.level = level
        self.trend = Trend()
        self.remaining: float | None = None
        self.binding = False
        labels = dict(level.labels)
        self.series: Series = TIME_TO_EXHAUSTION.series(
            level.resource, *(labels.get(name, "") for name in TIME_TO_EXHAUSTION.labels[1:])
        )

    def add(self, level: Level, now: float) -> None:
        self.level = level
        self.trend.add(now, level.used)
        if not self.trend.known():
            return
        headroom = max(level.capacity - level.used, 0.0)
        rise = self.trend.rise(level.noise)
        self.remaining = headroom / rise if rise > 0 else math.inf

    def nearness(self) -> tuple[float, float]:
        remaining = math.inf if self.remaining is None else self.remaining
        return remaining * (_TAKE_OVER if self.binding else 1.0), self.level.capacity - self.level.used


def _bind(tracks: Iterable[_Track]) -> None:
    """Marks, on each chain from an innermost level outwards, the level that runs out first."""
    by_name = {(t.level.resource, value): t for t in tracks for _, value in t.level.labels[:1]}
    enclosing = {(t.level.resource, t.level.within) for t in tracks}
    chosen = set()
    for track in tracks:
        if track.level.labels and (track.level.resource, track.level.labels[0][1]) in enclosing:
            continue
        best, outer = track, by_name.get((track.level.resource, track.level.within))
        while outer is not None:
            if outer.nearness() < best.nearness():
                best = outer
            outer = by_name.get((outer.level.resource, outer.level.within)) if outer.level.within else None
        chosen.add(id(best))
    for track in tracks:
        track.binding = id(track) in chosen
