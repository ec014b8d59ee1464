"""What an engine does: one state at a time, the worst that holds, and an event when it changes."""

from collections.abc import Mapping
from typing import Literal

from oomcast.clock import Clock
from oomcast.contract import Event
from oomcast_collectors.engine import admission
from oomcast_collectors.engine.counters import Counters
from oomcast_collectors.engine.evidence import WORST_FIRST, Finding, Signals, judge, numbers
from oomcast_collectors.engine.flow import Backlog, Throughput
from oomcast_collectors.engine.hits import Hits
from oomcast_collectors.engine.reading import Reading
from oomcast_collectors.engine.standstill import Standstill

Health = Literal["", "dead", "asleep", "loading"]
"""What else is known of the engine. dead: it says so itself (vLLM's /health is 503 once its core died). asleep: it was
put to sleep. loading: its process runs and is not ready yet."""

DEAD_AFTER = 30.0
"""Seconds of failed looks: a busy engine may be late with one answer, not with all of them."""

_UNKNOWN = "unknown"
"""What an event calls the state while nothing can be told."""

_HELD: Mapping[str, float] = {"thrashing": 30.0, "piling_up": 30.0, "saturated": 10.0, "serving": 30.0}
"""Seconds for which a state outlasts its evidence before a better one follows: load comes in waves."""


class States:
    """state: one of metrics.STATES, None while nothing can be told. evidence: why, as text."""

    def __init__(self, engine: str, clock: Clock) -> None:
        self.state: str | None = None
        self.evidence = ""
        self._engine = engine
        self._clock = clock
        self._throughput = Throughput()
        self._backlog = Backlog()
        self._standstill = Standstill()
        self._queueing_since: float | None = None
        self._failing_since: float | None = None
        self._held_at = 0.0
        self._signals: Signals | None = None
        self._restarts = 0
        self._looked = False

    def look(
        self, reading: Reading | None, at: float, counters: Counters, hits: Hits, health: Health = ""
    ) -> list[Event]:
        """Takes one look. reading: None if it failed. counters, hits: have taken it already. at: monotonic seconds."""
        if reading is None:
            found: Finding | None = self._absent(at, health)
        else:
            self._failing_since = None
            self._signals = self._combine(reading, at, counters, hits, health)
            found = judge(self._signals, self.state)
            if health == "dead":
                found = Finding("dead", f"the engine says so; last: {self._last()}")
        return self._move(found, at)

    def _absent(self, at: float, health: Health) -> Finding:
        if self._failing_since is None:
            self._failing_since = at
        silent = at - self._failing_since
        last = f"; last: {self._last()}"
        if health == "dead":
            return Finding("dead", f"the engine says so{last}")
        if health:
            return Finding("unreachable", f"{health}, no answer for {silent:.0f} s{last}")
        # One that has never answered may still be on its way.
        dead = silent >= DEAD_AFTER and self._signals is not None
        return Finding("dead" if dead else "unreachable", f"no answer for {silent:.0f} s{last}")

    def _last(self) -> str:
        """What was known when the engine last answered."""
        if self._signals is None:
            return "it has not answered yet"
        known = numbers(self._signals)
        return ", ".join(f"{name} {value:.4g}" for name, value in known.items()) or "nothing was told"

    def _combine(self, reading: Reading, at: float, counters: Counters, hits: Hits, health: Health) -> Signals:
        if counters.restarts != self._restarts:
            # What stood still before says nothing about the engine's new life.
            self._restarts = counters.restarts
            self._standstill = Standstill()
            self._queueing_since = None
        running, usage = reading.running, admission.usage(reading)
        waiting = sum(reading.waiting.values()) if reading.waiting else None
        return Signals(
            running,
            waiting,
            usage,
            self._queueing(reading, at),
            None if counters.restarted is None else at - counters.restarted,
            health == "asleep",
            self._throughput.look(bool(running), counters, at),
            self._standstill.look(reading, waiting, usage, counters, at),
            self._backlog.look(waiting, counters, at),
            hits.ratio,
            hits.collapse(at),
        )

    def _queueing(self, reading: Reading, at: float) -> float:
        # What waits for anything but memory has a reason: "deferred" until its cache arrives from elsewhere.
        waits = any(n > 0 for reason, n in reading.waiting.items() if reason in ("", "capacity"))
        if not waits:
            self._queueing_since = None
        elif self._queueing_since is None:
            self._queueing_since = at
        return 0.0 if self._queueing_since is None else at - self._queueing_since

    def _move(self, found: Finding | None, at: float) -> list[Event]:
        state = None if found is None else found.state
        if state == self.state or _mildness(state) < _mildness(self.state):
            self._held_at = at
        elif at - self._held_at < _HELD.get(self.state or "", 0.0):
            return []
        previous, self.state = self.state, state
        self._held_at = at
        self.evidence = "" if found is None else found.evidence
        first, self._looked = not self._looked, True
        return [] if first or previous == state else [self._changed(previous or _UNKNOWN, state or _UNKNOWN, at)]

    def _changed(self, old: str, new: str, at: float) -> Event:
        fields: dict[str, str | int | float] = {"engine": self._engine, "from": old, "to": new}
        fields |= {} if self._signals is None else numbers(self._signals)
        fields["evidence"] = self.evidence
        summary = f"engine {self._engine}: {old} -> {new}: {self.evidence}"
        return Event("engine_state", self._clock.time(), at, summary, fields)


def _mildness(state: str | None) -> int:
    return len(WORST_FIRST) if state is None else WORST_FIRST.index(state)
