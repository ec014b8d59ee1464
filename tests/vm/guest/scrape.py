"""What the daemon says. Without an HTTP library, as each import takes seconds in an emulated machine."""

import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence

_FORECAST = re.compile(r'^oomcast_time_to_exhaustion_seconds{cgroup="(.*?)".*} (\S+)$', re.MULTILINE)
_RUNS = re.compile(r'^oomcast_collector_runs_total{collector="(.*?)",outcome="success"} (\S+)$', re.MULTILINE)

PORT = 19128
"""Of the daemon, without anything being set."""

UNNAMED_SECONDS = 11.0
"""After this the daemon books a kill that nobody named: one that it takes for two shows only then."""


class Daemon:
    """The daemon that listens on a port of 127.0.0.1."""

    def __init__(self, port: int) -> None:
        self._port = port

    def metrics(self) -> str:
        """The text of /metrics. Raises OSError if it cannot be had."""
        return self._get("/metrics")

    def ready(self) -> bool:
        try:
            self._get("/-/ready")
        except OSError:
            return False
        return True

    def started(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        """Waits until it is ready. Raises TimeoutError, also if the process ended before."""
        end = time.monotonic() + seconds
        while not self.ready():
            if process.poll() is not None or time.monotonic() > end:
                raise TimeoutError(f"the daemon is not ready, exit code {process.poll()}")
            time.sleep(0.2)

    def runs(self, more: int, seconds: float, collectors: Sequence[str] = ("cgroup",)) -> str:
        """Waits until each of these ran so many times more; gives the text of then. Raises TimeoutError."""
        before = _runs(self.metrics())
        end = time.monotonic() + seconds
        while any(_runs(text := self.metrics())[name] < before[name] + more for name in collectors):
            if time.monotonic() > end:
                raise TimeoutError(f"no {more} runs of {', '.join(collectors)}")
            time.sleep(0.2)
        return text

    def says(self, line: str, seconds: float) -> None:
        """Waits until /metrics has this very line. Raises TimeoutError."""
        end = time.monotonic() + seconds
        while f"\n{line}\n" not in self.metrics():
            if time.monotonic() > end:
                raise TimeoutError(f"the daemon does not say {line}")
            time.sleep(0.5)

    def _get(self, path: str) -> str:
        with socket.create_connection(("127.0.0.1", self._port), 20) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: vm\r\nConnection: close\r\n\r\n".encode())
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        head, _, body = answer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            raise OSError(f"{path}: {head[:100]!r}")
        return body.decode()


class Forecasts:
    """Asks for the time to exhaustion four times a second while `running`: seen, by cgroup, when and how long."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self.seen: dict[str, list[tuple[float, float]]] = {}

    def during(self, action: Callable[[], None]) -> None:
        done = threading.Event()
        thread = threading.Thread(target=self._poll, args=(done,), name="forecasts", daemon=True)
        thread.start()
        try:
            action()
        finally:
            done.set()
            thread.join(30)

    def _poll(self, done: threading.Event) -> None:
        while not done.wait(0.25):
            began = time.monotonic()
            text = self._daemon.metrics()
            at = (began + time.monotonic()) / 2
            for path, value in _FORECAST.findall(text):
                self.seen.setdefault(path, []).append((at, float(value)))


def _runs(text: str) -> Mapping[str, float]:
    return {name: float(count) for name, count in _RUNS.findall(text)}
