"""Histograms, with the buckets that vLLM gives its own."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

SECONDS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
"""Of a whole request, or one of its phases."""

TO_FIRST_TOKEN = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
    *(160.0, 640.0, 2560.0),
)

BETWEEN_TOKENS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)

OF_A_STEP = tuple(float(1 << power) for power in range(15) if power not in (1, 2))
"""Tokens computed in one step."""

PREEMPTIONS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)


def lengths(most: int) -> tuple[float, ...]:
    """Tokens of a request: 1, 2, 5 and so on, up to `most`."""
    ends = (float(digit * 10**power) for power in range(len(str(most))) for digit in (1, 2, 5))
    return tuple(end for end in ends if end <= most)


class Histogram:
    """bounds: upper ends of the buckets, the smallest first, without the last one, which has none."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.sum = 0.0
        self._counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self._counts)

    def buckets(self) -> Iterator[tuple[str, int]]:
        """Each upper end, as it is written, and how many values are not above it."""
        total = 0
        for end, count in zip((*map(str, self.bounds), "+Inf"), self._counts, strict=True):
            total += count
            yield end, total
