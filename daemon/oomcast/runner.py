"""One collector's runs: timed, isolated, given up when overdue. Its health is data of its own, never inferred."""

import logging
import threading
from typing import Protocol, get_args

from oomcast.clock import Clock
from oomcast.contract import Collector, Facts, NotPresent, Outcome

_GAP_WINDOW = 300.0
"""Seconds for which a gap is remembered at least (twice that at most)."""


class Sink(Protocol):
    """Where a run's facts go."""

    def accept(self, source: str, facts: Facts) -> None:
        """The whole result of one run; raises when the facts break the contract."""

    def withdraw(self, source: str) -> None:
        """The source has nothing to say: its series leave /metrics."""


class Runner:
    """Runs one collector. `run()` is called from the collector's own thread, everything else from any thread."""

    def __init__(
        self, name: str, collector: Collector, timeout: float, sink: Sink, clock: Clock, log: logging.Logger
    ) -> None:
        self.name = name
        self._collector = collector
        self._timeout = timeout
        self._sink = sink
        self._clock = clock
        self._log = log
        self._lock = threading.Lock()
        self._run = 0
        self._started: float | None = None
        self._gaps = _Gaps()
        self.outcomes: dict[Outcome, int] = dict.fromkeys(get_args(Outcome), 0)
        self.overruns = 0
        self.state: Outcome | None = None
        """The last outcome; None before the first."""
        self.reason = ""
        """Why the state is not success."""
        self.duration: float | None = None
        """Seconds of the last finished run."""
        self.last_success: float | None = None
        """Wall time of the last success; None before the first."""

    def run(self) -> None:
        """One run: never raises, whatever the collector does."""
        with self._lock:
            self._run += 1
            run = self._run
            self._started = self._clock.monotonic()
            self._gaps.start(self._started)
        try:
            facts = self._collector.collect()
        except NotPresent as absence:
            gone = self.last_success is not None and not absence.removed
            self._finish(run, "failure" if gone else "absent", str(absence))
        except Exception as error:  # noqa: BLE001 - one collector's defect must never cost another's data
            self._finish(run, "failure", f"{type(error).__name__}: {error}", error)
        else:
            self._finish(run, "success", "", facts=facts)

    def expire(self) -> None:
        """Gives up a run that is overdue: its old series go now, its result is dropped whenever it comes."""
        with self._lock:
            if self._started is None or self._clock.monotonic() - self._started < self._timeout:
                return
            self._started = None
            self._run += 1
            self._settle("timeout", f"no result within {self._timeout:g} s; still waiting for it to return")
        self._sink.withdraw(self.name)

    def retire(self) -> None:
        """No result of this runner counts any more, not even that of a run that still goes on."""
        with self._lock:
            self._started = None
            self._run += 1
        self._sink.withdraw(self.name)

    def skipped(self) -> None:
        """The scheduler could not start a run since the last one still goes on."""
        with self._lock:
            self.overruns += 1

    def period(self) -> float | None:
        """Seconds between the starts of the last two runs; None before the second."""
        return self._gaps.last

    def largest_gap(self) -> float | None:
        """The largest such distance of the last 5 to 10 minutes, the one that is still open included."""
        return self._gaps.largest(self._clock.monotonic())

    def _finish(
        self, run: int, outcome: Outcome, reason: str, error: Exception | None = None, facts: Facts | None = None
    ) -> None:
        with self._lock:
            if run != self._run or self._started is None:
                self._log.info("a run that was given up returned; its result is dropped")
                return
            self.duration = self._clock.monotonic() - self._started
            self._started = None
        # Outside the lock: the sink may take its time, and expire() must not wait for it.
        if facts is None:
            self._sink.withdraw(self.name)
        else:
            try:
                self._sink.accept(self.name, facts)
            except Exception as refused:  # noqa: BLE001 - as in run()
                outcome, reason, error = "failure", f"{type(refused).__name__}: {refused}", refused
                self._sink.withdraw(self.name)
        with self._lock:
            self._settle(outcome, reason, error)

    def _settle(self, outcome: Outcome, reason: str, error: Exception | None = None) -> None:
        self.outcomes[outcome] += 1
        if outcome == "success":
            self.last_success = self._clock.time()
        if (outcome, reason) != (self.state, self.reason):
            self._tell(outcome, reason, error)
        self.state, self.reason = outcome, reason

    def _tell(self, outcome: Outcome, reason: str, error: Exception | None) -> None:
        if outcome == "success":
            if self.state is not None:
                self._log.info("collector works again")
        elif outcome == "absent":
            self._log.info("not on this machine: %s", reason)
        else:
            level = logging.WARNING if self.state != outcome else logging.DEBUG
            self._log.log(level, "collector failed: %s", reason, exc_info=error if level > logging.DEBUG else None)


class _Gaps:
    """Distances between starts: the last one, and the largest over a window kept in two halves."""

    def __init__(self) -> None:
        self.last: float | None = None
        self._at: float | None = None
        self._half_began = 0.0
        self._halves = [0.0, 0.0]

    def start(self, now: float) -> None:
        if self._at is None:
            self._half_began = now
        else:
            self.last = now - self._at
            if now - self._half_began > _GAP_WINDOW:
                self._halves = [self._halves[1], 0.0]
                self._half_began = now
            self._halves[1] = max(self._halves[1], self.last)
        self._at = now

    def largest(self, now: float) -> float | None:
        if self.last is None or self._at is None:
            return None
        return max(*self._halves, now - self._at)
