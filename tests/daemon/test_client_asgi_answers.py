"""What the middleware reads of answers."""

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.client_server import (
    DONE,
    EVENTS,
    JSON_ANSWER,
    USAGE,
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
from oomcast.client.answers import MAX_DOCUMENT, TAIL, Document, Events
from oomcast.client.asgi import Send


def test_a_json_answer() -> None:
    with engine(answers(JSON_ANSWER)) as running:
        response = running.post()
        assert (response.status_code, response.content) == (200, JSON_ANSWER)
        assert running.message() == {
            "v": 1,
            "engine": "llama",
            "status": 200,
            "prompt_tokens": 7,
            "output_tokens": 3,
            "cached_tokens": 4,
            "empty": False,
            "user": False,
            "tenant": False,
            "e2e_seconds": 0.0,
        }


def test_a_stream_and_its_times() -> None:
    async def handler(body: bytes, send: Send) -> None:
        await send(start(EVENTS))
        running.clock.advance(1)
        await part(send, b": keep-alive\n\n" + event(choices=[{"delta": {"role": "assistant", "content": ""}}]))
        running.clock.advance(2)
        await part(send, event(choices=[{"delta": {"content": "Hi"}}]))
        running.clock.advance(4)
        await part(send, event(choices=[], usage=USAGE) + DONE)
        running.clock.advance(8)
        await send({"type": "http.response.body"})
        running.clock.advance(16)

    with engine(application(handler)) as running:
        assert running.post("/v1/chat/completions").text.endswith("[DONE]\n\n")
        message = running.message()
        assert (message["ttft_seconds"], message["e2e_seconds"]) == (3, 15)
        assert (message["prompt_tokens"], message["output_tokens"], message["cached_tokens"]) == (7, 3, 4)
        assert not message["empty"]


NAMES = ("prompt", "output", "cached")
RESPONSES_USAGE = {"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 0}}
MESSAGE = {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}


@pytest.mark.parametrize(
    ("body", "tokens", "empty"),
    [
        (document(choices=[{"message": {"content": "Hi"}}], usage=USAGE), (7, 3, 4), False),
        (document(choices=[{"message": {"content": None, "tool_calls": []}}], usage=USAGE), (7, 3, 4), True),
        (document(choices=[{"message": {"content": "", "reasoning_content": "Hm"}}], usage=USAGE), (7, 3, 4), False),
        (
            document(choices=[{"message": {"tool_calls": [{"id": "1"}]}}], usage=USAGE),
            (7, 3, 4),
            False,
        ),
        (document(choices=[{"text": ""}, {"text": "x"}], usage=USAGE), (7, 3, 4), False),
        (document(choices=[], usage={"prompt_tokens": 5}), (5, None, None), True),
        (document(**said(), usage={"prompt_tokens": 5, "prompt_tokens_details": None}), (5, None, None), False),
        (document(output=[MESSAGE], text={"format": {"type": "text"}}, usage=RESPONSES_USAGE), (9, 2, 0), False),
        (document(output=[], text={"format": {"type": "text"}}, usage=RESPONSES_USAGE), (9, 2, 0), True),
        (document(output=[{"type": "function_call", "name": "f"}], usage=RESPONSES_USAGE), (9, 2, 0), False),
        (
            document(text="Hi", meta_info={"prompt_tokens": 6, "cached_tokens": 2}),
            (6, None, 2),
            False,
        ),
        (
            document(text="", meta_info={"prompt_tokens": 6, "cached_tokens": 9}),
            (6, None, None),
            True,
        ),
    ],
)
def test_the_answers_of_engines(body: bytes, tokens: tuple[int | None, ...], empty: bool) -> None:
    with engine(answers(body)) as running:
        running.post("/v1/responses")
        message = running.message()
        assert tuple(message.get(f"{name}_tokens") for name in NAMES) == tokens
        assert message["empty"] == empty


@pytest.mark.parametrize(
    ("events", "tokens", "empty"),
    [
        ([event(**said()), event(choices=[], usage=USAGE), DONE], (7, 3), False),
        ([event(**said("")), event(choices=[], usage=USAGE), DONE], (7, 3), True),
        # Usage in each chunk: the last one counts.
        ([event(**said(), usage={"prompt_tokens": 7, "completion_tokens": n}) for n in range(4)], (7, 3), False),
        ([event(**said(), usage=None), event(choices=[], usage=USAGE)], (7, 3), False),
        ([event(**said(), usage=USAGE), event(choices=[{"usage": {"prompt_tokens": 1}}])], (7, 3), False),
        ([b"data:" + document(**said(), usage=USAGE) + b"\r\n\r\n"], (7, 3), False),
        ([event(**said()), b"data: " + document(choices=[], usage=USAGE)], (7, 3), False),
        (
            [
                event(type="response.created", response={"output": [], "usage": None}),
                event(type="response.output_text.delta", delta="Hi"),
                event(type="response.completed", response={"output": [MESSAGE], "usage": RESPONSES_USAGE}),
            ],
            (9, 2),
            False,
        ),
        (
            [
                event(text="H", meta_info={"prompt_tokens": 6, "completion_tokens": 1}),
                event(text="Hi", meta_info={"prompt_tokens": 6, "completion_tokens": 2}),
                DONE,
            ],
            (6, 2),
            False,
        ),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_the_streams_of_engines_however_they_are_cut(
    events: list[bytes], tokens: tuple[int, int], empty: bool, size: int
) -> None:
    text = b"".join(events)
    answer = Events()
    for begin in range(0, len(text), size):
        answer.feed(text[begin : begin + size])
    answer.end()
    assert answer.usage is not None
    assert (answer.usage.prompt, answer.usage.output) == tokens
    assert (answer.content, answer.failure) == (not empty, None)


def test_what_a_model_writes_is_no_usage() -> None:
    text = json.dumps({"usage": {"prompt_tokens": 1}, "error": {"code": 500}})
    with engine(answers(event(**said(text)), event(**said('"usage": {"prompt_tokens": 1}')), kind=EVENTS)) as running:
        running.post(body={"prompt": [1, 2, 3, 4]})
        message = running.message()
        assert (message["status"], message["prompt_tokens"], message["empty"]) == (200, 4, False)
        assert "output_tokens" not in message


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (event(error={"message": "EngineCore died", "type": "InternalServerError", "code": 500}), 500),
        (event(error={"message": "gone", "code": 503}), 503),
        (event(error={"message": "no code"}), 500),
        (event(error={"message": "odd", "code": 200}), 500),
        (event(type="response.failed", response={"status": "failed", "usage": None}), 500),
        (event(type="error", message="gone"), 500),
    ],
)
def test_an_engine_that_dies_while_it_streams_has_failed(error: bytes, status: int) -> None:
    with engine(answers(event(**said()), error, DONE, kind=EVENTS)) as running:
        assert running.post().status_code == 200
        message = running.message()
        assert (message["status"], message["empty"]) == (status, False)
        assert "prompt_tokens" not in message


HOSTILE = [
    b"",
    b"{",
    b"\xff\xfe\x00",
    b"[" * 200_000,
    b'{"user": ' + b"[" * 200_000,
    b'{"user": ' + b"9" * 10_000 + b"}",
    b'{"user": "a", "prompt": [' + b"1," * 100_000,
    b'{"choices": 5, "usage": {"prompt_tokens": "7"}}',
    b'{"choices": [1, {"message": 2, "delta": [], "text": {}}], "usage": [], "output": [[]], "response": 1}',
    b'{"usage": {"prompt_tokens": 1e400, "completion_tokens": NaN, "prompt_tokens_details": 5}}',
    b"null",
]


@pytest.mark.parametrize("body", HOSTILE)
@pytest.mark.parametrize("kind", ["application/json", EVENTS, ""])
def test_whatever_passes_is_not_changed(body: bytes, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    text = b"data: " + body + b"\n\n" if kind == EVENTS else body
    seen = []

    async def handler(asked: bytes, send: Send) -> None:
        seen.append(asked)
        await send(start(kind))
        await part(send, text)
        await send({"type": "http.response.body"})

    with engine(application(handler)) as running:
        assert running.post(content=body).content == text
        assert seen == [body]
        until(lambda: running.client.unknown == 1)
    assert "could not be observed" not in caplog.text


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.binary(), st.sampled_from([*HOSTILE[:3], *HOSTILE[7:], JSON_ANSWER, b"\n", b"data:"]))))
def test_any_bytes_can_be_read(parts: list[bytes]) -> None:
    for answer in (Document(), Events()):
        for one in parts:
            answer.feed(one)
        answer.end()


