"""The driver's library over its life: found, initialised, watched for new and lost GPUs, closed, initialised anew.

One thread of its own, since nvmlInit may take seconds or for ever. Handles are void after each initialisation, so GPUs
are known by UUID. The library must not be closed while a call is under way, so only this thread closes it, and a hung
call puts that off.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from oomcast.contract import Context
from oomcast.logs import OnChange
from oomcast_collectors.gpu.callers import Callers
from oomcast_collectors.gpu.card import Card
from oomcast_collectors.gpu.driver import Driver, DriverError
from oomcast_collectors.gpu.kernel import are_others, kernel_gpus
from oomcast_collectors.gpu.relay import Relay
from oomcast_collectors.gpu.settings import GpuSettings

_TICK = 0.5
_LOOK = 5.0
"""Seconds between two looks at which GPUs there are."""

_FEWEST, _MOST = 2.0, 60.0
"""Seconds between two attempts to initialise: each doubles them, and a library that served for the most resets them."""

_LOST_FEWEST, _LOST_MOST = 60.0, 600.0
"""The same for the sake of a lost GPU: the others have a gap meanwhile."""


class Session:
    """cards: all GPUs known, by UUID. Everything public may be read from any thread.

    inits: how often the library was initialised. version: the driver's. counted: GPUs that the library counts.
    rest: as threading.Event.wait.
    """

    def __init__(
        self,
        driver: Driver,
        settings: GpuSettings,
        context: Context,
        rest: Callable[[threading.Event, float], object] = threading.Event.wait,
    ) -> None:
        self._driver = driver
        self._settings = settings
        self._context = context
        self._clock = context.clock
        self._rest = rest
        self._changes = OnChange(context.log, clock=context.clock)
        self._callers = Callers(driver, (), context)
        self._thread = threading.Thread(target=self._run, name="gpu session", daemon=True)
        self.cards: dict[str, Card] = {}
        self.inits = 0
        self.version = ""
        self.counted = 0
        self.error: DriverError | None = None
        """Why the library does not open, or is of no use."""
        self.closed_since: float | None = self._clock.monotonic()
        """Monotonic time since which it has not been open, whoever is to blame; None while it is."""
        self.settled = threading.Event()
        """Set once the first attempt to open it has come back."""
        self._open = False
        self._opened = self._next_open = self._next_look = 0.0
        self._wait = _FEWEST
        self._lost_wait = _LOST_FEWEST
        self._next_for_lost: float | None = None
        self._kernel: dict[str, str] | None = None
        self._refused: DriverError | None = None
        self._ended = threading.Event()

    def start(self, relays: Sequence[Relay]) -> None:
        """relays: what goes round the cards while the library is open; started and ended here."""
        self._callers = Callers(self._driver, relays, self._context)
        self._callers.start()
        self._thread.start()

    def refuse(self, error: DriverError) -> None:
        """A relay met an error that is about the library. From any thread."""
        self._refused = error

    def stop(self, deadline: float) -> None:
        """Returns before the monotonic `deadline`. The library is closed when all calls have come back, so that may be
        later, or never."""
        self._ended.set()
        self._callers.end()
        self._thread.join(max(deadline - self._clock.monotonic(), 0))

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._step(self._clock.monotonic())
            except Exception as error:  # noqa: BLE001 - a defect here must not end the watch over all GPUs
                self._changes.report("defect", repr(error), logging.ERROR, f"looking after the GPUs failed: {error!r}")
            self.settled.set()
            self._rest(self._ended, _TICK)
        self._leave()

    def _step(self, now: float) -> None:
        refused, self._refused = self._refused, None
        try:
            if not self._open:
                if now >= self._next_open:
                    self._begin(now)
            elif refused is not None:
                self._failed(refused)
            elif now >= self._next_look:
                self._next_look = now + _LOOK
                self._look(now)
        except DriverError as error:
            self._failed(error)

    def _begin(self, now: float) -> None:
        self._driver.open()
        self._open = True
        self._opened = now
        self._kernel = kernel_gpus(self._context.roots.proc)
        self.version = self._driver.version()
        self._enumerate(anew=True)
        self.error = None
        self.inits += 1
        self.closed_since = None
        self._next_look = self._clock.monotonic() + _LOOK
        self._changes.report("library", "", logging.INFO, f"NVML is open, driver {self.version}, {self.counted} GPUs")

    def _look(self, now: float) -> None:
        lost_are_due = self._lost_are_due(now)
        changed = are_others(kernel_gpus(self._context.roots.proc), self._kernel)
        # It is open all the same: a call hung when it should have been closed, or a defect left it half begun.
        useless = self.error is not None or self.closed_since is not None
        if (useless or changed or lost_are_due) and self._shut():
            return
        self._enumerate()
        self.error = None
        if now - self._opened >= _MOST:
            self._wait = _FEWEST

    def _enumerate(self, *, anew: bool = False) -> None:
        devices, missing = self._driver.devices()
        self.counted = len(devices) + len(missing)
        cards = dict(self.cards)
        for device in devices:
            card = self._known(cards, device.uuid)
            if card.device is None:
                card.attach(device)
                anew = True
        silent = {one.uuid: one.error for one in missing if one.uuid}
        for uuid, error in silent.items():
            self._known(cards, uuid).lose_handle(error)
        for uuid in cards.keys() - silent.keys() - {device.uuid for device in devices}:
            if self._was_taken_away(cards[uuid]):
                del cards[uuid]
            else:
                cards[uuid].lose_handle(DriverError("lost", "nvmlDeviceGetCount", 15, "the GPU is no longer listed"))
        self.cards = cards
        self._callers.send(cards.values(), anew=anew)

    def _known(self, cards: dict[str, Card], uuid: str) -> Card:
        card = cards.get(uuid)
        if card is None:
            card = cards[uuid] = Card(uuid, self._settings, self._clock)
        return card

    def _was_taken_away(self, card: Card) -> bool:
        """A GPU that is no longer listed is lost, unless the kernel does not have it either."""
        pci = card.identity.pci if card.identity else ""
        return self._kernel is not None and pci not in self._kernel and card.uuid not in self._kernel.values()

    def _lost_are_due(self, now: float) -> bool:
        if all(card.state not in ("lost", "reset_required") for card in self.cards.values()):
            self._lost_wait = _LOST_FEWEST
            self._next_for_lost = None
            return False
        if self._next_for_lost is None:
            self._next_for_lost = now + self._lost_wait
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
        # A library that never worked and is still the one on disk would not work after a restart either. One that was
        # refused is granted later, so it is asked for each time.
        if error.fault == "mismatch" and (self.inits or self._driver.outdated()):
            self._context.restart(f"the GPU driver was replaced: {error}")
        if self._shut():
            self._next_open = self._clock.monotonic() + self._wait
            self._wait = min(2 * self._wait, _MOST)

    def _shut(self) -> bool:
        """Closes the library for the next step to open it, or leaves it as it is while a call does not come back.
        Whether it is closed."""
        if not self._open:
            return True
        if self._callers.hung or not self._callers.call_back():
            self._changes.report("drain", "hung", logging.WARNING, "NVML stays open: a call into it does not come back")
            self._callers.send(self.cards.values(), anew=False)
            return False
        self._changes.forget("drain")
        self.closed_since = self._next_open = self._clock.monotonic()
        self._open = False
        for card in self.cards.values():
            card.detach()
        self._close()
        return True

    def _leave(self) -> None:
        if not self._open:
            return
        self._callers.call_back()
        while not self._callers.out:
            time.sleep(_TICK)
        self._close()

    def _close(self) -> None:
        try:
            self._driver.close()
        except DriverError as error:
            self._changes.report("close", str(error), logging.WARNING, f"closing NVML failed: {error}")
