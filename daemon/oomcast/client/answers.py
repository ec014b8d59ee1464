"""What passes by of an answer: its usage, whether it has content, and errors that come after the status.

Known are the answers of OpenAI's completions, chat completions and responses, and of SGLang's /generate. Nothing of
an answer's text is kept beyond its parsing, and memory is bounded whatever passes by.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Protocol

MAX_DOCUMENT = 1 << 20
"""Bytes of a JSON answer that are kept to be parsed as a whole."""

TAIL = 1 << 16
"""Bytes that are kept of what is longer, and of a line of an event stream: usage comes near the end."""

# A key: within a string its first quote has a backslash before it, and the second one as well.
_TELLING = re.compile(rb'"(?:usage|meta_info|error)"\s*:\s*[{"]|"response\.failed"|"type"\s*:\s*"error"')
_USAGE = re.compile(rb'[{,\s]"(?:usage|meta_info)"\s*:\s*(?=\{)')
_SPOKEN = ("text", "content", "reasoning", "reasoning_content", "refusal", "tool_calls", "function_call", "audio")


class Usage:
    """Tokens, as far as they were told: whole numbers, None where they were not."""

    def __init__(self, told: Mapping[str, object]) -> None:
        self.prompt = _number(told, "prompt_tokens", "input_tokens")
        self.output = _number(told, "completion_tokens", "output_tokens")
        self.cached = _number(told, "cached_tokens")
        for name in ("prompt_tokens_details", "input_tokens_details"):
            details = told.get(name)
            if isinstance(details, dict):
                self.cached = _number(details, "cached_tokens")


class Answer(Protocol):
    """usage: the last one that was told. content: whether there was any; None where that cannot be said. failure: the
    status of an error that came in the answer itself, None without one."""

    usage: Usage | None
    content: bool | None
    failure: int | None

    def feed(self, part: bytes) -> None:
        """The next bytes of the body."""

    def end(self) -> None:
        """The body is complete."""


class Opaque:
    """An answer that cannot be read: compressed, or of another type."""

    usage: Usage | None = None
    content: bool | None = None
    failure: int | None = None

    def feed(self, part: bytes) -> None:
        pass

    def end(self) -> None:
        pass


class Document:
    """One JSON object."""

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.content: bool | None = None
        self.failure: int | None = None
        self._kept = bytearray()
        self._cut = False

    def feed(self, part: bytes) -> None:
        self._kept += part
        if len(self._kept) > (TAIL * 2 if self._cut else MAX_DOCUMENT):
            self._cut = True
            del self._kept[:-TAIL]

    def end(self) -> None:
        body, self._kept = bytes(self._kept), bytearray()
        if self._cut:
            self.usage = _last_usage(body)
            return
        answer = parsed(body)
        if isinstance(answer, dict):
            self.usage = _usage(answer)
            self.content = _has_content(answer)


class Events:
    """Server-sent events, each with one JSON object on one line, as all these engines write them."""

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.content: bool | None = False
        self.failure: int | None = None
        self._line = bytearray()
        self._cut = False

    def feed(self, part: bytes) -> None:
        first, *others = part.split(b"\n")
        self._keep(first)
        for line in others:
            self._take(bytes(self._line))
            self._line, self._cut = bytearray(), False
            self._keep(line)

    def end(self) -> None:
        self._take(bytes(self._line))
        self._line = bytearray()

    def _keep(self, part: bytes) -> None:
        self._line += part
        if len(self._line) > TAIL:
            self._cut = True
            del self._line[:-TAIL]

    def _take(self, line: bytes) -> None:
        if self._cut:
            self.usage = _last_usage(line) or self.usage
            # No event is that long which has nothing to say.
            self.content = True
        elif line.startswith(b"data:") and (not self.content or _TELLING.search(line)):
            event = parsed(line[5:])
            if isinstance(event, dict):
                self.usage = _usage(event) or self.usage
                self.content = self.content or _has_content(event)
                self.failure = self.failure or _failure(event)


def parsed(text: bytes) -> object:
    """The JSON value, None if it is none."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value


def _usage(answer: Mapping[str, object]) -> Usage | None:
    within = answer.get("response")
    for holder in (answer, within if isinstance(within, dict) else {}):
        for name in ("usage", "meta_info"):
            told = holder.get(name)
            if isinstance(told, dict):
                return Usage(told)
    return None


def _last_usage(fragment: bytes) -> Usage | None:
    """That of a JSON text whose beginning is missing."""
    starts = [found.end() for found in _USAGE.finditer(fragment)]
    if not starts:
        return None
    try:
        told, _ = json.JSONDecoder().raw_decode(fragment[starts[-1] :].decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    return Usage(told)


def _failure(event: Mapping[str, object]) -> int | None:
    """The status of an event that tells an error: its code, 500 where that is none of HTTP."""
    error = event.get("error")
    if not error and event.get("type") not in ("error", "response.failed"):
        return None
    code = _number(error, "code") if isinstance(error, dict) else None
    return code if code is not None and 400 <= code <= 599 else 500


def _has_content(answer: Mapping[str, object]) -> bool:
    return any(map(_speaks, _voices(answer)))


def _voices(answer: Mapping[str, object]) -> Iterator[object]:
    """The parts of an answer or event that may hold what the model said."""
    text = answer.get("text")
    # An object in this place is the format that was asked for.
    yield {"text": text if isinstance(text, str) else ""}
    for choice in _items(answer.get("choices")):
        yield choice
        yield choice.get("message")
        yield choice.get("delta")
    within = answer.get("response")
    for holder in (answer, within if isinstance(within, dict) else {}):
        for item in _items(holder.get("output")):
            # A call of a function says something by itself.
            yield {"text": item.get("name")}
            yield from (*_items(item.get("content")), *_items(item.get("summary")))
    kind = answer.get("type")
    if isinstance(kind, str) and kind.endswith(".delta"):
        yield {"text": answer.get("delta")}


def _speaks(voice: object) -> bool:
    return isinstance(voice, dict) and any(_said(voice.get(name)) for name in _SPOKEN)


def _said(value: object) -> bool:
    """A list or object in which anything is, and a text that is not empty."""
    return bool(value) and isinstance(value, (str, list, dict))


def _items(value: object) -> list[Mapping[str, object]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _number(told: Mapping[str, object], *names: str) -> int | None:
    for name in names:
        value = told.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None
