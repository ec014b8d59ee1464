"""Receives datagrams in a thread of its own."""

import contextlib
import logging
import socket
import struct
import threading
from collections.abc import Sequence

from oomcast_collectors.requests.address import Address
from oomcast_collectors.requests.desk import Desk, Sender
from oomcast_collectors.requests.message import MAX_BYTES

_CREDENTIALS = struct.Struct("=iII")
"""struct ucred: pid, uid, gid."""

_ROOM = socket.CMSG_SPACE(_CREDENTIALS.size)
"""None for anything else: descriptors that are sent along are closed by the kernel and never get here."""

_ROUND = 256
_PAUSE = 0.004
"""Seconds of rest after a round of messages that were turned away: a flood gets a fifth of a core."""


class Intake:
    """One thread, which hands each datagram to the desk until it is stopped or fails; `address` is its own.

    failure: what ended it, None while it runs.
    """

    def __init__(self, address: Address, desk: Desk, log: logging.Logger) -> None:
        self._address = address
        self._desk = desk
        self._log = log
        self._stopping = threading.Event()
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="requests", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def is_reachable(self) -> bool:
        """Whether the path still leads here."""
        return self._address.is_ours()

    def stop(self, timeout: float) -> None:
        """Ends the thread, which removes the socket; waits for that `timeout` seconds at most."""
        self._stopping.set()
        with contextlib.suppress(OSError):  # the thread has ended by itself and closed it
            # Wakes the thread in its call, which closing the socket would not.
            self._address.socket.shutdown(socket.SHUT_RD)
        self._thread.join(max(timeout, 0.0))

    def _run(self) -> None:
        try:
            self._receive()
        except Exception as error:  # noqa: BLE001 - nobody waits for this thread: the collector's next run raises it
            self._log.exception("messages are no longer received")
            self.failure = error
        finally:
            self._address.close()

    def _receive(self) -> None:
        receive, take = self._address.socket.recvmsg, self._desk.take
        turned_away = 0
        while True:
            data, ancillary, flags, _ = receive(MAX_BYTES, _ROOM)
            if self._stopping.is_set():
                return
            if take(data, _sender(ancillary), bool(flags & socket.MSG_TRUNC)):
                continue
            turned_away += 1
            if turned_away == _ROUND:
                turned_away = 0
                self._stopping.wait(_PAUSE)


def _sender(ancillary: Sequence[tuple[int, int, bytes]]) -> Sender | None:
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and len(data) == _CREDENTIALS.size:
            _, uid, gid = _CREDENTIALS.unpack(data)
            return Sender(uid, gid)
    return None
