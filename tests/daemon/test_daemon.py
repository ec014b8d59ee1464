"""The daemon in this process, where its parts can be made to fail as no plug-in could."""

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from e2e.program import until
from e2e.stack import fetch
from oomcast import health
from oomcast.clock import SystemClock
from oomcast.contract import Roots
from oomcast.core import Core
from oomcast.daemon import Daemon
from oomcast.notify import Notifier
from oomcast.settings import Settings, SettingsError, load

SETTINGS = load(None, {"OOMCAST_HTTP__LISTEN": "127.0.0.1:0"}, ())


@dataclass
class Running:
    """The daemon while `meanwhile` runs in another thread; the loop and the signals are the main thread's."""

    directory: Path
    reload: Callable[[], Settings] = lambda: SETTINGS
    messages: list[tuple[float, str]] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)

    def run(self, meanwhile: Callable[["Running"], None]) -> int:
        address = self.directory / "notify"
        clock = SystemClock()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(str(address))
            manager.settimeout(0.1)
            notifier = Notifier({"NOTIFY_SOCKET": str(address), "WATCHDOG_USEC": "200000"})
            self.core = Core((), Roots(), clock)
            self.over = threading.Event()
            reader = threading.Thread(target=self._hear, args=(manager,))
            reader.start()
            try:
                return asyncio.run(self._main(notifier, clock, meanwhile))
            finally:
                self.over.set()
                reader.join()

    async def _main(self, notifier: Notifier, clock: SystemClock, meanwhile: Callable[["Running"], None]) -> int:
        self.daemon = Daemon(self.core, SETTINGS, lambda: self.reload(), notifier, clock)
        loop = asyncio.get_running_loop()

        def other() -> None:
            try:
                until(lambda: any("READY=1" in text for _, text in self.messages))
                meanwhile(self)
            except BaseException as error:  # noqa: BLE001 - for the main thread to raise
                self.failures.append(error)
            finally:
                with contextlib.suppress(RuntimeError):  # the loop has ended already
                    loop.call_soon_threadsafe(self.daemon._stopping.set)

        thread = threading.Thread(target=other)
        thread.start()
        code = await self.daemon.run()
        thread.join()
        for failure in self.failures:
            raise failure
        return code

    def _hear(self, manager: socket.socket) -> None:
        while not self.over.is_set():
            try:
                self.messages.append((time.monotonic(), manager.recv(4096).decode()))
            except TimeoutError:
                continue

    @property
    def url(self) -> str:
        return next(text.rpartition(" ")[2] for _, text in self.messages if text.startswith("READY=1"))

    def fed(self, since: float) -> int:
        return sum(at > since and text == "WATCHDOG=1" for at, text in self.messages)


def test_the_watchdog_is_not_fed_while_the_schedulers_loop_is_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_STALE", 2.0)  # ten seconds of it would be ten seconds of test
    go = threading.Event()

    def meanwhile(running: Running) -> None:
        began = time.monotonic()
        until(lambda: running.fed(began) >= 5)
        assert fetch(f"{running.url}/-/healthy").startswith("the scheduler's loop came by ")
        running.core.scheduler._scheduler.add_job(go.wait, executor="heartbeat")
        until(lambda: not running.core.health.healthy()[0])
        time.sleep(0.2)
        stuck = time.monotonic()
        with pytest.raises(OSError, match="503"):
            fetch(f"{running.url}/-/healthy")
        time.sleep(1)
        assert running.fed(stuck) == 0
        assert fetch(f"{running.url}/metrics")
        go.set()
        until(lambda: running.fed(stuck) >= 3)

    assert Running(tmp_path).run(meanwhile) == 0


def test_a_failing_chore_is_logged_once_and_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def meanwhile(running: Running) -> None:
        settle = running.core._pipeline.settle

        def fail() -> None:
            raise RuntimeError("a defect")

        running.core._chores._chores = {**running.core._chores._chores, "kills": fail}
        until(lambda: value(running) >= 3)
        assert fetch(f"{running.url}/-/healthy")
        running.core._chores._chores = {**running.core._chores._chores, "kills": settle}
        until(lambda: "done again: kills" in caplog.text)

    caplog.set_level(logging.INFO)
    assert Running(tmp_path).run(meanwhile) == 0
    assert caplog.text.count("the daemon's own work fails: kills") == 1


def value(running: Running) -> int:
    text = fetch(f"{running.url}/metrics")
    line = next(x for x in text.splitlines() if x.startswith('oomcast_chore_failures_total{chore="kills"} '))
    return int(float(line.rpartition(" ")[2]))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (SettingsError([]), "reload refused, the old settings go on: "),
        (RuntimeError("a defect"), "reload failed, the old settings go on"),
    ],
)
def test_a_reload_that_fails_leaves_a_working_daemon(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception, told: str
) -> None:
    def reload() -> Settings:
        raise error

    def meanwhile(running: Running) -> None:
        running.daemon._told_to_reload()
        until(lambda: sum(text.startswith("READY=1") for _, text in running.messages) == 2)
        assert fetch(f"{running.url}/metrics")

    assert Running(tmp_path, reload).run(meanwhile) == 0
    assert caplog.text.count(told) == 1


def test_what_ends_the_loop_unforeseen_still_stops_everything(tmp_path: Path) -> None:
    running = Running(tmp_path)

    def meanwhile(running: Running) -> None:
        def fail() -> tuple[bool, str]:
            raise RuntimeError("a defect")

        running.core.health.healthy = fail  # type: ignore[method-assign]
        until(lambda: any(text.startswith("STOPPING=1") for _, text in running.messages))

    with pytest.raises(RuntimeError, match="a defect"):
        running.run(meanwhile)
