"""The life of the daemon: start, run, reload, and an end that always comes within five seconds."""

import asyncio
import contextlib
import logging
import platform
import signal
import sys
from collections.abc import Callable, Iterator

from oomcast import logs
from oomcast.clock import Clock
from oomcast.core import Core
from oomcast.ending import ending
from oomcast.notify import Notifier
from oomcast.settings import Settings, SettingsError
from oomcast.web import App, create_app
from oomcast.webconfig import WebConfig, WebConfigError, load
from oomcast.webserver import ListenError, Server

_TICK = 1.0
_END = 4.5
"""Seconds from the first signal to the end at the latest, whatever hangs; service managers allow at least five."""

_GRACE = 1.0
"""Seconds of it for requests that are being answered."""

_log = logging.getLogger("oomcast")


class Daemon:
    """One run of the daemon, from its settings to its exit code.

    reload: gives the settings as they are now, and raises SettingsError where they are bad.
    """

    def __init__(
        self, core: Core, settings: Settings, reload: Callable[[], Settings], notifier: Notifier, clock: Clock
    ) -> None:
        self._core = core
        self._settings = settings
        self._reload = reload
        self._notifier = notifier
        self._clock = clock
        self._beat = min(_TICK, notifier.watchdog_interval or _TICK)
        self._stopping = asyncio.Event()
        self._reloading = False

    async def run(self) -> int:
        """Serves until SIGTERM, SIGINT or a restart (core.restart.due); returns the exit code.

        0: told to stop. 1: could not start.
        """
        with ending(self._stopping, _END, self._core.restart), self._reload_signal():
            return await self._serve()

    async def _serve(self) -> int:
        try:
            web = _web_config(self._settings)
            app = create_app(self._core.exposition, self._core.health, self._core.station.rows, web, platform.node())
            server = await _listen(self._settings, app, web)
        except (WebConfigError, ListenError) as error:
            _log.error("cannot start: %s", error)
            return 1
        try:
            self._core.start(self._settings)
            _say(server.url)
            _log.info("listening", extra={"url": server.url, **self._collectors()})
            self._notifier.ready(f"serving {server.url}")
            while not self._stopping.is_set():
                await self._wait()
                if self._reloading and not self._stopping.is_set():
                    self._reloading = False
                    server = await self._take_settings(app, server)
                self._core.tick()
                if self._notifier.watchdog_interval and self._core.health.healthy()[0]:
                    self._notifier.watchdog()
        finally:
            await self._end(server)
        return 0

    async def _wait(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._beat):
                await self._stopping.wait()

    async def _end(self, server: Server) -> None:
        _log.info("stopping")
        if self._core.restart.due:
            self._notifier.reloading()  # until the new image is ready
        else:
            self._notifier.stopping("stopping")
        # Side by side: neither a slow client nor a slow collector takes from the other's time.
        collectors = asyncio.to_thread(self._core.stop, self._clock.monotonic() + _END - 1)
        for result in await asyncio.gather(server.stop(_GRACE), collectors, return_exceptions=True):
            if isinstance(result, BaseException):
                _log.error("stopping failed", exc_info=result)
        _log.info("stopped")

    async def _take_settings(self, app: App, server: Server) -> Server:
        """Applies new settings, or says why not and goes on with the old ones."""
        self._notifier.reloading()
        try:
            settings = self._reload()
            web = _web_config(settings)
            moved = await _listen(settings, app, web) if settings.http.listen != self._settings.http.listen else None
        except (SettingsError, WebConfigError, ListenError) as error:
            _log.error("reload refused, the old settings go on: %s", error)
        except Exception:  # noqa: BLE001 - a defect of ours; logged, and the daemon works as before
            _log.exception("reload failed, the old settings go on")
        else:
            # Before anything is awaited: a new address must not answer a single request without its users.
            app.configure(web)
            old, server = server, moved or server
            if moved:
                await old.stop(_GRACE)
            else:
                server.configure(web.tls)
            await self._apply(settings)
        self._notifier.ready(f"serving {server.url}")
        return server

    async def _apply(self, settings: Settings) -> None:
        logs.configure(settings.log.level, settings.log.format, sys.stderr)
        if settings.paths != self._settings.paths:
            _log.warning("a change of paths needs a restart where pod names are concerned")
        # In a thread, since a collector may take its time to stop and requests do not wait for that.
        await asyncio.to_thread(self._core.station.end_changed, settings, self._clock.monotonic() + _GRACE)
        self._core.station.begin_missing(settings)
        self._settings = settings
        _log.info("settings reloaded", extra=self._collectors())

    def _collectors(self) -> dict[str, str]:
        station = self._core.station
        off = ",".join(spec.name for spec in station.off)
        return {"collectors": ",".join(runner.name for runner in station.runners)} | ({"off": off} if off else {})

    @contextlib.contextmanager
    def _reload_signal(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._told_to_reload)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGHUP)
            if self._core.restart.due:
                # The new image reads the settings anyway; before it can take the signal, that would end it.
                signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _told_to_reload(self) -> None:
        self._reloading = True


def _say(url: str) -> None:
    """The address on standard output: it is the program's result, not its log."""
    # Whoever read it may be gone. One write: print's two may have a line of the log in between.
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()


def _web_config(settings: Settings) -> WebConfig:
    return load(settings.http.web_config) if settings.http.web_config else WebConfig()


async def _listen(settings: Settings, app: App, web: WebConfig) -> Server:
    server = Server(app, settings.http.listen, web.tls)
    await server.start()
    return server
