"""What is a message and what is none."""

import json
from typing import Any

import pytest

from collectors.requests.support import TRACE, message
from oomcast_collectors.requests.message import MAX_BYTES, Message, Unreadable, read

_MOST = 1 << 40
_COUNTS = ("output_tokens", "cached_tokens", "retries", "lost")
_SECONDS = ("ttft_seconds", "e2e_seconds")
_FLAGS = ("empty", "user", "tenant")


def of(**keys: Any) -> Message:
    return read(json.dumps(message(**keys)).encode())


def fault(raw: bytes) -> tuple[str, str]:
    with pytest.raises(Unreadable) as caught:
        read(raw)
    return caught.value.outcome, str(caught.value)


def test_the_example_of_the_docs() -> None:
    text = (
        '{"v": 1, "engine": "llama", "prompt_tokens": 131500, "output_tokens": 12, "cached_tokens": 0, "status": 500,'
        f' "empty": true, "trace_id": "{TRACE}", "user": true, "tenant": false, "retries": 3, "breaker": "open",'
        ' "ttft_seconds": 1.2, "e2e_seconds": 30.5, "lost": 0}'
    )
    assert json.loads(text) == read(text.encode()).model_dump()


def test_what_is_not_told_is_not_known() -> None:
    least = of(trace_id=...)
    told = {"v": 1, "engine": "llama", "prompt_tokens": 1000, "status": 200}
    assert least.model_dump(exclude_none=True) == told
    assert not least.without_content
    assert of(**dict.fromkeys((*_COUNTS, *_SECONDS, *_FLAGS, "breaker", "trace_id"))) == least


@pytest.mark.parametrize(
    "keys",
    [
        *({key: value} for key in _COUNTS for value in (0, 1000)),
        *({key: _MOST} for key in ("output_tokens", "retries", "lost", "prompt_tokens")),
        *({key: value} for key in _SECONDS for value in (0, 3, 0.25, 1e6)),
        *({key: value} for key in _FLAGS for value in (True, False)),
        *({"breaker": state} for state in ("closed", "open", "half_open")),
        *({"status": status} for status in (100, 599)),
        {"prompt_tokens": 0},
        {"engine": "x" * 128},
        {"engine": "Qwen/Qwen3-8B (Köln)"},
        {"prompt_tokens": ..., "status": 400},
        {"prompt_tokens": None, "status": 599, "cached_tokens": 7},
        {"key of a later version": {"deep": [1, 2]}},
    ],
)
def test_taken(keys: dict[str, Any]) -> None:
    found = of(**keys)
    assert all(getattr(found, key) == value for key, value in keys.items() if value is not ... and " " not in key)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        *(({key: value}, key) for key in _COUNTS for value in (-1, _MOST + 1, 1.0, "1", True, [1], 10**400)),
        *(({key: value}, key) for key in _SECONDS for value in (-0.1, 1e6 + 1, "1", True, float("nan"), float("inf"))),
        *(({key: value}, key) for key in _FLAGS for value in (0, 1, "true", "the-user", [True])),
        *(({"breaker": value}, "breaker") for value in ("half-open", "Open", "", 1, True)),
        *(({"status": value}, "status") for value in (99, 600, -200, "200", 200.0, True, None, ...)),
        *(({"engine": value}, "engine") for value in ("", "x" * 129, 1, None, ..., ["llama"])),
        *(({"engine": f"a{odd}"}, "do not print") for odd in ("\n", "\0", "\x7f", "\u2028", "\u202e", "\ufffe")),
        *(({"prompt_tokens": value}, "prompt_tokens") for value in (-1, _MOST + 1, 1.5, "1", True)),
        *(({"prompt_tokens": value, "status": 399}, "prompt_tokens is missing") for value in (None, ...)),
        ({"cached_tokens": 1001}, "more than prompt_tokens"),
        *(({"v": value}, "v: ") for value in (..., None, True, "1", 1.0, 2.0, [1])),
    ],
)
def test_refused(keys: dict[str, Any], reason: str) -> None:
    outcome, text = fault(json.dumps(message(**keys)).encode())
    assert outcome == "invalid"
    assert reason in text


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b" ", b"\0", b"\xff", b"null", b"1", b'"v"', b"[]", b"{}", b'{"v":1}'),
        b"[" * MAX_BYTES,
        b'{"v":' * 400,
        json.dumps(message()).encode()[:-1],
        json.dumps(message()).encode() + b"x",
        json.dumps(message()).encode() * 2,
        json.dumps(message()).encode("utf-16"),
        json.dumps(message()).replace("llama", "\\ud800").encode(),
        json.dumps(message()).replace("llama", "\\u0000").encode(),
        json.dumps(message()).encode().replace(b"llama", b"lla\xffma"),
        b'{"v": 1, "engine": "a", "status": 200, "prompt_tokens": ' + b"9" * 1900 + b"}",
    ],
)
def test_no_message_at_all(raw: bytes) -> None:
    assert fault(raw)[0] == "invalid"


@pytest.mark.parametrize("version", [2, 0, -1, 10**30])
def test_another_version_is_told_apart_whatever_else_it_says(version: int) -> None:
    for keys in ({}, {"engine": ..., "status": "fine"}):
        outcome, text = fault(json.dumps(message(v=version, **keys)).encode())
        assert (outcome, text) == ("version", "only version 1 is known")


def test_the_last_of_equal_keys_counts() -> None:
    assert read(b'{"v": 2, "v": 1, "engine": "a", "prompt_tokens": 1, "status": 200, "status": 201}').status == 201
    assert fault(b'{"v": 1, "engine": "a", "prompt_tokens": 1, "status": 200, "v": 2}')[0] == "version"


def test_a_reason_holds_nothing_of_the_message() -> None:
    for key in ("user", "breaker", "output_tokens", "engine", "status", "v", "ttft_seconds"):
        assert "secret" not in fault(json.dumps(message(**{key: ["secret"]})).encode())[1]
    assert "secret" not in fault(b'{"secret": nonsense}')[1]


@pytest.mark.parametrize("value", [TRACE, "0" * 31 + "1", "f" * 32])
def test_a_trace_id(value: str) -> None:
    assert of(trace_id=value).trace == value


@pytest.mark.parametrize(
    "value", ["", "0" * 32, TRACE.upper(), TRACE[1:], TRACE + "0", TRACE + "\n", " " + TRACE[1:], 17, True, [TRACE], {}]
)
def test_a_wrong_trace_id_is_none_and_no_fault(value: object) -> None:
    found = of(trace_id=value)
    assert (found.trace, found.trace_id) == (None, value)


@pytest.mark.parametrize(
    ("keys", "empty"),
    [
        ({}, False),
        ({"output_tokens": 0}, True),
        ({"output_tokens": 1}, False),
        ({"empty": True, "output_tokens": 5}, True),
        ({"empty": False, "output_tokens": 0}, False),
    ],
)
def test_without_content(keys: dict[str, Any], empty: bool) -> None:
    assert of(**keys).without_content is empty
