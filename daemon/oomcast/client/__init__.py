"""Tells the daemon of requests to an inference engine: one small datagram each, to its Unix socket.

Needs the standard library only, Python 3.9 or later, and nothing else of oomcast: the folder can be copied alone.
"""

from __future__ import annotations

import errno
import functools
import os
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable

from .message import Encoder, Unknown, with_lost

RETRY_SECONDS = 1.0
"""At least so long between two attempts to reach a daemon that is not there."""

_FULL = (errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM)


class Client:
    """Sends the messages of one engine. Thread-safe; a child after fork has a client of its own, with nothing in it.

    path: the daemon's socket; it may come later, go and come again. buffer: the most messages that wait for a daemon
    that is not there or does not keep up; they leave with a later send, and the oldest are dropped where there are
    more. clock: monotonic seconds. Raises ValueError unless engine has 1 to 128 printable characters.

    Each call of `send` is counted once: sent + lost + buffered + unknown is the number of calls.
    sent: datagrams that the socket took. lost: messages that were dropped, or were none (without a status); the next
    message that is sent tells the daemon of them. unknown: answered requests without prompt_tokens, which are no
    message.
    """

    def __init__(
        self,
        path: str | bytes | os.PathLike[str],
        engine: str,
        *,
        buffer: int = 256,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = os.fsencode(path)
        self._engine = engine
        self._limit = max(0, buffer)
        self._clock = clock
        self._socket: socket.socket | None = None
        self._begin()
        os.register_at_fork(after_in_child=functools.partial(_begin_anew, weakref.ref(self)))

    def _begin(self) -> None:
        # Re-entrant: a signal handler that sends while its own thread does must not wait for ever.
        self._lock = threading.RLock()
        self._encoder = Encoder(self._engine)
        self._waiting: deque[bytes] = deque()
        self._retry_at = float("-inf")
        self._closed = False
        self._busy = False
        self._told = 0
        self.sent = 0
        self.lost = 0
        self.unknown = 0
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @property
    def buffered(self) -> int:
        """Messages that wait."""
        return len(self._waiting)

    @property
    def left_out(self) -> int:
        """Values that were left out of messages: wrong type, out of range, or of a name that no message has."""
        return self._encoder.left_out

    def send(
        self,
        *,
        status: int | None = None,
        prompt_tokens: int | None = None,
        output_tokens: int | None = None,
        cached_tokens: int | None = None,
        empty: bool | None = None,
        trace_id: str | None = None,
        user: bool | None = None,
        tenant: bool | None = None,
        retries: int | None = None,
        breaker: str | None = None,
        ttft_seconds: float | None = None,
        e2e_seconds: float | None = None,
        **others: object,
    ) -> None:
        """One request that is over. Never waits and never raises; what is None is not known.

        status: of HTTP, always needed. prompt_tokens: needed below status 400. cached_tokens: of the prompt, found in a
        cache. empty: the answer had no content. trace_id: 32 lower-case hexadecimal digits. user, tenant: whether the
        request told its user and its tenant. retries: how often it was tried before. breaker: "closed", "open" or
        "half_open". A value that is none of these is left out, as is one of `others`, which a later version may know.
        """
        fields = {
            "prompt_tokens": prompt_tokens,
            "output_tokens": output_tokens,
            "cached_tokens": cached_tokens,
            "status": status,
            "empty": empty,
            "trace_id": trace_id,
            "user": user,
            "tenant": tenant,
            "retries": retries,
            "breaker": breaker,
            "ttft_seconds": ttft_seconds,
            "e2e_seconds": e2e_seconds,
            **others,
        }
        with self._lock:
            try:
                message = self._encoder.encode(fields)
            except Unknown:
                self.unknown += 1
            except ValueError:
                self.lost += 1
            else:
                self._waiting.append(message)
                self._settle()

    def close(self) -> None:
        """Sends what waits if that is possible at once. Later messages are lost."""
        with self._lock:
            self._settle()
            self._closed = True
            self._settle()

    def _settle(self) -> None:
        """Sends what can be sent now, and drops what may not wait."""
        if self._busy:
            # A signal handler interrupted it: what the handler has to send is found when it goes on.
            return
        self._busy = True
        try:
            self._flush()
            self._drop(0 if self._closed else self._limit)
            if self._closed:
                self._disconnect()
        finally:
            self._busy = False

    def _flush(self) -> None:
        while self._waiting:
            connection = self._connection()
            if connection is None:
                return
            message = self._waiting.popleft()
            lost = self.lost
            try:
                connection.send(with_lost(message, lost - self._told))
            except OSError as error:
                self._waiting.appendleft(message)
                if error.errno in _FULL:
                    return
                self._disconnect()
            else:
                self.sent += 1
                self._told = lost

    def _drop(self, limit: int) -> None:
        while len(self._waiting) > limit:
            self._waiting.popleft()
            self.lost += 1

    def _connection(self) -> socket.socket | None:
        """The socket, connected; None while the daemon is not there, or was not a moment ago."""
        if self._socket is not None or self._closed:
            return self._socket
        now = self._clock()
        if now < self._retry_at:
            return None
        self._retry_at = now + RETRY_SECONDS
        connection = None
        try:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            connection.setblocking(False)
            connection.connect(self._path)
        except OSError:
            if connection is not None:
                connection.close()
            return None
        self._socket = connection
        return connection

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _begin_anew(reference: weakref.ref[Client]) -> None:
    client = reference()
    if client is not None:
        client._begin()
