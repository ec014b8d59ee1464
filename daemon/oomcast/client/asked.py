"""What of a request is told: the length of its prompt, who asks (whether, never who), and how often it was tried."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence

from .answers import parsed

MAX_BODY = 1 << 22
"""Bytes of a request's body that are kept until it is complete."""

_MAX_TOKEN = 1 << 14
_TELLING = re.compile(rb'"(?:user|prompt|input_ids|truncate_prompt_tokens)"\s*:')
_TOKENS = re.compile(rb'"(prompt|input_ids)"\s*:\s*\[(?=\s*\d)')
_BATCH = re.compile(rb'"(?:prompt|input_ids|text)"\s*:\s*\[\s*[\["{]')
_LIST = b"0123456789, \t\r\n"
_COUNTED = [-1]
"""What stands for a list of tokens that was counted; no token has this number."""

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-((?!0{32})[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-|\Z)")


class Body:
    """The body of a request, of which nothing is kept once it is complete.

    prompt_tokens: where the prompt is one list of tokens. batch: there are several prompts, or may be. user: whether a
    user is named; None until the body was read as a whole.
    """

    def __init__(self, readable: bool) -> None:
        self.prompt_tokens: int | None = None
        self.batch = False
        self.user: bool | None = None
        self._readable = readable
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, part: bytes, more: bool) -> None:
        if not self._readable:
            return
        self._size += len(part)
        self._parts.append(part)
        if more and self._size <= MAX_BODY:
            return
        body = b"".join(self._parts)
        self._parts = []
        self._readable = False
        self.batch = bool(_BATCH.search(body))
        if self._size <= MAX_BODY:
            self._read(body)

    def _read(self, body: bytes) -> None:
        self.user = False
        if not self.batch and not _TELLING.search(body):
            return
        body, count = _without_tokens(body)
        request = parsed(body)
        if not isinstance(request, dict):
            self.user = None
            return
        self.user = bool(request.get("user"))
        self.batch = any(_several(request.get(name)) for name in ("prompt", "input_ids", "text"))
        counted = count > 0 and _COUNTED in (request.get("prompt"), request.get("input_ids"))
        # Otherwise the engine reads less of it.
        if counted and request.get("truncate_prompt_tokens") is None:
            self.prompt_tokens = count


class Headers:
    """Of one message, by name in lower case; of several with one name, the first."""

    def __init__(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        self._values: dict[str, str] = {}
        for name, value in pairs:
            self._values.setdefault(name.decode("latin-1").lower(), value.decode("latin-1").strip())

    def get(self, name: str) -> str:
        return self._values.get(name, "")

    def any_of(self, names: Sequence[str]) -> bool:
        return any(self.get(name) for name in names)

    @property
    def readable(self) -> bool:
        """Whether the body is as it was written."""
        return self.get("content-encoding").lower() in ("", "identity")

    @property
    def trace_id(self) -> str | None:
        """Of the W3C's traceparent."""
        found = _TRACEPARENT.match(self.get("traceparent"))
        return found[1] if found else None

    @property
    def bearer_has_subject(self) -> bool:
        """Whether there is a JSON Web Token with a subject. It is not verified: this is no access control."""
        kind, _, token = self.get("authorization").partition(" ")
        parts = token.strip().split(".")
        if kind.lower() != "bearer" or len(parts) != 3 or len(token) > _MAX_TOKEN:
            return False
        try:
            claims = parsed(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        except ValueError:
            return False
        return isinstance(claims, dict) and bool(claims.get("sub"))

    @property
    def retries(self) -> int | None:
        """How often it was tried before, by its client or by Envoy, whose count has the first attempt in it."""
        told = [_whole(self.get(name)) for name in ("x-retry-count", "x-stainless-retry-count")]
        attempts = _whole(self.get("x-envoy-attempt-count"))
        told.append(attempts - 1 if attempts else None)
        return max((count for count in told if count is not None), default=None)


def _without_tokens(body: bytes) -> tuple[bytes, int]:
    """The body with _COUNTED for its list of tokens, and their number: to parse 131,072 of them would hold up the
    engine's event loop for 20 ms."""
    found = _TOKENS.search(body)
    end = body.find(b"]", found.end()) if found else -1
    if found is None or end < 0:
        return body, 0
    numbers = body[found.end() : end]
    if numbers.translate(None, _LIST):
        return body, 0
    return body[: found.end()] + b"-1" + body[end:], numbers.count(b",") + 1


def _several(value: object) -> bool:
    """Whether it is more than one prompt: one may be a list of tokens."""
    return isinstance(value, list) and len(value) > 1 and not isinstance(value[0], int)


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
