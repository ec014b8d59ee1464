"""Xids as the driver's library tells of them, waited for in a thread that may hang in it."""

import logging
import threading
from collections.abc import Callable, Sequence

from oomcast.clock import Clock
from oomcast.contract import Event, Facts
from oomcast.logs import OnChange
from oomcast_collectors.gpu.driver import Device, Driver, DriverError, Xids, XidSeen

_SLICE = 1.0  # seconds of one wait: no stop takes longer while the driver answers
_EARLY = 0.1  # seconds: an empty wait that is shorter is followed by as long a pause
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds between two attempts to listen


class XidWatch:
    """One thread that pushes an `xid` event (gpu, xid, witness=nvml) for each that `driver` reports of `devices`.

    A set of events that fails is made anew, with growing pauses; without support for them the watch ends. What comes
    after stop() is not pushed: another watch may have seen it too. rest: as threading.Event.wait.
    """

    def __init__(
        self,
        driver: Driver,
        devices: Sequence[Device],
        clock: Clock,
        push: Callable[[Facts], None],
        log: logging.Logger,
        rest: Callable[[threading.Event, float], object] = threading.Event.wait,
    ) -> None:
        self._driver = driver
        self._devices = devices
        self._clock = clock
        self._push = push
        self._log = log
        self._rest = rest
        self._told = OnChange(log, clock=clock)
        self._pause = _FIRST_PAUSE
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpu-xids", daemon=True)

    def start(self) -> None:
        """Once; returns at once."""
        self._thread.start()

    def stop(self, deadline: float) -> None:
        """Ends the thread; returns before the clock's monotonic `deadline` even if it hangs in the driver."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(max(0.0, deadline - self._clock.monotonic()))

    @property
    def drained(self) -> bool:
        """No call is inside the driver, and none will come: the library may be closed."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._watch()
        except Exception:  # noqa: BLE001 - nobody waits for this thread, and a defect must not end it in silence
            self._log.exception("GPU errors (Xid) are no longer watched")

    def _watch(self) -> None:
        while not self._stopping.is_set():
            try:
                self._listen()
            except DriverError as error:
                if error.fault == "unsupported":
                    self._log.info("the driver reports no GPU errors (Xid) here: %s", error)
                    return
                self._report(f"GPU errors (Xid) are not watched: {error}", logging.WARNING)
                self._rest(self._stopping, self._pause)
                self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _listen(self) -> None:
        """Until stop(), or until the driver fails."""
        xids = self._driver.xids(self._devices)
        began = self._clock.monotonic()
        try:
            while not self._stopping.is_set():
                self._hear(xids)
                # Not at once: a set that fails again and again would be told of, and made anew, as often.
                if self._clock.monotonic() - began > _LONGEST_PAUSE:
                    self._pause = _FIRST_PAUSE
                    self._report("GPU errors (Xid) are watched", logging.INFO)
        finally:
            self._close(xids)

    def _close(self, xids: Xids) -> None:
        try:
            xids.close()
        except DriverError as error:
            # It is given up in any case, and what made it fail before is the better reason.
            self._told.report("close", str(error), logging.WARNING, f"a set of GPU events is left open: {error}")

    def _report(self, state: str, level: int) -> None:
        self._told.report("watch", state, level, state)

    def _hear(self, xids: Xids) -> None:
        began = self._clock.monotonic()
        seen = xids.wait(_SLICE)
        if seen is not None:
            self._tell(seen)
        elif self._clock.monotonic() - began < _EARLY:
            self._rest(self._stopping, _EARLY)

    def _tell(self, seen: XidSeen) -> None:
        if self._stopping.is_set():
            return
        gpu = seen.uuid or (self._devices[0].uuid if len(self._devices) == 1 else "")
        fields: dict[str, str | int | float] = {"gpu": gpu, "xid": seen.xid, "witness": "nvml"}
        summary = f"Xid {seen.xid} on GPU {gpu or 'unknown'}"
        self._push(Facts(events=[Event("xid", self._clock.time(), self._clock.monotonic(), summary, fields)]))
