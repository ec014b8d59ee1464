"""How often requests of a class miss an objective: assumed at first, then measured."""

LEARNED = 1000.0
"""Requests of a class from which on its rate is measured alone."""

FORGET = 10_000.0
"""Requests at which all that was counted is halved, so that what an engine did long ago is forgotten."""


class Rate:
    """Of one class and objective. prior: 0 to 1."""

    __slots__ = ("_prior", "_requests", "_seen", "_violations", "p")

    def __init__(self, prior: float) -> None:
        self.p = prior
        """The expected share, 0 to 1."""
        self._prior = prior
        self._requests = self._violations = self._seen = 0.0

    def learn(self, requests: float, violations: float) -> None:
        """requests: from 0 on, finite, fractional where they are estimated; violations: 0 to `requests`."""
        self._seen = min(self._seen + requests, LEARNED)
        self._requests += requests
        self._violations += violations
        while self._requests >= FORGET:
            self._requests /= 2
            self._violations /= 2
        if self._requests > 0:
            measured = min(self._violations / self._requests, 1.0)
            weight = 1 - self._seen / LEARNED
            self.p = weight * self._prior + (1 - weight) * measured
