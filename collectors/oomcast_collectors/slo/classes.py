"""The length classes of the settings, looked up by length."""

import math
from bisect import bisect_left
from itertools import pairwise

from oomcast.slo import Objective, Slo

Bin = tuple[float, float, float]
"""low, high, count: of values above low and up to high, which may be infinite."""

Parts = tuple[tuple[int, float], ...]
"""Classes by their places, and the share that each has of a whole."""


class Classes:
    """ends: tokens of the longest prompt of each class, infinite for the last one. names: what up_to says of each.
    priors: share of its requests taken to miss an objective."""

    def __init__(self, slo: Slo) -> None:
        self.ends = tuple(math.inf if one.up_to is None else float(one.up_to) for one in slo.classes)
        self.names = tuple("+Inf" if one.up_to is None else str(one.up_to) for one in slo.classes)
        self.priors = tuple(one.assumed for one in slo.classes)
        self._classes = slo.classes

    def __len__(self) -> int:
        return len(self.ends)

    def place(self, tokens: float) -> int:
        """The index of the class of a prompt of so many tokens."""
        return bisect_left(self.ends, tokens)

    def limits(self, objective: Objective) -> list[float | None]:
        """Seconds by class; None for one that has no such objective."""
        return [one.objective(objective) for one in self._classes]

    def parts(self, low: float, high: float, longest: float = math.inf) -> Parts:
        """The classes of prompts with a length in (low, high], spread evenly in its logarithm.

        longest: tokens that no prompt exceeds. Where lengths have no end all are in the class that begins with them.
        """
        low, high = max(low, 1.0), min(high, longest)
        if high <= low:
            return ((self.place(high), 1.0),)
        first, last = self.place(math.nextafter(low, math.inf)), self.place(high)
        if first == last or math.isinf(high):
            return ((first, 1.0),)
        inner = (low, *self.ends[first:last], high)
        width = math.log(high / low)
        return tuple(
            (first + number, math.log(end / begin) / width) for number, (begin, end) in enumerate(pairwise(inner))
        )
