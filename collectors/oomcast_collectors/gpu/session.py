"""The driver's library over its life: found, initialised, watched for new and lost GPUs, closed, initialised anew.

One thread of its own, since nvmlInit may take seconds or for ever. Handles are void after each initialisation, so GPUs
are known by UUID. The library must not be closed while a call is under way, so a hung one puts that off.
"""

import logging
import threading
import time
from collections.abc import Iterable, Sequence

from oomcast.contract import Context
from oomcast.logs import OnChange
from oomcast_collectors.gpu.card import Card
from oomcast_collectors.gpu.driver import Device, Driver, DriverError, Missing
from oomcast_collectors.gpu.kernel import kernel_gpus
from oomcast_collectors.gpu.relay import Relay
from oomcast_collectors.gpu.settings import GpuSettings
from oomcast_collectors.gpu.xid_events import XidWatch

_TICK = 0.5
_LOOK = 5.0
"""Seconds between two looks at which GPUs there are."""

_FEWEST, _MOST = 2.0, 60.0
"""Seconds between two attempts to initialise; the first is doubled up to the second."""

_LOST_FEWEST, _LOST_MOST = 60.0, 600.0
"""The same for the sake of a lost GPU: the others have a gap meanwhile."""

_DRAIN = 2.0


class Session:
    """cards: all GPUs known, by UUID. Everything public may be read from any thread.

    inits: how often the library was initialised. version: the driver's. counted: GPUs that the library counts.
    """

    def __init__(self, driver: Driver, settings: GpuSettings, context: Context) -> None:
        self._driver = driver
        self._settings = settings
        self._context = context
        self._clock = context.clock
        self._changes = OnChange(context.log)
        self._relays: Sequence[Relay] = ()
        self._xids: list[XidWatch] = []
        """The last one is at work; those before it were told to stop, and may hang in the driver."""
        self.cards: dict[str, Card] = {}
        self.inits = 0
        self.version = ""
        self.counted = 0
        self.error: DriverError | None = None
        """Why the library is not open."""
        self.busy_since: float | None = None
        """Monotonic time since which it is being opened."""
        self.settled = threading.Event()
        """Set once the first attempt to open it has come back."""
        self._open = False
        self._next_open = self._next_look = 0.0
        self._wait = _FEWEST
        self._lost_wait = _LOST_FEWEST
        self._next_for_lost = 0.0
        self._kernel: dict[str, str] | None = None
        self._refused: DriverError | None = None
        self._restart_asked = False
        self._ended = threading.Event()

    def start(self, relays: Sequence[Relay]) -> None:
        """relays: what goes round the cards while the library is open; started and ended here."""
        self._relays = relays
        for relay in relays:
            relay.start()
        threading.Thread(target=self._run, name="gpu session", daemon=True).start()

    def refuse(self, error: DriverError) -> None:
        """A relay met an error that is about the library. From any thread."""
        self._refused = error

    def stop(self, deadline: float) -> None:
        """Closes the library if that is safe before the monotonic `deadline`."""
        self._ended.set()
        for relay in self._relays:
            relay.end()
        self._stop_xids(deadline)
        if self._open and self._drained(deadline):
            self._open = False
            self._close()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._step(self._clock.monotonic())
            except DriverError as error:
                self._failed(error)
            except Exception as error:  # noqa: BLE001 - a defect here must not end the watch over all GPUs
                self._changes.report("defect", repr(error), logging.ERROR, f"looking after the GPUs failed: {error!r}")
            self._ended.wait(_TICK)

    def _step(self, now: float) -> None:
        refused, self._refused = self._refused, None
        if not self._open:
            if now >= self._next_open:
                self._begin(now)
        elif refused is not None:
            self._failed(refused)
        elif now >= self._next_look:
            self._next_look = now + _LOOK
            if kernel_gpus(self._context.roots.proc) != self._kernel or self._lost_are_due(now):
                self._reopen()
            else:
                self._enumerate()

    def _begin(self, now: float) -> None:
        self.busy_since = now
        try:
            self._driver.open()
            self._open = True
            self._kernel = kernel_gpus(self._context.roots.proc)
            self.version = self._driver.version()
            self._enumerate(anew=True)
        finally:
            self.busy_since = None
            self.settled.set()
        self.error = None
        self.inits += 1
        self._wait = _FEWEST
        self._next_look = self._clock.monotonic() + _LOOK
        self._changes.report("library", "", logging.INFO, f"NVML is open, driver {self.version}, {self.counted} GPUs")

    def _enumerate(self, *, anew: bool = False) -> None:
        devices, missing = self._driver.devices()
        self.counted = len(devices) + len(missing)
        cards = dict(self.cards)
        for device in devices:
            card = cards.get(device.uuid)
            if card is None:
                card = cards[device.uuid] = Card(device.uuid, self._settings, self._clock)
            if anew or card.device is None:
                card.attach(device)
        listed = {device.uuid for device in devices}
        for uuid in cards.keys() - listed:
            self._unlisted(cards, uuid, missing)
        for one in missing:
            if one.uuid and one.uuid not in cards:
                cards[one.uuid] = Card(one.uuid, self._settings, self._clock)
                cards[one.uuid].failed(one.error, "handle")
        changed = anew or cards.keys() != self.cards.keys()
        self.cards = cards
        for relay in self._relays:
            relay.go_round([card for card in cards.values() if card.device is not None])
        if changed:
            self._watch_xids(devices)

    def _unlisted(self, cards: dict[str, Card], uuid: str, missing: Iterable[Missing]) -> None:
        """A GPU that was here has no handle any more: lost, or taken away on purpose."""
        card = cards[uuid]
        pci = card.identity.pci if card.identity else ""
        if self._kernel is not None and pci not in self._kernel and uuid not in self._kernel.values():
            del cards[uuid]
            return
        error = next((one.error for one in missing if one.uuid == uuid), None)
        card.failed(error or DriverError("lost", "nvmlDeviceGetCount", 15, "the GPU is no longer listed"), "handle")
        card.device = None

    def _watch_xids(self, devices: Sequence[Device]) -> None:
        self._stop_xids(self._clock.monotonic() + _DRAIN)
        watch = XidWatch(self._driver, devices, self._clock, self._context.push, self._context.log)
        self._xids.append(watch)
        watch.start()

    def _stop_xids(self, deadline: float) -> None:
        for watch in self._xids:
            watch.stop(deadline)
        self._xids = [watch for watch in self._xids if not watch.drained]

    def _lost_are_due(self, now: float) -> bool:
        if all(card.state not in ("lost", "reset_required") for card in self.cards.values()):
            self._lost_wait = _LOST_FEWEST
            self._next_for_lost = now + self._lost_wait
            return False
        if now < self._next_for_lost:
            return False
        self._lost_wait = min(2 * self._lost_wait, _LOST_MOST)
        self._next_for_lost = now + self._lost_wait
        return True

    def _failed(self, error: DriverError) -> None:
        """The library does not open, or what is open is of no use."""
        self.error = error
        # On most machines there is none, which the first run says.
        level = logging.DEBUG if error.fault == "no_driver" and not self.inits else logging.WARNING
        self._changes.report("library", str(error), level, f"NVML cannot be used: {error}")
        if error.fault == "mismatch":
            self._ask_for_restart(error)
        self._reopen()
        self._next_open = self._clock.monotonic() + self._wait
        self._wait = min(2 * self._wait, _MOST)

    def _ask_for_restart(self, error: DriverError) -> None:
        # A library that never worked and is still the one on disk would not work after a restart either.
        if (self.inits or self._driver.outdated()) and not self._restart_asked:
            self._restart_asked = True
            self._context.restart(f"the GPU driver was replaced: {error}")

    def _reopen(self) -> None:
        """Closes the library for the next step to open it, or leaves it as it is while a call is under way."""
        if not self._open:
            return
        if any(card.hanging for card in self.cards.values()) or not self._pause():
            self._changes.report("drain", "hung", logging.WARNING, "NVML stays open: a call into it does not come back")
            self._enumerate()
            return
        self._changes.forget("drain")
        self._open = False
        self._next_open = self._clock.monotonic()
        for card in self.cards.values():
            card.device = None
        self._close()

    def _pause(self) -> bool:
        """Sends nobody into the library any more; whether all have come out of it."""
        for relay in self._relays:
            relay.go_round(())
        deadline = self._clock.monotonic() + _DRAIN
        self._stop_xids(deadline)
        return self._drained(deadline)

    def _drained(self, deadline: float) -> bool:
        users: list[Relay | XidWatch] = [*self._relays, *self._xids]
        while not all(user.drained for user in users):
            if self._clock.monotonic() >= deadline:
                return False
            time.sleep(0.01)
        return True

    def _close(self) -> None:
        try:
            self._driver.close()
        except DriverError as error:
            self._changes.report("close", str(error), logging.WARNING, f"closing NVML failed: {error}")
