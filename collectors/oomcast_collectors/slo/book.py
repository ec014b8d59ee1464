"""The account of one engine: what was asked of it, what missed an objective, and what was to be expected.

A request counts as predicted by the rate of its class before that rate learns of it, so predicted violations beside the
observed ones say over any span of time how good the rates are.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

from oomcast.metric import Metric, Sample, Series
from oomcast.slo import OBJECTIVES, Objective, Slo
from oomcast_collectors.slo import metrics
from oomcast_collectors.slo.classes import Classes
from oomcast_collectors.slo.tally import Tally
from oomcast_collectors.slo.window import Window

Source = Literal["requests", "histograms"]


class Book:
    """Not safe for threads: its owner has a lock. window: seconds. `at` is in monotonic seconds and never goes back.

    With the source "requests" it is told each request. With "histograms" it is told per objective either `limits` and
    what was `counted`, where classes can be told apart, or what was `observed`. Numbers by class are in the order of
    the settings' classes.
    """

    def __init__(self, slo: Slo, engine: str, source: Source, window: float) -> None:
        self._names = (engine, source)
        self._classes = Classes(slo)
        self._score = slo.risk_score.score
        self._tallies = {which: Tally(which, self._classes, window) for which in OBJECTIVES}
        self._prompts = Window(window, len(self._classes) + 1)
        self._series: dict[tuple[Metric, str, str], Series] = {}
        if source == "requests":
            for which in OBJECTIVES:
                self.limits(which, self._classes.limits(which))

    def request(
        self, prompt_tokens: int, ttft: float | None, e2e: float | None, at: float, failed: bool = False
    ) -> None:
        """One request that ended. ttft, e2e: seconds; None if not told, which does not count for that objective.
        failed: it violates each objective that its class has."""
        place = self._classes.place(prompt_tokens)
        self._prompts.step(at)
        self._prompts.totals[place] += 1
        self._prompts.totals[-1] += self._score(prompt_tokens)
        self._tallies["ttft"].request(place, ttft, failed, at)
        self._tallies["e2e"].request(place, e2e, failed, at)

    def limits(self, objective: Objective, seconds: Sequence[float | None]) -> None:
        """The objectives that are in force, by class; None: the class takes no part."""
        self._tallies[objective].limits = list(seconds)

    def counted(self, objective: Objective, requests: Sequence[float], violations: Sequence[float], at: float) -> None:
        """Requests that ended, by class, fractional where they are estimated. violations: of each at most `requests`;
        of a class that takes no part nothing is counted."""
        tally = self._tallies[objective]
        for place, (n, violated) in enumerate(zip(requests, violations, strict=True)):
            if n > 0 and tally.limits[place] is not None:
                tally.add(place, n, min(violated, n), at)

    def observed(self, objective: Objective, requests: float, violations: float, at: float) -> None:
        """Requests whose classes are not known."""
        self._tallies[objective].observed(requests, min(violations, requests), at)

    def samples(self, at: float, shares: Sequence[float] | None = None, score: float | None = None) -> list[Sample]:
        """All that is known now. shares: of the classes among the prompts of the window, in any unit; score: their mean
        score. None: those of the requests that it was told."""
        *prompts, total = self._prompts.recent(at)
        count = sum(prompts)
        if score is None and count > 0:
            score = total / count
        found = [self._of(metrics.SCORE, score)] if score is not None else []
        for tally in self._tallies.values():
            found += self._whole(tally, prompts if shares is None else shares, at)
            found += self._by_class(tally)
        return found

    def _whole(self, tally: Tally, shares: Sequence[float], at: float) -> Iterator[Sample]:
        recent = tally.recent(at)
        values = (
            (metrics.RISK, tally.risk(shares)),
            (metrics.VIOLATION_RATIO, recent.ratio),
            (metrics.CALIBRATION, recent.calibration),
        )
        for metric, value in values:
            if value is not None:
                yield self._of(metric, value, tally.objective)

    def _by_class(self, tally: Tally) -> Iterator[Sample]:
        for place, name in enumerate(self._classes.names):
            limit = tally.limits[place]
            if limit is not None:
                yield self._of(metrics.REQUESTS, tally.requests[place], tally.objective, name)
                yield self._of(metrics.VIOLATIONS, tally.violations[place], tally.objective, name)
                yield self._of(metrics.PREDICTED, tally.predicted[place], tally.objective, name)
                yield self._of(metrics.OBJECTIVE, limit, tally.objective, name)

    def _of(self, metric: Metric, value: float, objective: str = "", up_to: str = "") -> Sample:
        key = (metric, objective, up_to)
        series = self._series.get(key)
        if series is None:
            engine, source = self._names
            known = {"engine": engine, "objective": objective, "source": source, "up_to": up_to}
            series = self._series[key] = metric.series_of(tuple(known[label] for label in metric.labels))
        return Sample(series, value)
