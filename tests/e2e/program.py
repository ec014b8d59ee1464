"""The real program under test, with plug-ins, settings that change, and the receiving end of sd_notify."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from e2e.stack import fetch, free_port

PLUGINS = Path(__file__).parent / "plugins"
_NAMES = ("cgroup", "ebpf", "engine", "engine_log", "gpu", "host", "kernel_log", "requests")
_OFF = ", ".join(f"{name}: {{enabled: false}}" for name in _NAMES)
OUR_OWN_OFF = f"collectors: {{{_OFF}}}"


def plugins(directory: Path, specs: Mapping[str, str], module: str = "trouble") -> dict[str, str]:
    """Installs collectors of tests/e2e/plugins as a distribution in `directory`; gives the environment for it.

    specs: the names in the module by collector name.
    """
    site = directory / "site"
    info = site / f"{module}-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    shutil.copy(PLUGINS / f"{module}.py", site)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    lines = [f"{name} = {module}:{attribute}" for name, attribute in specs.items()]
    (info / "entry_points.txt").write_text("\n".join(["[oomcast.collectors]", *lines]) + "\n")
    return {"PYTHONPATH": str(site), "TROUBLE": str(directory)}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "oomcast", *arguments]


def oomcast(
    *arguments: str, environment: Mapping[str, str] | None = None, seconds: float = 60
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env={**os.environ, **(environment or {})},
    )


class Program:
    """A running daemon. messages: what systemd has been told so far, by `heard`."""

    def __init__(self, directory: Path, settings: str, environment: Mapping[str, str]) -> None:
        self.config = directory / "oomcast.yaml"
        self.log_path = directory / "oomcast.log"
        self.port = free_port()
        self.settings(settings)
        address = directory / "notify"
        address.unlink(missing_ok=True)
        self._manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._manager.bind(str(address))
        self.messages: list[str] = []
        self._environment = {**os.environ, "NOTIFY_SOCKET": str(address), **environment}
        self.process = self._start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def settings(self, text: str) -> None:
        """Writes the settings file. {port} in it is the daemon's."""
        self.config.write_text(text.replace("{port}", str(self.port)))

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log_path.open("ab") as log:
            return subprocess.Popen(
                command("run", "--config", str(self.config)), stdout=log, stderr=log, env=self._environment
            )

    def restart(self) -> None:
        self.process = self._start()
        self.messages.clear()
        self.heard("READY=1")

    def reload(self) -> None:
        """SIGHUP, and waits until systemd has been told that it is done."""
        self.messages.clear()
        self.process.send_signal(signal.SIGHUP)
        self.heard("RELOADING=1")
        self.heard("READY=1")

    def heard(self, wanted: str, seconds: float = 30) -> float:
        """Waits for a message to systemd that has this line; gives the monotonic time of its arrival."""
        end = time.monotonic() + seconds
        self._manager.settimeout(0.2)
        while True:
            try:
                message = self._manager.recv(4096).decode()
            except TimeoutError:
                ended = self.process.poll()
                if ended is not None or time.monotonic() > end:
                    raise AssertionError(f"{wanted} was not said, exit code {ended}\n{self.log[-4000:]}") from None
                continue
            self.messages.append(message)
            if wanted in message.split("\n"):
                return time.monotonic()

    def value(self, name: str, labels: str = "", url: str = "") -> float | None:
        """A value on /metrics, None where it is absent."""
        text = fetch(f"{url or self.url}/metrics")
        found = re.search(rf"^{name}{re.escape('{' + labels + '}' if labels else '')} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else None

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """Sends the signal; gives the exit code, and the seconds that it took."""
        began = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(30)
        return code, time.monotonic() - began

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._manager.close()


@contextmanager
def program(directory: Path, settings: str, environment: Mapping[str, str] | None = None) -> Iterator[Program]:
    """The daemon on a free port of 127.0.0.1, once it has told systemd that it is ready; killed afterwards."""
    text = settings if "listen:" in settings else f'http: {{listen: "127.0.0.1:{{port}}"}}\n{settings}'
    running = Program(directory, text, environment or {})
    try:
        running.heard("READY=1")
        yield running
    finally:
        running.close()


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def group_members(group: int) -> Sequence[int]:
    """Pids of a process group that are alive."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found
