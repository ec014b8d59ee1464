"""A cgroup of a scenario's own, and the programs in it."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
TRUTH = (
    "memory.current",
    "memory.events",
    "memory.events.local",
    "memory.pressure",
    "memory.stat",
    "memory.swap.current",
)
"""What the kernel says of a cgroup that the daemon is compared with."""

# The driver's children would be as protected as it is, also from the limits of their own cgroups.
_JOIN = 'echo 0 >/proc/self/oom_score_adj && echo $$ >"$0/cgroup.procs" && exec "$@"'


class Cell:
    """path: as the daemon's series call it. limits: what its files are set to.

    Without a limit for swap it gets none, so that it is killed at its limit.
    """

    def __init__(self, path: str, limits: Mapping[str, str]) -> None:
        self.path = path
        self._directory = ROOT / path[1:]
        self._started: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._last: dict[str, str] = {}
        self._directory.mkdir()
        for name, value in {"memory.swap.max": "0", **limits}.items():
            (self._directory / name).write_text(value)

    def start(self, program: Path, *arguments: object) -> subprocess.Popen[bytes]:
        """Starts a program that is in the cgroup before it begins."""
        argv = ["/bin/sh", "-c", _JOIN, str(self._directory), str(program), *map(str, arguments)]
        process = subprocess.Popen(argv)
        self._started.append((program.name, process))
        return process

    def run(self, program: Path, *arguments: object, seconds: float = 60) -> None:
        """Starts it and waits for its end. Raises subprocess.TimeoutExpired."""
        self.start(program, *arguments).wait(seconds)

    def holds(self, size: int, seconds: float = 30) -> None:
        """Waits until so many bytes are charged. Raises TimeoutError."""
        end = time.monotonic() + seconds
        while int((self._directory / "memory.current").read_text()) < size:
            if time.monotonic() > end:
                raise TimeoutError(f"{self.path} does not get to {size} bytes")
            time.sleep(0.02)

    def files(self) -> dict[str, str]:
        """The files of TRUTH; as they last were, once it is removed."""
        if self._directory.exists():
            self._last = {name: (self._directory / name).read_text() for name in TRUTH}
        return self._last

    def ends(self) -> list[tuple[str, int, int | None]]:
        """Name, pid and exit status of each program, in the order of their starts."""
        return [(name, process.pid, process.poll()) for name, process in self._started]

    def kill(self) -> None:
        """SIGKILL, from outside, to all that is in it."""
        for pid in (self._directory / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        for _, process in self._started:
            process.wait(10)

    def remove(self, seconds: float = 5) -> None:
        """As soon as the kernel lets it, which is when the dead are out of it. Raises TimeoutError."""
        self.files()
        end = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError):
                self._directory.rmdir()
                return
            if time.monotonic() > end:
                raise TimeoutError(f"{self.path} cannot be removed")
            time.sleep(0.001)
