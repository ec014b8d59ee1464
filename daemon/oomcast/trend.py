"""The recent past of one level, and how fast it rises."""

import math
from array import array
from bisect import bisect_left
from statistics import median

RECENT_POINTS = 128
COARSE_POINTS = 60
COARSE_SECONDS = 10.0
_FEWEST_RECENT = 16
_SHORT_WINDOWS = (4.0, 10.0)
"""Seconds. The shortest notices a ramp, the longer one steadies it; the steepest of them counts."""

_MINUTE = 60.0
_LEAST_POINTS = 4
_LEAST_SECONDS = 2.0
_POINTS_PER_FIT = 16
"""A fit looks at every pair of points, so more points cost their square; 16 spread over the window do."""


class Trend:
    """A ring of recent points at whatever rate they come, and one of coarse points every ten seconds (10 minutes).

    Arrays of doubles, grown as needed: two thousand levels of tuples would not fit the memory budget. The recent ring
    grows beyond 16 points only for a level that is read more often than the short windows need.
    """

    __slots__ = ("_coarse", "_high", "_longest", "_low", "_recent")

    def __init__(self) -> None:
        self._recent = _Ring(_FEWEST_RECENT, RECENT_POINTS, max(_SHORT_WINDOWS))
        self._coarse = _Ring(COARSE_POINTS, COARSE_POINTS, math.inf)
        # No point of either ring is outside of these two.
        self._low = math.inf
        self._high = -math.inf
        self._longest: tuple[float, float] | None = None
        """(noise, slope) over all coarse points; None once they changed."""

    def add(self, at: float, used: float) -> None:
        """at: monotonic seconds, in ascending order (an earlier one is ignored); used: in the level's unit."""
        if self._recent.size and at <= self._recent.last_time():
            return
        self._recent.add(at, used)
        if used < self._low:
            self._low = used
        if used > self._high:
            self._high = used
        if not self._coarse.size or at - self._coarse.last_time() >= COARSE_SECONDS:
            self._coarse.add(at, used)
            self._longest = None

    def known(self) -> bool:
        """Whether there are enough points to say anything, +Inf included."""
        recent = self._recent
        return recent.size >= _LEAST_POINTS and recent.last_time() - recent.first_time() >= _LEAST_SECONDS

    def rise(self, noise: float) -> float:
        """Units per second that the level rises by, 0.0 for a level that does not.

        Theil-Sen (the median of the slopes of all pairs of points), so that one step or one bad reading does not
        make a trend. A window whose rise stays within `noise` has none.
        """
        if self._rests(noise):
            return 0.0
        last = self._recent.last_time()
        slopes = [self._slope(self._recent.since(last - seconds), noise) for seconds in _SHORT_WINDOWS]
        if min(slopes) < 0:
            return 0.0
        # A leak too slow for the short windows shows in the coarse ones; a fast ramp shows in the short ones first.
        minute = self._slope(self._coarse.since(last - _MINUTE), noise)
        if self._longest is None or self._longest[0] != noise:
            self._longest = noise, self._slope(self._coarse.since(-math.inf), noise)
        longest = self._longest[1]
        if minute <= 0 and longest * _MINUTE > noise:
            longest = 0.0  # It rose once (a model was loaded) and stands: the last minute would show a leak this fast.
        return max(*slopes, minute, longest, 0.0)

    def _rests(self, noise: float) -> bool:
        """Whether no window can have a slope, which is what most levels do most of the time."""
        if self._high - self._low <= noise:
            return True
        # What made them that wide may have left the rings since.
        self._low = min(self._recent.least(), self._coarse.least())
        self._high = max(self._recent.most(), self._coarse.most())
        return self._high - self._low <= noise

    @staticmethod
    def _slope(points: list[tuple[float, float]], noise: float) -> float:
        if len(points) < _LEAST_POINTS or points[-1][0] - points[0][0] < _LEAST_SECONDS:
            return 0.0
        values = [used for _, used in points]
        if max(values) - min(values) <= noise:
            return 0.0
        return theil_sen(points)


def theil_sen(points: list[tuple[float, float]]) -> float:
    """The median slope over all pairs of at most 16 of the points, the newest always among them."""
    step = -(-len(points) // _POINTS_PER_FIT)
    some = points[::-1][::step]
    return median(
        (some[i][1] - some[j][1]) / (some[i][0] - some[j][0]) for i in range(len(some)) for j in range(i + 1, len(some))
    )


class _Ring:
    """The newest points: `fewest` of them, and up to `most` where the last `seconds` have more.

    _at: the index of the oldest point; the newest is the one before it.
    """

    __slots__ = ("_at", "_fewest", "_most", "_seconds", "_times", "_values")

    def __init__(self, fewest: int, most: int, seconds: float) -> None:
        self._fewest = fewest
        self._most = most
        self._seconds = seconds
        self._times = array("d")
        self._values = array("d")
        self._at = 0

    @property
    def size(self) -> int:
        return len(self._times)

    def add(self, at: float, value: float) -> None:
        size = len(self._times)
        # Without the oldest, the second oldest has to reach back as far as anybody looks.
        if size < self._fewest or (size < self._most and at - self._times[(self._at + 1) % size] < self._seconds):
            end = self._at or size
            self._times.insert(end, at)
            self._values.insert(end, value)
            self._at = end + 1 if self._at else 0
        else:
            self._times[self._at] = at
            self._values[self._at] = value
            self._at = (self._at + 1) % size

    def first_time(self) -> float:
        return self._times[self._at]

    def last_time(self) -> float:
        return self._times[self._at - 1]

    def least(self) -> float:
        return min(self._values)

    def most(self) -> float:
        return max(self._values)

    def since(self, at: float) -> list[tuple[float, float]]:
        """The points from `at` on, oldest first."""
        turn = self._at
        times = self._times[turn:] + self._times[:turn]
        values = self._values[turn:] + self._values[:turn]
        start = bisect_left(times, at)
        return list(zip(times[start:], values[start:], strict=True))
