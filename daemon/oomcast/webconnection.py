"""What one client may take: uvicorn's HTTP/1.1 protocol with a deadline at every stage and a cap on connections."""

import asyncio
import logging
import math
import time
from dataclasses import dataclass
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from oomcast.webtls import Tls


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may take. All times in seconds.

    request: from the connection, or the first byte of a later request, to its last byte. response: from there until
    the client has taken the answer. idle: between two requests. connections: at once; beyond that the one that has
    waited longest without being answered is dropped.
    """

    handshake: float = 5.0
    request: float = 10.0
    response: float = 30.0
    idle: int = 75
    connections: int = 64
    header_bytes: int = 16384


class RareLog(logging.LoggerAdapter[logging.Logger]):
    """Logs each kind of message once a minute: strangers must not be able to fill the disk with our warnings."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__(logger, {})
        self._last: dict[str, float] = {}

    @property
    def level(self) -> int:
        return self.logger.level

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        now, kind = time.monotonic(), str(msg)
        # A request that a stop cuts off is an error for uvicorn, not for us.
        cut_off = isinstance(kwargs.get("exc_info"), asyncio.CancelledError)
        if cut_off or not self.isEnabledFor(level) or now < self._last.get(kind, -math.inf) + 60:
            return
        self._last[kind] = now
        super().log(level, msg, *args, **kwargs)


class Connection(H11Protocol):
    """uvicorn's protocol, in which no stage of a connection can last for ever."""

    def __init__(
        self, config: uvicorn.Config, server_state: ServerState, *, tls: Tls | None, limits: Limits, log: RareLog
    ) -> None:
        super().__init__(config, server_state, {})
        self.logger = log  # type: ignore[assignment] # a RareLog logs as a Logger does
        self._tls = tls
        self._limits = limits
        self._stage = ""
        self._deadline: asyncio.TimerHandle | None = None
        self.since = self.loop.time()

    @property
    def answering(self) -> bool:
        """Whether a request is complete and its response is not."""
        return self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn narrows it too
        super().connection_made(transport)
        self._enter("request", self._limits.request)
        if self._tls and not self._tls.admits(transport.get_extra_info("peercert")):
            self.logger.warning("refused a client: its certificate has none of client_allowed_sans")
            transport.abort()
        elif len(self.connections) > self._limits.connections:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        # In pieces: h11 checks the size of what is incomplete, not of a head that arrives whole.
        size = self._limits.header_bytes
        for start in range(0, len(data), size):
            if self.transport.is_closing():
                return
            if not self._stage:
                self._enter("request", self._limits.request)
            super().data_received(data[start : start + size])
            self._update()

    def on_response_complete(self) -> None:
        self._enter("")
        self.since = self.loop.time()
        super().on_response_complete()
        self._update()

    def send_400_response(self, msg: str) -> None:
        # uvicorn answers here even if the request is being answered already, and then both answers fail.
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        if self.cycle is not None:
            self.cycle.disconnected = True
        super().send_400_response(msg)

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._update()

    def shutdown(self) -> None:
        if not self.transport.is_closing():
            super().shutdown()
            self._update()

    def connection_lost(self, exc: Exception | None) -> None:
        self._enter("")
        # uvicorn leaves this timer behind when the connection broke, and with it everything that it refers to.
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def _update(self) -> None:
        if self.transport.is_closing():
            # Closing first sends what is buffered, which a client that does not read would hold up.
            self._enter("closing", self._limits.handshake)
        elif self.answering:
            self._enter("response", self._limits.response)

    def _enter(self, stage: str, seconds: float = 0.0) -> None:
        if stage == self._stage:
            return
        if self._deadline:
            self._deadline.cancel()
        self._stage = stage
        self._deadline = self.loop.call_later(seconds, self.transport.abort) if stage else None

    def _make_room(self) -> None:
        waiting = [other for other in self.connections if other is not self and not getattr(other, "answering", True)]
        if waiting:
            min(waiting, key=lambda other: getattr(other, "since", 0.0)).transport.abort()
