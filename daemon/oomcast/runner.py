"""One collector's runs: timed, isolated, given up when overdue. Its health is data of its own, never inferred."""

import logging
import threading
from collections.abc import Sequence
from typing import Protocol, get_args

from oomcast.clock import Clock
from oomcast.contract import Collector, Event, Facts, NotPresent, Outcome

_GAP_WINDOW = 300.0
"""Seconds for which a gap is remembered at least (twice that at most)."""

_MOST_REASON = 500
"""Characters of a reason: an exception's text may be a whole file."""


class Sink(Protocol):
    """Where a run's facts go."""

    def accept(self, source: str, facts: Facts, began: float) -> None:
        """The whole result of one run, with its monotonic start; raises when the facts break the contract."""

    def withdraw(self, source: str) -> None:
        """The source has nothing to say: its series leave /metrics."""

    def note(self, events: Sequence[Event]) -> None:
        """What happened, from a run whose series are out of date."""


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
        self._inside = False
        self._present = False
        self._gaps = _Gaps()
        self._retired = False
        self.outcomes: dict[Outcome, int] = dict.fromkeys(get_args(Outcome), 0)
        self.overruns = 0
        self.state: Outcome | None = None
        """The last outcome; None before the first."""
        self.reason = ""
        """Why the state is not success."""
        self.duration: float | None = None
        """Seconds of the last finished run."""
        self.finished_from: float | None = None
        """Monotonic time at which that run began."""
        self.last_success: float | None = None
        """Wall time of the last success; None before the first."""

    @property
    def stuck(self) -> bool:
        """Whether a run was given up and has not returned yet: no other one begins until it does."""
        return self._inside and self._started is None

    def run(self) -> None:
        """One run: never raises, whatever the collector does."""
        with self._lock:
            self._run += 1
            run = self._run
            began = self._started = self._clock.monotonic()
            self._inside = True
            self._gaps.start(began)
        try:
            self._attempt(run, began)
        finally:
            with self._lock:
                self._inside = False

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
            self._retired = True
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

    def _attempt(self, run: int, began: float) -> None:
        try:
            facts = self._collector.collect()
            if not isinstance(facts, Facts):
                raise TypeError(f"collect() gave a {type(facts).__name__}, no Facts")
        except NotPresent as absence:
            gone = self._present and not absence.removed
            self._finish(run, began, "failure" if gone else "absent", _text(absence))
        # One collector's defect must never cost another's data; SystemExit and the like are no better in a thread.
        except BaseException as error:  # noqa: BLE001 - see above
            self._finish(run, began, "failure", f"{type(error).__name__}: {_text(error)}", error)
        else:
            self._finish(run, began, "success", "", facts=facts)

    def _finish(
        self,
        run: int,
        began: float,
        outcome: Outcome,
        reason: str,
        error: BaseException | None = None,
        facts: Facts | None = None,
    ) -> None:
        duration = self._clock.monotonic() - began
        if run != self._run:
            self._log.debug("a run that was given up returned; its series are dropped")
            # What it saw happen is told once only; a retired collector's successor has begun to count by itself.
            if facts is not None and facts.events and not self._retired:
                self._sink.note(facts.events)
            return
        # Outside the lock: the sink may take its time (it names pods from files), and expire() must not wait for it.
        if facts is None:
            self._sink.withdraw(self.name)
        else:
            try:
                self._sink.accept(self.name, facts, began)
            except Exception as refused:  # noqa: BLE001 - as in run()
                outcome, reason, error = "failure", f"{type(refused).__name__}: {_text(refused)}", refused
                self._sink.withdraw(self.name)
        with self._lock:
            given_up = run != self._run
            if not given_up:
                self._started = None
                self.duration = duration
                self.finished_from = began
                self._settle(outcome, reason, error)
        if given_up:
            # It was given up while the sink was at it, and what was withdrawn then has been published since.
            self._sink.withdraw(self.name)

    def _settle(self, outcome: Outcome, reason: str, error: BaseException | None = None) -> None:
        reason = " ".join(reason[: _MOST_REASON + 1].split())
        reason = reason if len(reason) <= _MOST_REASON else reason[:_MOST_REASON] + "…"
        self.outcomes[outcome] += 1
        if outcome == "success":
            self.last_success = self._clock.time()
        if outcome in ("success", "absent"):
            # Once the thing itself was removed, its absence is as expected as it was before the first success.
            self._present = outcome == "success"
        if (outcome, reason) != (self.state, self.reason):
            self._tell(outcome, reason, error)
        self.state, self.reason = outcome, reason

    def _tell(self, outcome: Outcome, reason: str, error: BaseException | None) -> None:
        # A reason that differs each time (a number in it) is not a change of state each time.
        changed = self.state != outcome
        if outcome == "success":
            if self.state is not None:
                self._log.info("collector works again")
        elif outcome == "absent":
            self._log.log(logging.INFO if changed else logging.DEBUG, "not on this machine: %s", reason)
        else:
            trace = error if changed else None
            self._log.log(logging.WARNING if changed else logging.DEBUG, "collector failed: %s", reason, exc_info=trace)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - a plug-in's own class, whose text is any code
        return f"(its text cannot be had: {type(broken).__name__})"


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
