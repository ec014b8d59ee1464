"""Servers on loopback that answer a GET as a test says, however wrong that is."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

Answer = Callable[[socket.socket, threading.Event], None]


class Server:
    """Answers the requests of each connection with `answer`, in a thread of its own.

    keep: connections are kept open after an answer, else closed. requests: what clients sent. connections: how many
    there were. The event that `answer` is given is set when the test is over.
    """

    def __init__(self, answer: Answer, *, keep: bool = False, tls: ssl.SSLContext | None = None) -> None:
        self.answer = answer
        self.keep = keep
        self.requests: list[bytes] = []
        self.connections = 0
        self._tls = tls
        self._ended = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}/metrics"
        threading.Thread(target=self._accept, name="test-server", daemon=True).start()

    def close(self) -> None:
        self._ended.set()
        # close() alone leaves accept() waiting; one that was closed before has no descriptor.
        if self._listener.fileno() >= 0:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), name="test-server", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                self._talk(self._tls.wrap_socket(connection, server_side=True) if self._tls else connection)
            except OSError:
                return  # the client went away, which is what it should do

    def _talk(self, connection: socket.socket) -> None:
        with connection:
            while True:
                request = b""
                while b"\r\n\r\n" not in request:
                    part = connection.recv(65536)
                    if not part:
                        return
                    request += part
                self.requests.append(request)
                self.answer(connection, self._ended)
                if not self.keep:
                    return


class Serve(Protocol):
    """Starts a `Server` of its arguments."""

    def __call__(self, answer: Answer, *, keep: bool = False, tls: ssl.SSLContext | None = None) -> Server: ...


@contextmanager
def servers() -> Iterator[Serve]:
    """All that were started are closed at the end."""
    started: list[Server] = []

    def start(answer: Answer, *, keep: bool = False, tls: ssl.SSLContext | None = None) -> Server:
        started.append(Server(answer, keep=keep, tls=tls))
        return started[-1]

    try:
        yield start
    finally:
        for server in started:
            server.close()


def sends(body: bytes, *headers: str, status: str = "200 OK") -> Answer:
    head = "\r\n".join((f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers))

    def answer(connection: socket.socket, ended: threading.Event) -> None:
        connection.sendall(head.encode() + b"\r\n\r\n" + body)

    return answer


def repeats(start: bytes, unit: bytes, pause: float = 0) -> Answer:
    """`start`, then `unit` every `pause` seconds for as long as the client listens."""

    def answer(connection: socket.socket, ended: threading.Event) -> None:
        connection.sendall(start)
        while not ended.wait(pause):
            connection.sendall(unit)

    return answer


def silent(connection: socket.socket, ended: threading.Event) -> None:
    ended.wait()
