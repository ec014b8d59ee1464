"""What is counted of one objective of one engine."""

from collections.abc import Sequence
from typing import NamedTuple

from oomcast.slo import Objective
from oomcast_collectors.slo.classes import Classes
from oomcast_collectors.slo.rates import Rate
from oomcast_collectors.slo.window import Window

_FEWEST_PREDICTED = 1.0
"""Expected violations below which their ratio to the observed ones is a matter of chance: of 0.1, one is ten times."""


class Recent(NamedTuple):
    """Of the window; predicted is 0 where classes are not told apart."""

    requests: float
    violations: float
    predicted: float

    @property
    def ratio(self) -> float | None:
        """The observed share of violations, None without a request."""
        return min(self.violations / self.requests, 1.0) if self.requests > 0 else None

    @property
    def calibration(self) -> float | None:
        """Observed over predicted violations, None where fewer than one was predicted."""
        return self.violations / self.predicted if self.predicted >= _FEWEST_PREDICTED else None


class Tally:
    """limits: seconds by class above which a request violates, None where the class takes no part. requests,
    violations, predicted: by class, since the beginning. In the order of the classes, `at` in monotonic seconds."""

    def __init__(self, objective: Objective, classes: Classes, window: float) -> None:
        self.objective = objective
        self.limits: list[float | None] = [None] * len(classes)
        self.requests = [0.0] * len(classes)
        self.violations = [0.0] * len(classes)
        self.predicted = [0.0] * len(classes)
        self._rates = [Rate(prior) for prior in classes.priors]
        self._window = Window(window, len(Recent._fields))

    @property
    def rates(self) -> list[float]:
        """The expected shares of violations."""
        return [rate.p for rate in self._rates]

    def request(self, place: int, latency: float | None, failed: bool, at: float) -> None:
        """One request of a class; latency: None if not told."""
        limit = self.limits[place]
        if limit is None:
            return
        if failed:
            self.add(place, 1.0, 1.0, at)
        elif latency is not None:
            self.add(place, 1.0, float(latency > limit), at)

    def add(self, place: int, requests: float, violations: float, at: float) -> None:
        """Requests of a class that takes part. What is expected of them is taken from the rate before it learns."""
        rate = self._rates[place]
        expected = requests * rate.p
        rate.learn(requests, violations)
        self.requests[place] += requests
        self.violations[place] += violations
        self.predicted[place] += expected
        self._sum(requests, violations, expected, at)

    def observed(self, requests: float, violations: float, at: float) -> None:
        """Requests of which the classes are not known."""
        self._sum(requests, violations, 0.0, at)

    def recent(self, at: float) -> Recent:
        return Recent(*self._window.recent(at))

    def risk(self, shares: Sequence[float]) -> float | None:
        """The mean rate by the shares of the classes, of those that take part; None where these have no share."""
        parts = [
            (share, p) for share, p, limit in zip(shares, self.rates, self.limits, strict=True) if limit is not None
        ]
        whole = sum(share for share, _ in parts)
        return sum(share * p for share, p in parts) / whole if whole > 0 else None

    def _sum(self, requests: float, violations: float, expected: float, at: float) -> None:
        self._window.step(at)
        totals = self._window.totals
        totals[0] += requests
        totals[1] += violations
        totals[2] += expected
