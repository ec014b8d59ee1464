"""An end that comes whatever hangs: in a driver, in a full pipe, or in the interpreter waiting for its threads."""

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

from oomcast.restart import Restart

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def ending(stopping: asyncio.Event, seconds: float, restart: Restart) -> Iterator[None]:
    """Sets `stopping` on the first SIGTERM or SIGINT, and ends the process `seconds` later in any case, with exit
    code 0 since it did what it was told. A second signal ends it at once, with 1. For the main thread, in its loop.

    A restart that is granted does the same, but executes the process anew instead, unless a signal calls it off."""
    loop = asyncio.get_running_loop()
    heard, tell = os.pipe()
    told = False

    def take(number: int, frame: FrameType | None) -> None:
        nonlocal told
        if told:
            os._exit(1)
        told = True
        restart.call_off()
        begin()

    def begin() -> None:
        # A byte into a pipe: this runs between any two steps of the main thread, which may hold any lock.
        os.write(tell, b"!")
        loop.call_soon_threadsafe(stopping.set)

    threading.Thread(target=_last_resort, args=(heard, seconds, restart), name="last resort", daemon=True).start()
    # Not the loop's own handlers: those wait until the main thread comes back to the loop, which may hang.
    before = {number: signal.signal(number, take) for number in SIGNALS}
    try:
        with restart.possible(begin):
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(tell)


def _last_resort(heard: int, seconds: float, restart: Restart) -> None:
    if not os.read(heard, 1):
        os.close(heard)
        return
    # The pipe stays open: a signal after the request for a restart writes to it once more.
    time.sleep(seconds)
    if not restart.due:
        os._exit(0)
    try:
        restart.execute()
    finally:
        os._exit(1)  # without a word: the log may be what hangs


def leave(code: int) -> None:
    """Ends the process now, without waiting for any thread."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the other end may be gone
            stream.flush()
    os._exit(code)
