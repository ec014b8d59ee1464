"""The middleware in front of an application, on a real server with real clients."""

import asyncio
import json
import logging
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from daemon.client_receiver import Receiver
from daemon.client_server import (
    DONE,
    EVENTS,
    JSON_ANSWER,
    Engine,
    answers,
    application,
    document,
    engine,
    event,
    part,
    said,
    start,
)
from e2e.program import until
from oomcast.client.asgi import Exchange, Receive, Reports, Send


def test_a_stream_without_usage_is_no_message_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with engine(answers(event(**said()), DONE, kind=EVENTS)) as running, caplog.at_level(logging.WARNING):
        assert [running.post().status_code for _ in range(3)] == [200] * 3
        until(lambda: running.client.unknown == 3)
        assert running.messages(0) == []
    assert len([record for record in caplog.records if "force-include-usage" in record.message]) == 1


@pytest.mark.parametrize("kind", ["application/json", "text/plain; charset=utf-8"])
@pytest.mark.parametrize("status", [400, 500, 503])
def test_an_error(status: int, kind: str) -> None:
    with engine(answers(document(error={"message": "no", "code": status}), kind=kind, status=status)) as running:
        running.post()
        message = running.message()
        assert (message["status"], message["empty"]) == (status, True)
        assert "prompt_tokens" not in message
        running.post(body={"model": "m", "prompt": list(range(2000)), "max_tokens": 1})
        assert running.message()["prompt_tokens"] == 2000


def test_an_application_that_raises_is_a_500_and_raises_still(tmp_path: Path) -> None:
    class Failure(Exception):
        pass

    failure = Failure()

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        raise failure

    async def nothing(*_: Any) -> Any:
        raise AssertionError

    reports = Reports(app, str(tmp_path / "socket"), "llama")
    with pytest.raises(Failure) as raised:
        asyncio.run(reports({"type": "http", "method": "POST", "path": "/generate", "headers": []}, nothing, nothing))
    assert raised.value is failure

    with engine(app) as running:
        assert running.post().status_code == 500
        assert running.message()["status"] == 500


def test_an_answer_that_breaks_off_is_a_500() -> None:
    async def handler(body: bytes, send: Send) -> None:
        await send(start(EVENTS))
        await part(send, event(**said()))

    with engine(application(handler)) as running:
        with pytest.raises(httpx.RemoteProtocolError):
            running.post()
        message = running.message()
        assert (message["status"], message["empty"]) == (500, False)


