"""What the middleware reads of requests."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from daemon.client_server import (
    JSON_ANSWER,
    Engine,
    answers,
    engine,
)
from oomcast.client.asked import MAX_BODY, Body

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
OTHER_TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture(scope="module")
def running() -> Iterator[Engine]:
    with engine(answers(JSON_ANSWER)) as running:
        yield running


def jwt(payload: object) -> str:
    text = base64.urlsafe_b64encode(json.dumps(payload).encode()).decode().rstrip("=")
    return f"Bearer eyJhbGciOiJub25lIn0.{text}.c2ln"


@pytest.mark.parametrize(
    ("headers", "body", "user"),
    [
        ({}, {}, False),
        ({"x-user-id": "alice"}, {}, True),
        ({"x-user-id": ""}, {}, False),
        ({}, {"user": "alice"}, True),
        ({}, {"user": ""}, False),
        ({}, {"user": None}, False),
        ({}, {"messages": [{"role": "user", "content": '"user": "alice"'}]}, False),
        ({}, {"metadata": {"user": "alice"}}, False),
        ({"authorization": jwt({"sub": "alice"})}, {}, True),
        ({"authorization": jwt({"sub": ""})}, {}, False),
        ({"authorization": jwt(["sub"])}, {}, False),
        ({"authorization": "Bearer sk-secret"}, {}, False),
        ({"authorization": "Bearer a.\u00ff.c"}, {}, False),
        ({"authorization": "Bearer a.AAA.c"}, {}, False),
        ({"authorization": "Basic YTpi"}, {}, False),
    ],
)
def test_whether_there_is_a_user(headers: dict[str, str], body: dict[str, Any], user: bool, running: Engine) -> None:
    running.post(body=body, headers={name: value.encode("latin-1") for name, value in headers.items()})
    message = running.message()
    assert message["user"] is user
    assert "alice" not in json.dumps(message)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"x-tenant-id": "acme"}, {"tenant": True}),
        ({"x-retry-count": "2"}, {"retries": 2}),
        ({"x-stainless-retry-count": "0"}, {"retries": 0}),
        ({"x-envoy-attempt-count": "1"}, {"retries": 0}),
        ({"x-envoy-attempt-count": "4", "x-stainless-retry-count": "1"}, {"retries": 3}),
        ({"x-envoy-attempt-count": "0"}, {}),
        ({"x-retry-count": "-1"}, {}),
        ({"x-retry-count": "9" * 400}, {}),
        ({"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}, {"trace_id": TRACE}),
        ({"traceparent": f"00-{TRACE.upper()}-00f067aa0ba902b7-01"}, {}),
        ({"traceparent": f"00-{'0' * 32}-00f067aa0ba902b7-01"}, {}),
        ({"traceparent": f"ff-{TRACE}-00f067aa0ba902b7-01"}, {}),
        ({"traceparent": TRACE}, {}),
    ],
)
def test_what_headers_tell(headers: dict[str, str], expected: dict[str, Any], running: Engine) -> None:
    running.post(headers=headers)
    message = running.message()
    told = {name: message[name] for name in ("retries", "trace_id", "tenant") if name in message}
    assert told == {"tenant": False, **expected}


def test_the_trace_of_the_answer_comes_before_that_of_the_request() -> None:
    headers = [(b"Traceparent", f"00-{OTHER_TRACE}-00f067aa0ba902b7-01".encode())]
    with engine(answers(JSON_ANSWER, headers=headers)) as running:
        running.post(headers={"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"})
        assert running.message()["trace_id"] == OTHER_TRACE


def test_names_can_be_set() -> None:
    options: dict[str, Any] = {"paths": ("/v2/ask",), "user_headers": ("x-u",), "tenant_headers": ("x-t",)}
    with engine(answers(JSON_ANSWER), **options) as running:
        running.post()
        running.post("/v2/ask", headers={"x-u": "1", "x-t": "2"})
        message = running.message()
        assert (message["user"], message["tenant"]) == (True, True)


@pytest.mark.parametrize(
    ("body", "prompt"),
    [
        ({"prompt": [5]}, 1),
        ({"prompt": list(range(131_072))}, 131_072),
        ({"input_ids": [1, 2]}, 2),
        ({"prompt": "text"}, None),
        ({"prompt": []}, None),
        ({"prompt": [[1, 2], [3]]}, None),
        ({"prompt": [1, 2], "truncate_prompt_tokens": 1}, None),
        ({"extra": {"prompt": [1, 2]}}, None),
        ({"prompt": [1, "a"]}, None),
        ({"prompt": [-1]}, None),
    ],
)
def test_a_prompt_of_tokens_tells_its_length(body: dict[str, Any], prompt: int | None) -> None:
    with engine(answers(b"{}", status=500)) as running:
        running.post(body=body)
        assert running.message().get("prompt_tokens") == prompt


@pytest.mark.parametrize("body", [{"prompt": ["a", "b"]}, {"prompt": [[1], [2, 3]]}, {"text": ["a", "b"]}])
def test_several_prompts_in_one_request_are_none_of_that_length(body: dict[str, Any]) -> None:
    with engine(answers(JSON_ANSWER)) as running:
        assert running.post(body=body).content == JSON_ANSWER
        running.post(body={"prompt": ["a"]})
        assert running.message()["prompt_tokens"] == 7
        assert running.client.unknown == 1


def test_a_huge_request_is_passed_on_and_its_user_not_known() -> None:
    body = json.dumps({"prompt": "x" * MAX_BODY, "user": "alice"})
    with engine(answers(JSON_ANSWER)) as running:
        running.post(content=body.encode())
        message = running.message()
        assert message["prompt_tokens"] == 7
        assert "user" not in message
        running.post(content=body.encode(), headers={"x-user-id": "alice"})
        assert running.message()["user"] is True


def test_what_is_kept_of_a_request_that_does_not_end_is_bounded() -> None:
    body = Body(readable=True)
    for _ in range(2 * MAX_BODY // 100_000):
        body.feed(b"x" * 100_000, more=True)
        assert sum(map(len, body._parts)) <= MAX_BODY
    assert body.user is None
