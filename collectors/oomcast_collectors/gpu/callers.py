"""Whoever is in the driver's library besides the session: the relays, and the watch for Xids. Sent in, called back."""

import time
from collections.abc import Collection, Sequence

from oomcast.contract import Context
from oomcast_collectors.gpu.card import Card
from oomcast_collectors.gpu.driver import Driver
from oomcast_collectors.gpu.relay import Relay
from oomcast_collectors.gpu.xid_events import XidWatch

_PATIENCE = 2.0
"""Seconds for which a call back waits."""


class Callers:
    """For the session's thread alone, but for `end`."""

    def __init__(self, driver: Driver, relays: Sequence[Relay], context: Context) -> None:
        self._driver = driver
        self._relays = relays
        self._context = context
        self._clock = context.clock
        self._xids: XidWatch | None = None
        self._leaving: list[XidWatch] = []
        """Told to stop, and still in the library when last looked at."""

    def start(self) -> None:
        for relay in self._relays:
            relay.start()

    def end(self) -> None:
        """No call of a relay begins any more. From any thread, returns at once."""
        for relay in self._relays:
            relay.end()

    @property
    def hung(self) -> bool:
        """Whether a call is known not to come back, so that calling back would be in vain."""
        self._leaving = [watch for watch in self._leaving if not watch.drained]
        return bool(self._leaving) or any(relay.hung for relay in self._relays)

    @property
    def out(self) -> bool:
        """Whether nobody is in the library; it stays so after `call_back`."""
        return not self.hung and all(relay.drained for relay in self._relays)

    def send(self, cards: Collection[Card], *, anew: bool) -> None:
        """To those of the cards that have a handle. anew: there are handles that Xids are not watched of yet."""
        present = [card for card in cards if card.device is not None]
        for relay in self._relays:
            relay.go_round(present)
        if anew or self._xids is None:
            self._stop_watching(self._clock.monotonic() + _PATIENCE)
            devices = [card.device for card in present if card.device is not None]
            self._xids = XidWatch(self._driver, devices, self._clock, self._context.push, self._context.log)
            self._xids.start()

    def call_back(self) -> bool:
        """Sends nobody in any more; whether all came out in time."""
        deadline = self._clock.monotonic() + _PATIENCE
        for relay in self._relays:
            relay.go_round(())
        self._stop_watching(deadline)
        while not self.out:
            if self._clock.monotonic() >= deadline:
                return False
            time.sleep(0.01)
        return True

    def _stop_watching(self, deadline: float) -> None:
        watch, self._xids = self._xids, None
        if watch is not None:
            watch.stop(deadline)
            self._leaving.append(watch)
