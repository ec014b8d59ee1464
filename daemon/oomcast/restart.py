"""The whole process executed anew: a collector asks for it when it holds what cannot be unloaded, a driver library."""

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from oomcast.clock import Clock
from oomcast.logs import OnChange

INTERVAL = 600.0
"""Seconds from one restart to the next at the least."""

VARIABLE = "OOMCAST_RESTARTED"
"""Environment variable in which the new image finds the monotonic time of the restart (execution keeps that clock)."""


class Restart:
    """Grants a restart, at most one in ten minutes, and carries it out.

    environ: the process's, which the new image gets with VARIABLE in it. Made in the main thread before anything could
    change the signal mask, which the new image begins with.
    """

    def __init__(self, environ: Mapping[str, str], clock: Clock) -> None:
        self._environ = environ
        self._clock = clock
        self._last = _moment(environ.get(VARIABLE, ""), clock.monotonic())
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._told = OnChange(logging.getLogger("oomcast.restart"), clock=clock)
        self._lock = threading.Lock()
        self._begin: Callable[[], None] | None = None
        self._granted = False
        self._called_off = False

    @property
    def due(self) -> bool:
        """Whether the process has to be executed anew once it has stopped."""
        return self._granted and not self._called_off

    @contextlib.contextmanager
    def possible(self, begin: Callable[[], None]) -> Iterator[None]:
        """While this lasts a request can be granted. begin: called once then, from any thread; never blocks."""
        with self._lock:
            self._begin = begin
        try:
            yield
        finally:
            with self._lock:
                self._begin = None

    def ask(self, source: str, reason: str) -> None:
        """From any thread. Grants it, or logs why not; one that was granted already is not told again."""
        with self._lock:
            if self._granted or self._called_off:
                return
            age = None if self._last is None else self._clock.monotonic() - self._last
            if self._begin is None:
                state, level, verdict = "impossible", logging.INFO, "only a running daemon restarts"
            elif age is not None and age < INTERVAL:
                state, level, verdict = "refused", logging.WARNING, f"restart refused, the last one is {age:.0f} s ago"
            else:
                state, level, verdict = "granted", logging.WARNING, "restarting the whole process"
                self._granted = True
                # Before anything is logged, since that may hang; under the lock, which `possible` waits for at its end.
                self._begin()
        self._told.report(source, state, level, f"{verdict}: {reason}", {"collector": source})

    def call_off(self) -> None:
        """The process was told to end. Without the lock: a signal handler calls it."""
        self._called_off = True

    def execute(self) -> NoReturn:
        """Replaces this image of the process: same pid, arguments and environment, no descriptor but 0 to 2.

        For any thread: the kernel ends the others, waiting only for what hangs inside it. Raises OSError.
        """
        _keep_no_descriptor()
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        environ = {**self._environ, VARIABLE: repr(self._clock.monotonic())}
        os.execve(sys.executable, sys.orig_argv, environ)


def _moment(text: str, now: float) -> float | None:
    """The time that the last image left; None for what cannot be one, such as another boot's."""
    try:
        moment = float(text)
    except ValueError:
        return None
    return moment if 0 <= moment <= now else None


def _keep_no_descriptor() -> None:
    # Python's close by themselves; a C library's may not, and a device that is held open keeps its driver loaded.
    with contextlib.suppress(OSError):
        for entry in Path("/proc/self/fd").iterdir():
            if int(entry.name) > 2:
                with contextlib.suppress(OSError):  # closed since
                    os.set_inheritable(int(entry.name), False)
