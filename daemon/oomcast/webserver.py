"""One listening address on a running event loop: uvicorn's HTTP/1.1 protocol, with a deadline at every stage.

uvicorn's own `Server` is not used: it ticks ten times a second, takes the process's signals, cannot change
certificates, and lets a client that never finishes its request keep its connection for ever.
"""

import asyncio
import contextlib
import errno
import functools
import logging
import socket
import ssl
from collections.abc import Sequence
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from oomcast.address import listen_address
from oomcast.webconnection import Connection, Limits, RareLog
from oomcast.webtls import Tls

_Found = tuple[int, int, int, str, tuple[Any, ...]]
"""As getaddrinfo() has it: family, type, protocol, name, address."""


class ListenError(Exception):
    """The address cannot be listened on; the text names it and says why."""


class Server:
    """Serves `app` on `listen` ("127.0.0.1:9745", "[::1]:9745", ":9745" for every address, port 0 for a free one).

    Everything is called on one event loop. Signals are the caller's business.
    """

    def __init__(self, app: ASGIApp, listen: str, tls: Tls | None = None, limits: Limits | None = None) -> None:
        self._listen = listen
        self._tls = tls
        self._limits = limits or Limits()
        self._config = uvicorn.Config(
            app,
            http=Connection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=128,
            timeout_keep_alive=self._limits.idle,
            limit_concurrency=self._limits.connections + 1,
            h11_max_incomplete_event_size=self._limits.header_bytes,
        )
        self._state = ServerState()
        self._listeners: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._starting: dict[asyncio.Task[None], socket.socket] = {}
        self._log = RareLog(logging.getLogger(__name__))

    @property
    def url(self) -> str:
        """Where it listens, with the real port. Only between start() and stop()."""
        host, port = self._listeners[0].getsockname()[:2]
        return f"{'https' if self._tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"

    async def start(self) -> None:
        """Binds and begins to answer. Raises ListenError, after which nothing is bound."""
        if not self._config.loaded:
            self._config.load()
        self._listeners = await _bind(self._listen, self._config.backlog)
        self._accepting = [asyncio.create_task(self._accept(listener)) for listener in self._listeners]

    def configure(self, tls: Tls | None) -> None:
        """Secures new connections with `tls`. Those that exist end after the request they are in."""
        self._tls = tls
        self._end_connections()

    async def stop(self, grace_seconds: float) -> None:
        """Stops listening, lets running requests finish for `grace_seconds`, then cuts them off."""
        for task in (*self._accepting, *self._starting):
            task.cancel()
        # The loop still watches a listener until its task has ended; closed before, its number may be another's.
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        self._end_connections()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                await self._drained()
        for connection in list(self._state.connections):
            connection.transport.abort()
        # What waited for its client ends by itself now; only what waits for something else has to be told.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await self._drained()
        for running in list(self._state.tasks):
            running.cancel()
        await asyncio.gather(*self._starting, *self._state.tasks, return_exceptions=True)

    async def _drained(self) -> None:
        while self._state.connections or self._state.tasks:
            await asyncio.sleep(0.01)

    def _end_connections(self) -> None:
        for connection in list(self._state.connections):
            connection.shutdown()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                peer, _ = await loop.sock_accept(listener)
            except OSError as exc:
                # Out of descriptors, mostly. The peer stays in the queue, so a retry at once would spin.
                self._log.warning("cannot accept a connection: %s", exc)
                await asyncio.sleep(1)
                continue
            if len(self._starting) >= self._limits.connections:
                next(iter(self._starting)).cancel()
            task = loop.create_task(self._open(peer))
            self._starting[task] = peer
            task.add_done_callback(self._opened)
            # Accepting does not yield while peers wait in the queue, and a flood must not hold up the loop.
            await asyncio.sleep(0)

    async def _open(self, peer: socket.socket) -> None:
        tls = self._tls
        secure: dict[str, Any] = {}
        if tls:
            secure = {
                "ssl": tls.context,
                "ssl_handshake_timeout": self._limits.handshake,
                "ssl_shutdown_timeout": self._limits.handshake,
            }
        create = functools.partial(Connection, self._config, self._state, tls=tls, limits=self._limits, log=self._log)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(create, peer, **secure)
        except (OSError, ssl.SSLError) as exc:
            self._log.debug("connection not established: %s", exc)

    def _opened(self, task: "asyncio.Task[None]") -> None:
        peer = self._starting.pop(task)
        if task.cancelled():
            peer.close()


async def _bind(listen: str, backlog: int) -> list[socket.socket]:
    try:
        host, port = listen_address(listen)
    except ValueError as error:
        raise ListenError(f"listen address {listen!r} {error}") from None
    listeners: list[socket.socket] = []
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, address in dict.fromkeys(found if host else _had(found)):
            # A name with several addresses has one port, also when the kernel chooses it.
            chosen = port or (listeners[0].getsockname()[1] if listeners else 0)
            # With the protocol: asyncio leaves Nagle's algorithm on where it is 0, and an answer then waits 40 ms.
            listener = socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol)
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind((address[0], chosen, *address[2:]))
            listener.listen(backlog)
    except OSError as exc:
        for listener in listeners:
            listener.close()
        raise ListenError(f"cannot listen on {listen}: {exc.strerror or exc}") from exc
    return listeners


def _had(found: Sequence[_Found]) -> Sequence[_Found]:
    """Without the families that the kernel has not (ipv6.disable=1), if it has any: all are named whatever it has."""
    had = []
    for one in found:
        try:
            socket.socket(*one[:3]).close()
        except OSError as error:
            if error.errno == errno.EAFNOSUPPORT:
                continue
        had.append(one)
    return had or found