def test_usage_at_the_end_of_a_huge_answer_is_found() -> None:
    filler = json.dumps('a"usage": {"prompt_tokens": 1}, ' * 100).encode()
    body = b'{"choices": [{"text": [' + b",".join([filler] * (3 * MAX_DOCUMENT // len(filler)))
    # The last one is that of the answer.
    body += b'], "usage": {"prompt_tokens": 1}}], "usage": '
    body += json.dumps(USAGE).encode() + b', "more": "' + b"x" * (TAIL // 2) + b'"}'
    with engine(answers(*(body[begin : begin + 50_000] for begin in range(0, len(body), 50_000)))) as running:
        assert running.post().content == body
        message = running.message()
        assert (message["prompt_tokens"], message["output_tokens"]) == (7, 3)
        assert "empty" not in message


def test_usage_at_the_end_of_a_huge_event_is_found() -> None:
    long = b"data: " + document(type="response.completed", response={"output": "x" * 300_000, "usage": RESPONSES_USAGE})
    answer = Events()
    answer.feed(event(**said()) + long + b"\n\n" + DONE)
    answer.end()
    assert answer.usage is not None
    assert (answer.usage.prompt, answer.content) == (9, True)


@pytest.mark.parametrize("reader", [Document, Events])
def test_memory_is_bounded(reader: type[Document | Events]) -> None:
    answer = reader()
    part = b"x" * 100_000
    largest = 0
    for _ in range(200):
        answer.feed(part)
        kept = answer._kept if isinstance(answer, Document) else answer._line
        largest = max(largest, len(kept))
    assert largest <= (MAX_DOCUMENT if reader is Document else TAIL)
    answer.end()


def test_a_body_may_be_a_memoryview() -> None:
    async def handler(body: bytes, send: Send) -> None:
        await send(start(EVENTS))
        await send({"type": "http.response.body", "body": memoryview(event(**said(), usage=USAGE))})

    with engine(application(handler)) as running:
        running.post()
        assert running.message()["prompt_tokens"] == 7


def test_what_is_compressed_is_not_read() -> None:
    headers = [(b"content-encoding", b"gzip")]
    with engine(answers(gzip.compress(JSON_ANSWER), headers=headers)) as running:
        assert running.post().content == JSON_ANSWER
        running.post(body={"prompt": [1, 2, 3]})
        message = running.message()
        assert message["prompt_tokens"] == 3
        assert "empty" not in message
