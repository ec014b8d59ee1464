"""The life of the daemon: start, run, reload, and an end that always comes within five seconds."""

import asyncio
import contextlib
import logging
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence

from oomcast import forecast, health, reconcile, timeline
from oomcast.clock import Clock
from oomcast.contract import CollectorSpec, Roots
from oomcast.exposition import Exposition
from oomcast.forecast import Forecaster
from oomcast.health import Health
from oomcast.identity import identify, owner
from oomcast.metric import Metric
from oomcast.notify import Notifier
from oomcast.page import Row
from oomcast.pipeline import Pipeline
from oomcast.podnames import PodNames
from oomcast.reconcile import Reconciler
from oomcast.runner import Runner
from oomcast.scheduler import Scheduler
from oomcast.settings import Settings
from oomcast.station import Station
from oomcast.store import Store
from oomcast.timeline import Timeline
from oomcast.web import App, create_app
from oomcast.webconfig import WebConfig, WebConfigError, load
from oomcast.webserver import ListenError, Server

CORE_METRICS: tuple[Metric, ...] = (*health.METRICS, *forecast.METRICS, *reconcile.METRICS, *timeline.METRICS)

_TICK = 1.0
_END = 4.5
"""Seconds from the first signal to the end at the latest, whatever hangs; service managers allow at least five."""

_GRACE = 1.0
"""Seconds of it for requests that are being answered."""

_REST = 0.05
_SELF = "oomcast"
_log = logging.getLogger("oomcast")


class Core:
    """Everything but HTTP: collectors, their schedule, and what becomes of their facts."""

    def __init__(self, specs: Sequence[CollectorSpec], roots: Roots, clock: Clock) -> None:
        self.clock = clock
        self.store = Store([*CORE_METRICS, *(metric for spec in specs for metric in spec.metrics)])
        self.exposition = Exposition(self.store)
        self.timeline = Timeline()
        pods = PodNames(roots.pods, clock, _log)
        reconciler = Reconciler(clock, lambda path: _owner(pods, path), logging.getLogger("oomcast.kills"))
        self._pipeline = Pipeline(self.store, Forecaster(), self.timeline, reconciler, clock)
        self.scheduler = Scheduler(clock, logging.getLogger("oomcast.scheduler"))
        self.station = Station(specs, self._pipeline, self.scheduler, clock)
        self.health = Health(self.store, clock, self.scheduler, lambda: self.station.runners)

    def start(self, settings: Settings) -> None:
        self.station.apply(settings, self.clock.monotonic() + _GRACE)
        self.scheduler.start()
        self.tick()

    def tick(self) -> None:
        """What has to be done about once a second beside the collectors' runs."""
        self.scheduler.tick()
        self._pipeline.settle()
        self.store.put(_SELF, [*self.health.samples(), *self.timeline.samples()])

    def rest(self, patience: float = 10.0) -> None:
        """Waits, at most `patience` seconds, until every collector has ended a run that began after this call."""
        runs = {runner: sum(runner.outcomes.values()) for runner in self.station.runners}
        end = self.clock.monotonic() + patience
        while self.clock.monotonic() < end and any(sum(r.outcomes.values()) == n for r, n in runs.items()):
            time.sleep(_REST)
            self.scheduler.tick()
        self.tick()

    def stop(self, deadline: float) -> None:
        """Stops the schedule and the collectors, before the monotonic `deadline`."""
        self.scheduler.stop()
        self.station.stop(deadline)


def _owner(pods: PodNames, path: str) -> str:
    identity = identify(path)
    pod = pods.pod(identity.pod_uid) if identity.pod_uid else None
    container = pods.container(identity.pod_uid, identity.container_id) if pod else ""
    return owner(identity, path, pod, container)


class Daemon:
    """One run of the daemon, from its settings to its exit code.

    reload: gives the settings as they are now, or None where they are bad (and says so itself).
    """

    def __init__(
        self, core: Core, settings: Settings, reload: Callable[[], Settings | None], notifier: Notifier, clock: Clock
    ) -> None:
        self._core = core
        self._settings = settings
        self._reload = reload
        self._notifier = notifier
        self._clock = clock
        self._stopping = asyncio.Event()
        self._reloading = asyncio.Event()
        self._ends = 0.0

    async def run(self) -> int:
        """Serves until SIGTERM or SIGINT; returns the exit code. 0: told to stop. 1: could not start."""
        try:
            web = self._web_config(self._settings)
            app = create_app(self._core.exposition, self._core.health, self._rows, web, platform.node())
            server = await self._listen(self._settings, app, web)
        except (WebConfigError, ListenError) as error:
            _log.error("cannot start: %s", error)
            return 1
        self._take_signals()
        try:
            self._core.start(self._settings)
            print(server.url, flush=True)  # noqa: T201 - the address is the program's output, not its log
            _log.info("listening", extra={"url": server.url})
            self._notifier.ready(f"serving {server.url}")
            while not self._stopping.is_set():
                await self._wait()
                if self._reloading.is_set():
                    self._reloading.clear()
                    server = await self._take_settings(app, server)
                self._core.tick()
                if self._core.health.healthy()[0]:
                    self._notifier.watchdog()
        finally:
            await self._end(server)
        return 0

    async def _wait(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TICK):
                await self._stopping.wait()

    async def _end(self, server: Server) -> None:
        _log.info("stopping")
        self._notifier.stopping("stopping")
        await server.stop(_GRACE)
        self._core.stop(self._clock.monotonic() + _END - _GRACE - 1)
        _log.info("stopped")

    async def _take_settings(self, app: App, server: Server) -> Server:
        """Applies new settings, or says why not and goes on with the old ones."""
        self._notifier.reloading()
        settings = self._reload()
        if settings is not None:
            try:
                web = self._web_config(settings)
                if settings.http.listen != self._settings.http.listen:
                    old, server = server, await self._listen(settings, app, web)
                    await old.stop(_GRACE)
                else:
                    server.configure(web.tls)
                app.configure(web)
            except (WebConfigError, ListenError) as error:
                _log.error("reload refused, the old settings go on: %s", error)
            else:
                if settings.paths != self._settings.paths:
                    _log.warning("a change of paths needs a restart where pod names are concerned")
                self._core.station.apply(settings, self._clock.monotonic() + _GRACE)
                self._settings = settings
                _log.info("settings reloaded")
        self._notifier.ready(f"serving {server.url}")
        return server

    def _web_config(self, settings: Settings) -> WebConfig:
        return load(settings.http.web_config) if settings.http.web_config else WebConfig()

    async def _listen(self, settings: Settings, app: App, web: WebConfig) -> Server:
        server = Server(app, settings.http.listen, web.tls)
        await server.start()
        return server

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told_to_stop)
        loop.add_signal_handler(signal.SIGHUP, self._told_to_reload)

    def _told_to_reload(self) -> None:
        self._reloading.set()

    def _told_to_stop(self) -> None:
        if self._stopping.is_set():
            leave(1)  # told twice: somebody does not want to wait
        self._stopping.set()
        # A call that hangs in C cannot be ended, and the interpreter would wait for its thread: leave without it.
        timer = threading.Timer(_END, leave, (0,))
        timer.daemon = True
        timer.start()

    def _rows(self) -> list[Row]:
        return [_row(runner, self._core.station.help(runner.name)) for runner in self._core.station.runners]


def _row(runner: Runner, help_text: str) -> Row:
    return Row(runner.name, runner.state or "pending", runner.reason, help_text)


def leave(code: int) -> None:
    """Ends the process now, without waiting for any thread."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