@pytest.mark.parametrize("streamed", [True, False])
def test_a_client_that_leaves_is_a_499(streamed: bool) -> None:
    async def events() -> Any:
        while True:
            yield event(**said())
            await asyncio.sleep(0.01)

    async def endpoint(request: Request) -> Any:
        if streamed:
            return StreamingResponse(events(), media_type="text/event-stream")
        while not await request.is_disconnected():
            await asyncio.sleep(0.01)
        return JSONResponse(json.loads(JSON_ANSWER))

    app = Starlette(routes=[Route("/generate", endpoint, methods=["POST"])])
    with engine(app) as running:
        with socket.create_connection(running.address) as connection:
            connection.sendall(b"POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
            if streamed:
                assert connection.recv(10) == b"HTTP/1.1 2"
        message = running.message()
        assert (message["status"], message["empty"]) == (499, False)
        assert ("ttft_seconds" in message) == streamed


def test_a_server_that_raises_when_the_client_has_left(tmp_path: Path) -> None:
    receiver = Receiver(tmp_path / "socket")
    reports = Reports(answers(event(**said()), kind=EVENTS), str(receiver.path), "llama")

    async def receive() -> Any:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        asyncio.run(reports({"type": "http", "method": "POST", "path": "/generate", "headers": []}, receive, send))
    assert [message["status"] for message in receiver.read()] == [499]
    assert reports.client is not None
    reports.client.close()
    receiver.close()


def test_a_client_that_leaves_once_it_has_the_answer_has_not_left_early(tmp_path: Path) -> None:
    receiver = Receiver(tmp_path / "socket")

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        await send(start())
        last = asyncio.ensure_future(send({"type": "http.response.body", "body": JSON_ANSWER}))
        await asyncio.sleep(0)
        assert (await receive())["type"] == "http.disconnect"
        await last

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        # A server may have the last bytes out before it returns.
        await asyncio.sleep(0.01)

    reports = Reports(app, str(receiver.path), "llama")
    asyncio.run(reports({"type": "http", "method": "POST", "path": "/generate", "headers": []}, receive, send))
    assert [message["status"] for message in receiver.read()] == [200]
    assert reports.client is not None
    reports.client.close()
    receiver.close()


def test_a_message_is_sent_when_the_answer_is_complete_whatever_the_application_does_then() -> None:
    async def handler(body: bytes, send: Send) -> None:
        await send(start())
        await send({"type": "http.response.body", "body": JSON_ANSWER})
        await asyncio.wait_for(ended.wait(), 60)
        raise RuntimeError("in the background")

    ended = asyncio.Event()
    with engine(application(handler)) as running:
        assert running.post().status_code == 200
        assert running.message()["status"] == 200
        ended.set()
        assert running.messages(0) == []


def test_other_requests_pass_unseen() -> None:
    with engine(answers(JSON_ANSWER)) as running:
        with httpx.Client(trust_env=False, verify=False) as client:
            assert client.get(running.url + "/v1/completions").content == JSON_ANSWER
        assert running.post("/v1/embeddings").content == JSON_ANSWER
        assert running.post("/v1/completions/").content == JSON_ANSWER
        assert running.messages(0) == []


@pytest.mark.parametrize("kind", ["lifespan", "websocket"])
def test_other_scopes_are_handed_on_untouched(tmp_path: Path, kind: str) -> None:
    got: list[tuple[Any, ...]] = []

    async def app(*arguments: Any) -> None:
        got.append(arguments)

    async def nothing(*_: Any) -> Any:
        raise AssertionError

    scope = {"type": kind, "path": "/v1/completions"}
    asyncio.run(Reports(app, str(tmp_path / "socket"), "llama")(scope, nothing, nothing))
    assert got == [(scope, nothing, nothing)]


def test_an_application_below_a_root_path_is_known() -> None:
    with engine(answers(JSON_ANSWER), root_path="/llm") as running:
        assert running.post("/v1/completions").status_code == 200
        assert running.message()["status"] == 200


def test_without_a_path_nothing_is_touched(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("OOMCAST_REQUEST_SOCKET", "OOMCAST_ENGINE"):
        monkeypatch.delenv(name, raising=False)
    got: list[tuple[Any, ...]] = []

    async def app(*arguments: Any) -> None:
        got.append(arguments)

    async def nothing(*_: Any) -> Any:
        raise AssertionError

    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}
    reports = Reports(app)
    assert reports.client is None
    asyncio.run(reports(scope, nothing, nothing))
    assert got == [(scope, nothing, nothing)]
    assert caplog.records == []

    # A path without an engine is a mistake: the requests are served all the same.
    monkeypatch.setenv("OOMCAST_REQUEST_SOCKET", "/run/oomcast/requests.sock")
    reports = Reports(app)
    asyncio.run(reports(scope, nothing, nothing))
    assert len(got) == 2
    assert "OOMCAST_ENGINE" in caplog.text
    monkeypatch.setenv("OOMCAST_ENGINE", "llama")
    assert Reports(app).client is not None


@pytest.mark.parametrize("part", ["received", "handed", "sent", "facts"])
def test_a_defect_of_a_report_costs_the_request_nothing(part: str, caplog: pytest.LogCaptureFixture) -> None:
    def raises(*_: Any) -> None:
        raise RuntimeError("a defect")

    with engine(answers(JSON_ANSWER)) as running, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Exchange, part, raises)
        assert [running.post().content for _ in range(2)] == [JSON_ANSWER] * 2
        assert running.messages(0) == []
    assert caplog.text.count("could not be observed") == 1


def test_requests_at_once_are_told_apart() -> None:
    async def handler(body: bytes, send: Send) -> None:
        count = len(json.loads(body)["prompt"])
        await send(start(EVENTS))
        for _ in range(count):
            await part(send, event(**said()))
            await asyncio.sleep(0)
        await part(send, event(choices=[], usage={"prompt_tokens": count, "completion_tokens": 2 * count}))
        await send({"type": "http.response.body"})

    async def ask(running: Engine) -> None:
        async with httpx.AsyncClient(timeout=20, trust_env=False, verify=False) as client:
            url = f"{running.url}/v1/completions"
            await asyncio.gather(*(client.post(url, json={"prompt": "x" * size}) for size in range(1, 10)))

    with engine(application(handler)) as running:
        asyncio.run(ask(running))
        # As many as a socket has room for where the kernel's limit is its default.
        told = sorted((message["prompt_tokens"], message["output_tokens"]) for message in running.messages(9))
        assert told == [(size, 2 * size) for size in range(1, 10)]
