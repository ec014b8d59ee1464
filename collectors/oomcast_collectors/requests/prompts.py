"""A histogram of prompt lengths, with the newest trace of each bucket."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from oomcast.metric import Exemplar, Histogram, go_float

_EDGES = (512.0, 2048.0, 8192.0, 32_768.0, 65_536.0, 131_072.0, 200_000.0, 262_144.0, float("inf"))


def edges(ends: Sequence[float]) -> tuple[float, ...]:
    """The upper bounds of the buckets: the usual ones and the ends of the length classes."""
    return tuple(sorted({*_EDGES, *ends}))


class Prompts:
    """bounds: in tokens, rising to infinity."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._names = tuple(map(go_float, bounds))
        self._counts = [0] * len(bounds)
        self._sum = 0
        self._newest: dict[str, Exemplar] = {}

    def add(self, tokens: int, trace: str | None, time: float) -> None:
        """time: UTC seconds."""
        place = bisect_left(self._bounds, tokens)
        self._counts[place] += 1
        self._sum += tokens
        if trace is not None:
            self._newest[self._names[place]] = Exemplar({"trace_id": trace}, tokens, time)

    def histogram(self) -> Histogram:
        """As it is now; what is added later does not show in it."""
        return Histogram(tuple(zip(self._names, accumulate(self._counts), strict=True)), self._sum, dict(self._newest))
