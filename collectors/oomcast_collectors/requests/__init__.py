"""Finished requests, one by one, as whoever serves or sends them tells over a Unix datagram socket."""

import threading

from oomcast.contract import CollectorSpec, Context, Facts, NotPresent
from oomcast_collectors.requests import metrics
from oomcast_collectors.requests.address import bind
from oomcast_collectors.requests.desk import Desk
from oomcast_collectors.requests.intake import Intake
from oomcast_collectors.requests.settings import RequestsSettings
from oomcast_collectors.requests.totals import Totals

__all__ = ["SPEC", "RequestsCollector", "RequestsError", "RequestsSettings"]


class RequestsError(Exception):
    """Messages were received and no longer are."""


class RequestsCollector:
    """Between its runs a thread receives messages. The first run binds the socket: looking up a group may take time,
    which no start() has."""

    def __init__(self, settings: RequestsSettings, context: Context) -> None:
        self._settings = settings
        self._context = context
        self._totals = Totals(context.slo, settings.engines, settings.window, context.clock)
        self._desk = Desk(settings, self._totals, context.clock, context.log)
        self._lock = threading.Lock()
        self._intake: Intake | None = None
        self._stopped = False

    def stop(self, deadline: float) -> None:
        with self._lock:
            self._stopped = True
            intake, self._intake = self._intake, None
        if intake is not None:
            intake.stop(deadline - self._context.clock.monotonic())

    def collect(self) -> Facts:
        """Raises NotPresent without a socket in the settings, AddressError while it cannot be bound, and RequestsError
        once after the thread has died."""
        if self._settings.socket is None:
            raise NotPresent("no socket is set")
        intake = self._intake
        if intake is None:
            self._begin()
        elif intake.failure is not None:
            self._begin()
            raise RequestsError(f"{self._settings.socket}: {intake.failure}") from intake.failure
        elif not intake.is_reachable():
            self._context.log.warning("%s was removed or replaced; it is bound anew", self._settings.socket)
            self._begin()
        return Facts(samples=[*self._desk.samples(), *self._totals.samples()])

    def _begin(self) -> None:
        """Binds the socket, in place of the one before."""
        with self._lock:
            before, self._intake = self._intake, None
        if before is not None:
            before.stop(1.0)
        settings = self._settings
        assert settings.socket is not None
        intake = Intake(bind(settings.socket, settings.mode_bits, settings.group), self._desk, self._context.log)
        with self._lock:
            intake.start()
            if not self._stopped:
                self._intake = intake
                return
        intake.stop(1.0)


SPEC = CollectorSpec(
    name="requests",
    help="finished requests, from messages on a Unix socket: prompt lengths, statuses, empty and untraced responses",
    settings=RequestsSettings,
    metrics=metrics.METRICS,
    create=RequestsCollector,
)
