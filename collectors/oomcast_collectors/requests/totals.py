"""What accepted messages add up to, by engine."""

import threading

from oomcast.clock import Clock
from oomcast.metric import Sample
from oomcast.slo import Slo
from oomcast_collectors.requests.engine import EngineTotals
from oomcast_collectors.requests.message import Message
from oomcast_collectors.slo.book import Book
from oomcast_collectors.slo.classes import Classes

IDLE = 3600.0
"""Seconds of silence after which an engine gives up its place to another one that needs it."""


class Totals:
    """most: engines at a time. window: seconds, of objectives. Thread-safe."""

    def __init__(self, slo: Slo, most: int, window: float, clock: Clock) -> None:
        self._slo = slo
        self._classes = Classes(slo)
        self._has_objectives = slo.has_objectives
        self._most = most
        self._window = window
        self._clock = clock
        self._lock = threading.Lock()
        self._engines: dict[str, EngineTotals] = {}

    def add(self, message: Message) -> bool:
        """False, and nothing is counted, if there is no room for another engine."""
        with self._lock:
            # Read under the lock: the book's time never goes back.
            at, time = self._clock.monotonic(), self._clock.time()
            engine = self._engines.get(message.engine)
            if engine is None:
                if len(self._engines) >= self._most and not self._made_room(at):
                    return False
                engine = self._engines[message.engine] = self._new(message.engine, time)
            engine.add(message, at, time)
            return True

    def samples(self) -> list[Sample]:
        with self._lock:
            at = self._clock.monotonic()
            return [sample for engine in self._engines.values() for sample in engine.samples(at)]

    def _new(self, name: str, created: float) -> EngineTotals:
        book = Book(self._slo, name, "requests", self._window) if self._has_objectives else None
        return EngineTotals(name, self._classes, book, created)

    def _made_room(self, at: float) -> bool:
        name, longest_silent = min(self._engines.items(), key=lambda item: item[1].heard)
        if at - longest_silent.heard < IDLE:
            return False
        del self._engines[name]
        return True
