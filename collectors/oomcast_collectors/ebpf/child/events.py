"""What programs say at once: the ring buffers of all of them, read by one thread in one call."""

import ctypes
import logging
import time
from collections.abc import Callable
from typing import Any

from oomcast_collectors.ebpf.child.bcc import Bcc, EbpfError
from oomcast_collectors.ebpf.child.program import Program

_LONGEST = 0.5
"""Seconds beyond its time that wait() takes from buffers which are filled faster than they are read."""


class Events:
    """Not thread-safe."""

    def __init__(self, bcc: Bcc, log: logging.Logger) -> None:
        self._lib = bcc.lib
        self._log = log
        self._manager: Any = None
        self._kept: list[Any] = []
        self._until = 0.0

    def open(self, program: Program, table: str, take: Callable[[Any], None]) -> None:
        """Calls `take` with each item of a ring buffer, as BCC's structure of it. Raises EbpfError."""
        from bcc.libbcc import _RINGBUF_CB_TYPE  # there once Bcc has been made

        ring = program.table(table)

        def taken(_: object, data: int, size: int) -> int:
            try:
                take(ring.event(data))
            except Exception:  # noqa: BLE001 - C calls this, and an exception would end in nothing but a message
                self._log.exception("an event of the probe %s could not be read", program.name)
            # A negative number ends the reading, which else goes on until a buffer is found empty.
            return 0 if time.monotonic() < self._until else -1

        callback = _RINGBUF_CB_TYPE(taken)
        if self._manager is None:
            self._manager = self._lib.bpf_new_ringbuf(ring.map_fd, callback, None)
            failed = not self._manager
        else:
            failed = self._lib.bpf_add_ringbuf(self._manager, ring.map_fd, callback, None) < 0
        if failed:
            raise EbpfError(
                f"the ring buffer {table} of the probe {program.name} cannot be opened (kernel 5.8 has them)"
            )
        self._kept.append(callback)

    def wait(self, seconds: float) -> None:
        """Takes what is there, or comes within `seconds`. Raises EbpfError without a ring buffer."""
        if self._manager is None:
            raise EbpfError("no ring buffer is open")
        self._until = time.monotonic() + seconds + _LONGEST
        self._lib.bpf_poll_ringbuf(self._manager, ctypes.c_int(max(int(seconds * 1000), 0)))

    def close(self) -> None:
        if self._manager is not None:
            self._lib.bpf_free_ringbuf(self._manager)
            self._manager = None
        self._kept.clear()
