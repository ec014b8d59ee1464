"""The length classes of the settings, looked up by length."""

import math
from bisect import bisect_left

from oomcast.slo import Objective, Slo


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
