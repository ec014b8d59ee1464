"""The HTTP side of the daemon: `/metrics`, health, the landing page. `webserver.Server` puts it on a socket.

A request reads what the core has already worked out: no driver, file or network is touched to answer it.
"""

import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from email.utils import formatdate
from typing import NamedTuple, Protocol

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from oomcast import __version__
from oomcast.page import Check, Row, render_page, security_policy
from oomcast.webauth import BasicAuth, TokenBucket
from oomcast.webconfig import WebConfig

# As prometheus_client has them; its older releases that we accept lack two of the three.
PLAIN_0_0_4 = "text/plain; version=0.0.4; charset=utf-8"
PLAIN_1_0 = "text/plain; version=1.0.0; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_MAX_SCRAPES = 16
_ESCAPING = ("allow-utf-8", "underscores", "dots", "values")
_QUALITY = re.compile(r"0(\.\d{0,3})?\Z|1(\.0{0,3})?\Z")


class Exposition(Protocol):
    def render(self, openmetrics: bool, gzip: bool) -> Sequence[bytes]:
        """The body in chunks, gzip compressed or not. Called on the event loop: it computes, it never waits."""


class Health(Protocol):
    def healthy(self) -> tuple[bool, str]:
        """Whether the daemon works, and a line that says why; cheap."""

    def ready(self) -> tuple[bool, str]:
        """Whether `/metrics` is complete, and a line that says why; cheap."""


PageInfo = Callable[[], Sequence[Row]]


class App:
    """The ASGI application. Make one with `create_app()`."""

    def __init__(self, routes: Sequence[Route], config: WebConfig) -> None:
        inner = Starlette(routes=routes)
        inner.router.redirect_slashes = False
        self._auth = BasicAuth(inner, {})
        self._headers: tuple[tuple[str, str], ...] = ()
        self._bucket: TokenBucket | None = None
        self.configure(config)

    def configure(self, config: WebConfig) -> None:
        """Puts users, headers and rate limit in force from the next request on. On the event loop's thread."""
        headers = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": security_policy(), **config.headers}
        self._headers = tuple((name, value) for name, value in headers.items() if value)
        limit = config.rate_limit
        self._bucket = TokenBucket(limit.interval, limit.burst, time.monotonic()) if limit else None
        self._auth.set_users(config.users)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Date"] = formatdate(usegmt=True)
                for name, value in self._headers:
                    headers[name] = value
            await send(message)

        if self._bucket and not self._bucket.take(time.monotonic()):
            await PlainTextResponse("Too Many Requests\n", 429)(scope, receive, send_with_headers)
        else:
            await self._auth(scope, receive, send_with_headers)


def create_app(
    exposition: Exposition, health: Health, page_info: PageInfo, config: WebConfig | None = None, node: str = ""
) -> App:
    """The application over the core. page_info: the rows of the landing page. node: its name in the page's title."""

    def check(ask: Callable[[], tuple[bool, str]]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            ok, reason = ask()
            return PlainTextResponse(f"{reason}\n", 200 if ok else 503, {"cache-control": "no-store"})

        return answer

    async def page(request: Request) -> Response:
        checks = (Check("Healthy", *health.healthy()), Check("Ready", *health.ready()))
        body = render_page(node, __version__, checks, page_info())
        return HTMLResponse(body, headers={"cache-control": "no-store"})

    routes = [
        Route("/metrics", _Metrics(exposition), methods=["GET"]),
        Route("/-/healthy", check(health.healthy)),
        Route("/-/ready", check(health.ready)),
        Route("/", page),
    ]
    return App(routes, config or WebConfig())


class _Metrics:
    """`/metrics` as an ASGI endpoint: the rendered chunks go out as they are, no joined copy is made."""

    def __init__(self, exposition: Exposition) -> None:
        self._exposition = exposition
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A body lives until its reader has taken it; readers that never do must not add up to the machine's memory.
        if self._running >= _MAX_SCRAPES:
            response = PlainTextResponse("Too many scrapes at once\n", 503, {"retry-after": "1"})
            return await response(scope, receive, send)
        self._running += 1
        try:
            await self._answer(scope, send)
        finally:
            self._running -= 1

    async def _answer(self, scope: Scope, send: Send) -> None:
        request_headers = Request(scope).headers
        choice = negotiate(",".join(request_headers.getlist("accept")))
        gzip = accepts_gzip(",".join(request_headers.getlist("accept-encoding")))
        chunks = self._exposition.render(choice.openmetrics, gzip)
        headers = {
            "content-type": choice.content_type,
            "content-length": str(sum(map(len, chunks))),
            "vary": "Accept, Accept-Encoding",
        }
        if gzip:
            headers["content-encoding"] = "gzip"
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})
        if scope["method"] != "HEAD":
            for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


class Choice(NamedTuple):
    openmetrics: bool
    content_type: str


def negotiate(accept: str) -> Choice:
    """The format for an Accept header, with the content types of prometheus_client.

    Unlike there the client's q-values count, and a version that is not produced here is passed over.
    """
    for media, parameters in _by_preference(accept):
        version = parameters.get("version", "")
        asked = parameters.get("escaping", "")
        # All names are valid in the old syntax, so every scheme yields the same text.
        escaping = f"; escaping={asked if asked in _ESCAPING else 'underscores'}"
        if media == "application/openmetrics-text" and version in ("", "1.0.0"):
            return Choice(True, OPENMETRICS + (escaping if version else ""))
        if media == "text/plain" and version == "1.0.0":
            return Choice(False, PLAIN_1_0 + escaping)
        if media == "text/plain" and version in ("", "0.0.4"):
            break
    return Choice(False, PLAIN_0_0_4)


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header allows gzip, by name or with `*`."""
    encodings = [(name, quality) for name, _, quality in _entries(accept_encoding)]
    for name in ("gzip", "*"):
        qualities = [quality for encoding, quality in encodings if encoding == name]
        if qualities:
            return max(qualities) > 0
    return False


def _by_preference(header: str) -> list[tuple[str, Mapping[str, str]]]:
    wanted = [entry for entry in _entries(header) if entry[2] > 0]
    return [(name, parameters) for name, parameters, _ in sorted(wanted, key=lambda entry: -entry[2])]


def _entries(header: str) -> list[tuple[str, Mapping[str, str], float]]:
    """(name, parameters, quality) of each entry; one with a malformed quality is left out."""
    entries: list[tuple[str, Mapping[str, str], float]] = []
    for entry in header.split(","):
        name, *rest = (part.strip() for part in entry.split(";"))
        pairs = (part.partition("=") for part in rest)
        parameters = {key.strip().lower(): value.strip().strip('"') for key, _, value in pairs}
        quality = parameters.get("q", "1")
        if name and _QUALITY.match(quality):
            entries.append((name.lower(), parameters, float(quality)))
    return entries
