"""Threads that call the driver, each with a successor for when a call does not come back.

A thread per GPU costs twice as much, for it is wake-ups that cost and not calls. So one thread goes round all GPUs; a
watchdog sees when it stays with one for too long, and another thread goes on with the others. The one that was left
behind cannot be ended: when its call comes back it finishes the visit, gives its GPU back to the round, and ends.
"""

import logging
import threading
import time
from collections.abc import Sequence
from typing import Protocol

from oomcast.clock import Clock
from oomcast_collectors.gpu.card import Card

WATCH_PERIOD = 0.1
_IDLE = 1.0
_SHORT = 0.1
"""Seconds that nobody needs to be woken from: an Event's wait costs half as much again as a sleep."""


class Job(Protocol):
    """What is done with each GPU of a round."""

    name: str
    patience: float
    """Seconds that a visit may take before another thread goes on with the other GPUs."""

    def visit(self, card: Card) -> None:
        """Calls the driver, so it may hang. Never called for a card that a visit has not come back from."""

    def pause(self) -> float:
        """Asked after each round: seconds from its start to that of the next."""


class Relay:
    """Runs one job. Its threads are daemons: a hung one keeps no process alive."""

    def __init__(self, job: Job, clock: Clock, log: logging.Logger) -> None:
        self._job = job
        self._clock = clock
        self._log = log
        self._cards: Sequence[Card] = ()
        self._turn = 0
        self._inside: tuple[Card, float] | None = None
        self._left_behind = 0
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ended = False
        self._told: dict[str, str] = {}

    def start(self) -> None:
        threading.Thread(target=self._run, args=(self._turn,), name=f"gpu {self._job.name}", daemon=True).start()

    def go_round(self, cards: Sequence[Card]) -> None:
        """From now on these, and no call for another one begins any more."""
        with self._lock:
            if self._cards == tuple(cards):
                return  # or a round that takes longer than it is until the next call would never come to its end
            self._cards = tuple(cards)
        self._wake.set()

    def end(self) -> None:
        """Asks the thread to end; `drained` tells when it has left the driver."""
        self._ended = True
        self.go_round(())

    @property
    def drained(self) -> bool:
        """Whether no call is in the driver; it stays so while there are no cards to go round."""
        with self._lock:
            return self._inside is None and not self._left_behind

    @property
    def hung(self) -> bool:
        """Whether a thread was left behind in the driver."""
        with self._lock:
            return self._left_behind > 0

    def watch(self) -> None:
        """Called every WATCH_PERIOD: hands over when a call takes too long."""
        with self._lock:
            inside = self._inside
            if inside is None or self._clock.monotonic() - inside[1] < self._job.patience:
                return
            card, since = inside
            card.hanging[self._job.name] = since
            self._turn += 1
            try:
                if not self._ended:
                    self.start()
            except RuntimeError as error:  # no more threads are to be had: the next look tries again
                self._turn -= 1
                del card.hanging[self._job.name]
                self._defect(card, error)
                return
            card.handovers += 1
            self._inside = None
            self._left_behind += 1

    def _run(self, turn: int) -> None:
        due = self._clock.monotonic()
        while turn == self._turn and not self._ended:
            cards = self._cards
            self._round(cards, turn)
            now = self._clock.monotonic()
            # No catching up after a delay: readings in a burst would say nothing new.
            due = max(due + (self._job.pause() if cards else _IDLE), now)
            if due - now <= _SHORT:
                time.sleep(due - now)
            elif self._wake.wait(due - now):
                self._wake.clear()
                due = self._clock.monotonic()

    def _round(self, cards: Sequence[Card], turn: int) -> None:
        visited = None
        for card in cards:
            if card.hanging or (card.rests_until and card.rests_until > self._clock.monotonic()):
                continue
            if not self._pass(visited, card, cards, turn):
                return
            visited = card
            try:
                self._job.visit(card)
            except Exception as error:  # noqa: BLE001 - a defect must cost this GPU its reading, and no other one
                self._defect(card, error)
        self._pass(visited, None, cards, turn)

    def _pass(self, left: Card | None, entered: Card | None, cards: Sequence[Card], turn: int) -> bool:
        """From one card to the next, under the lock once. False: this round is over, since others are to be visited, or
        another thread has gone on with it."""
        with self._lock:
            if turn != self._turn:
                if left is not None:
                    self._left_behind -= 1
                    del left.hanging[self._job.name]
                return False
            if entered is None or self._cards is not cards:
                self._inside = None
                return False
            self._inside = entered, self._clock.monotonic()
            return True

    def _defect(self, card: Card, error: Exception) -> None:
        told = f"{type(error).__name__}: {error}"
        if told != self._told.get(card.uuid):
            self._told[card.uuid] = told
            self._log.error("reading a GPU failed: %s", told, exc_info=error)


class Watchdog:
    """Looks after the relays, ten times a second, in a thread that never calls the driver."""

    def __init__(self, relays: Sequence[Relay]) -> None:
        self._relays = relays
        self._ended = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="gpu watchdog", daemon=True).start()

    def end(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(WATCH_PERIOD):
            for relay in self._relays:
                relay.watch()
