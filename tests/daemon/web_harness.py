"""A real server on a real port for the web tests: its event loop runs in a thread, the test talks to it by socket."""

import asyncio
import gzip as gzip_module
import socket
import subprocess
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from starlette.types import ASGIApp

from oomcast.page import Row
from oomcast.web import App, create_app
from oomcast.webconfig import WebConfig
from oomcast.webconnection import Limits
from oomcast.webserver import Server
from oomcast.webtls import Tls

T = TypeVar("T")

TEXT = b"# TYPE oomcast_a gauge\noomcast_a 1\n"
OPENMETRICS = TEXT + b"# EOF\n"


class Body:
    """An exposition of fixed text, in two chunks."""

    def __init__(self, text: bytes = TEXT) -> None:
        self.text = text
        self._chunks: dict[tuple[bool, bool], Sequence[bytes]] = {}

    def render(self, openmetrics: bool, gzip: bool) -> Sequence[bytes]:
        if (openmetrics, gzip) not in self._chunks:
            body = self.text + b"# EOF\n" if openmetrics else self.text
            body = gzip_module.compress(body) if gzip else body
            self._chunks[openmetrics, gzip] = (body[:10], body[10:])
        return self._chunks[openmetrics, gzip]


@dataclass
class Checks:
    """Health that a test sets."""

    health: tuple[bool, str] = (True, "the loop runs")
    readiness: tuple[bool, str] = (True, "every collector ran")

    def healthy(self) -> tuple[bool, str]:
        return self.health

    def ready(self) -> tuple[bool, str]:
        return self.readiness


def app(
    body: Body | None = None, config: WebConfig | None = None, rows: Sequence[Row] = (), checks: Checks | None = None
) -> App:
    return create_app(body or Body(), checks or Checks(), lambda: rows, config, "node-7")


@dataclass
class Running:
    """A server that answers. call: runs a coroutine on its loop and returns the result."""

    server: Server
    call: Callable[[Coroutine[Any, Any, T]], T]
    url: str = field(init=False)
    address: tuple[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.url = self.server.url
        host, _, port = self.url.split("//")[1].rpartition(":")
        self.address = (host.strip("[]"), int(port))

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=5)

    def configure(self, tls: Tls | None) -> None:
        async def on_loop() -> None:
            self.server.configure(tls)

        self.call(on_loop())


@contextmanager
def serving(
    application: ASGIApp, listen: str = "127.0.0.1:0", tls: Tls | None = None, limits: Limits | None = None
) -> Iterator[Running]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def call(coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(20)

    server = Server(application, listen, tls, limits)
    try:
        call(server.start())
        try:
            yield Running(server, call)
        finally:
            call(server.stop(1))
            call(loop.shutdown_default_executor())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def read_all(connection: socket.socket) -> bytes:
    """What the peer sends until it closes; a reset counts as closing."""
    received = b""
    try:
        while data := connection.recv(65536):
            received += data
    except ConnectionResetError:
        pass
    return received


@dataclass(frozen=True)
class Authority:
    """A certificate authority made with the openssl command, in `folder`."""

    folder: Path
    name: str = "ca"

    def create(self) -> "Authority":
        self._openssl("req", "-x509", "-days", "2", "-subj", f"/CN=test {self.name}", *self._new_key(self.name))
        return self

    def issue(self, name: str, sans: str, days: int = 2) -> tuple[Path, Path]:
        """Paths of a certificate and its key. sans: as openssl writes them, "IP:127.0.0.1,DNS:node-7"."""
        self._openssl("req", "-new", "-subj", f"/CN={name}", *self._new_key(name, "csr"))
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={sans}\n")
        issuer = ("-CA", f"{self.name}.crt", "-CAkey", f"{self.name}.key", "-CAcreateserial")
        self._openssl("x509", "-req", "-in", f"{name}.csr", *issuer, "-out", f"{name}.crt", "-days", str(days),
                      "-extfile", str(extensions))  # fmt: skip
        return self.folder / f"{name}.crt", self.folder / f"{name}.key"

    @property
    def certificate(self) -> Path:
        return self.folder / f"{self.name}.crt"

    def _new_key(self, name: str, kind: str = "crt") -> tuple[str, ...]:
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-keyout", f"{name}.key")
        return (*key, "-out", f"{name}.{kind}")

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(("openssl", *arguments), cwd=self.folder, check=True, capture_output=True, timeout=30)
