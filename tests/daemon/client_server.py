"""An engine's application behind the middleware, served by uvicorn on loopback, and the messages that come of it."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import uvicorn

from daemon.client_receiver import Receiver
from e2e.program import until
from fakes import FakeClock
from oomcast.client import Client
from oomcast.client.asgi import App, Message, Receive, Reports, Send

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10, "prompt_tokens_details": {"cached_tokens": 4}}
EVENTS = "text/event-stream; charset=utf-8"
DONE = b"data: [DONE]\n\n"

Handler = Callable[[bytes, Send], Any]
"""A coroutine function that is given the request's body, and sends the answer."""


class Engine:
    """url: where it listens. clock: that of the middleware. reports: the middleware."""

    def __init__(self, app: App, receiver: Receiver, root_path: str, **options: Any) -> None:
        self.clock = FakeClock()
        self.reports = Reports(app, str(receiver.path), "llama", clock=self.clock.monotonic, **options)
        self._receiver = receiver
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self.url = f"http://127.0.0.1:{self.address[1]}"
        config = uvicorn.Config(
            self.reports, log_config=None, lifespan="off", access_log=False, ws="none", root_path=root_path
        )
        self._server = uvicorn.Server(config)
        run = self._server.serve([self._listener])
        self._thread = threading.Thread(target=asyncio.run, args=(run,), name="engine", daemon=True)

    @property
    def client(self) -> Client:
        assert self.reports.client is not None
        return self.reports.client

    def start(self) -> None:
        self._thread.start()
        until(lambda: self._server.started)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        assert not self._thread.is_alive()
        self.client.close()

    def post(self, path: str = "/v1/completions", body: Any = None, **arguments: Any) -> httpx.Response:
        arguments.setdefault("json", {"model": "m", "prompt": "Hello"} if body is None else body)
        if "content" in arguments:
            del arguments["json"]
        with httpx.Client(timeout=20, trust_env=False, verify=False) as client:
            return client.post(self.url + path, **arguments)

    def collect(self, found: list[dict[str, Any]]) -> int:
        """Adds the messages that are there, and says how many there are now."""
        found += self._receiver.read()
        return len(found)

    def messages(self, count: int) -> list[dict[str, Any]]:
        """The messages since the last call, once there are so many."""
        found: list[dict[str, Any]] = []
        until(lambda: self.collect(found) >= count)
        assert len(found) == count
        return found

    def message(self) -> dict[str, Any]:
        (message,) = self.messages(1)
        return message


@contextmanager
def engine(app: App, *, root_path: str = "", **options: Any) -> Iterator[Engine]:
    with TemporaryDirectory() as directory:
        receiver = Receiver(Path(directory) / "socket")
        running = Engine(app, receiver, root_path, **options)
        running.start()
        try:
            yield running
        finally:
            running.stop()
            receiver.close()


def application(handler: Handler) -> App:
    """Reads the whole request, then has it handled."""

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        await handler(body, send)

    return app


def answers(*parts: bytes, kind: str = "application/json", status: int = 200, headers: Any = ()) -> App:
    """An application that always answers with a body in these parts."""

    async def handler(body: bytes, send: Send) -> None:
        await send(start(kind, status, headers))
        for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body"})

    return application(handler)


def start(kind: str = "application/json", status: int = 200, headers: Any = ()) -> Message:
    return {"type": "http.response.start", "status": status, "headers": [(b"content-type", kind.encode()), *headers]}


def document(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def event(**fields: Any) -> bytes:
    return b"data: " + document(**fields) + b"\n\n"


def said(text: str = "Hi") -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": text}]}


JSON_ANSWER = document(**said(), usage=USAGE)


async def part(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})
