"""The child's two ends towards the daemon: what it says, and how it is told to end."""

import ctypes
import logging
import os
import select
import signal
import threading
from typing import IO

from oomcast_collectors.ebpf.wire import Log, Message, encode

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Has the kernel kill this process when the thread that started it ends, however it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Outlet:
    """Thread-safe. send() raises BrokenPipeError when the daemon is gone."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def send(self, message: Message) -> None:
        data = memoryview(encode(message))
        with self._lock:
            while data:
                data = data[os.write(self._fd, data) :]

    def handler(self) -> logging.Handler:
        return _Handler(self)


class _Handler(logging.Handler):
    def __init__(self, outlet: Outlet) -> None:
        super().__init__()
        self._outlet = outlet

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
            self._outlet.send(Log(record.levelno, text[:4000]))
        except OSError:  # the daemon is gone, which the loop finds out by itself
            return


class Stop:
    """Set by SIGTERM, or by the end of the standard input: the daemon has ended or wants this process to."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._told = False
        signal.signal(signal.SIGTERM, self._tell)

    def _tell(self, *_: object) -> None:
        self._told = True

    def __bool__(self) -> bool:
        if not self._told:
            ready, _, _ = select.select([self._source], [], [], 0)
            self._told = bool(ready) and not self._source.read1(1)  # type: ignore[attr-defined] # buffered, as stdin is
        return self._told
