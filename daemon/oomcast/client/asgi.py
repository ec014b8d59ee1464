"""Middleware for an engine that is an ASGI application: each request that ends becomes one message to the daemon.

vLLM takes it as it is: `vllm serve MODEL --middleware oomcast.client.asgi.Reports`, with OOMCAST_REQUEST_SOCKET and
OOMCAST_ENGINE in its environment.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

from . import Client
from .answers import Answer, Document, Events, Opaque
from .asked import Body, Headers

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

PATHS = ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/generate")
CLIENT_CLOSED = 499
"""The status of a request whose client went away before its answer was complete, as nginx has it."""

_BODY = ("http.response.body", "http.response.zerocopysend", "http.response.pathsend")
_log = logging.getLogger("oomcast.client")


class Reports:
    """Passes everything through as it is, and reports POST requests to `paths` when their answers are complete.

    path: the daemon's socket, by default OOMCAST_REQUEST_SOCKET of the environment; engine: by default OOMCAST_ENGINE.
    Without either nothing is reported. user_headers, tenant_headers: a request with one of them, in lower case, tells
    its user or tenant. client: what sends, with its counts; None where nothing is reported.
    """

    def __init__(
        self,
        app: App,
        path: str | None = None,
        engine: str | None = None,
        *,
        paths: Sequence[str] = PATHS,
        user_headers: Sequence[str] = ("x-user-id",),
        tenant_headers: Sequence[str] = ("x-tenant-id",),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._paths = frozenset(paths)
        self._user_headers = tuple(user_headers)
        self._tenant_headers = tuple(tenant_headers)
        self._clock = clock
        self._troubles: set[str] = set()
        self.client = self._connect(
            path or os.environ.get("OOMCAST_REQUEST_SOCKET"), engine or os.environ.get("OOMCAST_ENGINE")
        )

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        client = self.client
        if client is None or scope["type"] != "http" or scope["method"] != "POST" or not self._reported(scope):
            await self._app(scope, receive, send)
            return
        exchange = Exchange(scope, self._clock)

        async def receive_on() -> Message:
            message = await receive()
            self._observe(exchange, exchange.received, message)
            return message

        async def send_on(message: Message) -> None:
            self._observe(exchange, exchange.handed, message)
            try:
                await send(message)
            except OSError:
                exchange.left = True
                raise
            self._observe(exchange, exchange.sent, message)
            if exchange.complete:
                self._observe(exchange, self._report, exchange, client)

        try:
            await self._app(scope, receive_on, send_on)
        finally:
            # It may have raised, been cancelled or just returned: what is not complete now stays so.
            self._observe(exchange, self._report, exchange, client)

    def _connect(self, path: str | None, engine: str | None) -> Client | None:
        if not path:
            return None
        try:
            return Client(path, engine or "")
        except ValueError as error:
            self._once("engine", f"requests are not reported, as OOMCAST_ENGINE is not right: {error}")
            return None

    def _reported(self, scope: Mapping[str, Any]) -> bool:
        path: str = scope["path"]
        return path in self._paths or path.removeprefix(scope.get("root_path", "")) in self._paths

    def _observe(self, exchange: Exchange, observer: Callable[..., None], *arguments: object) -> None:
        try:
            observer(*arguments)
        except Exception:  # noqa: BLE001 - whatever is wrong with a report, the request is served
            exchange.reported = True
            self._once("observe", "a request could not be observed, and is not reported", exc_info=True)

    def _report(self, exchange: Exchange, client: Client) -> None:
        if exchange.reported:
            return
        exchange.reported = True
        client.send(**exchange.facts(self._user_headers, self._tenant_headers))
        if client.unknown:
            self._once(
                "unknown",
                "answers that do not tell their usage are not reported; vLLM tells it in each stream with"
                " --enable-force-include-usage",
            )

    def _once(self, trouble: str, text: str, exc_info: bool = False) -> None:
        if trouble not in self._troubles:
            self._troubles.add(trouble)
            _log.warning("%s", text, exc_info=exc_info)


class Exchange:
    """One request and its answer, as they pass by."""

    def __init__(self, scope: Mapping[str, Any], clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = clock()
        self._asked = Headers(scope["headers"])
        self._body = Body(self._asked.readable)
        self._answer: Answer = Opaque()
        self._answered = Headers(())
        self._status: int | None = None
        self._first: float | None = None
        self._last = False
        self._ended: float | None = None
        self.left = False
        self.reported = False

    @property
    def complete(self) -> bool:
        return self._ended is not None

    def received(self, message: Message) -> None:
        """A message to the application."""
        if message["type"] == "http.request":
            self._body.feed(message.get("body", b""), message.get("more_body", False))
        elif message["type"] == "http.disconnect" and not self._last:
            self.left = True

    def handed(self, message: Message) -> None:
        """A message of the application that the server is about to have: a client may leave after the last one."""
        self._last = message["type"] in _BODY and not message.get("more_body", False)

    def sent(self, message: Message) -> None:
        """A message of the application that the server took."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._answered = Headers(message.get("headers", ()))
            self._answer = _answer(self._answered)
        elif message["type"] in _BODY:
            # Servers take a memoryview as well, and so does Starlette.
            self._answer.feed(bytes(message.get("body", b"")))
            now = self._clock()
            if self._last:
                self._answer.end()
                self._ended = now
            if self._first is None and isinstance(self._answer, Events) and self._answer.content:
                self._first = now

    def facts(self, user_headers: Sequence[str], tenant_headers: Sequence[str]) -> dict[str, Any]:
        """What `Client.send` takes, as far as it is known."""
        asked, body, usage = self._asked, self._body, self._answer.usage
        ended = self._ended if self._ended is not None else self._clock()
        prompt = usage.prompt if usage and usage.prompt is not None else body.prompt_tokens
        status = self._final_status()
        content = self._answer.content
        return {
            "status": status,
            # Of several prompts only the sum is told, and none of them is that long.
            "prompt_tokens": None if body.batch else prompt,
            "output_tokens": usage.output if usage else None,
            "cached_tokens": usage.cached if usage and not body.batch else None,
            # An error has no content, however it is written.
            "empty": not content if content is not None or status >= 400 else None,
            "trace_id": self._answered.trace_id or asked.trace_id,
            "user": asked.any_of(user_headers) or asked.bearer_has_subject or body.user,
            "tenant": asked.any_of(tenant_headers),
            "retries": asked.retries,
            "ttft_seconds": None if self._first is None else self._first - self._began,
            "e2e_seconds": ended - self._began,
        }

    def _final_status(self) -> int:
        if self._answer.failure is not None:
            return self._answer.failure
        if self.left:
            return CLIENT_CLOSED
        return self._status if self.complete and self._status is not None else 500


def _answer(headers: Headers) -> Answer:
    kind = headers.get("content-type").partition(";")[0].strip().lower()
    if headers.readable and kind == "text/event-stream":
        return Events()
    if headers.readable and kind in ("application/json", "text/json"):
        return Document()
    return Opaque()
