"""One request as a message to the daemon: a JSON object in a datagram, version 1."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

MAX_BYTES = 2048
"""No message is longer: all its fields are bounded, and together they are far below."""

_MAX_ENGINE = 128
_MAX_COUNT = 1 << 40
_MAX_SECONDS = 1e6
_TRACE_ID = re.compile(r"(?!0{32})[0-9a-f]{32}\Z")
_BREAKERS = ("closed", "open", "half_open")


class Unknown(ValueError):
    """The length of the prompt is not known, and the request was answered: nothing can be said about it."""


class Encoder:
    """Makes the messages of one engine. Raises ValueError unless its name has 1 to 128 printable characters.

    left_out: how many values were not what their field takes, and were left out of messages.
    """

    def __init__(self, engine: str) -> None:
        if not (0 < len(engine) <= _MAX_ENGINE and engine.isprintable()):
            raise ValueError(f"an engine's name has 1 to {_MAX_ENGINE} printable characters, not {engine!r}")
        self._head = f'{{"v":1,"engine":{json.dumps(engine, ensure_ascii=False)}'
        self.left_out = 0

    def encode(self, given: Mapping[str, object]) -> bytes:
        """The message with what is `given` and known, without `lost`. Raises ValueError without a status, and Unknown
        without prompt_tokens where the status is below 400."""
        known: dict[str, str] = {}
        for name, value in given.items():
            if value is None:
                continue
            write = _WRITERS.get(name)
            text = write(value) if write else ""
            if text:
                known[name] = text
            else:
                self.left_out += 1
        if "status" not in known:
            raise ValueError("without a status there is no message")
        if "prompt_tokens" in known:
            if int(known.get("cached_tokens", 0)) > int(known["prompt_tokens"]):
                del known["cached_tokens"]
                self.left_out += 1
        elif int(known["status"]) < 400:
            raise Unknown("without prompt_tokens there is no message of an answered request")
        # By hand: the values are numbers, flags and two kinds of checked text, and a JSON encoder takes twice as long
        # over them.
        return "".join([self._head, *[f',"{name}":{text}' for name, text in known.items()], "}"]).encode()


def with_lost(message: bytes, lost: int) -> bytes:
    """The message, which also says how many were dropped before it."""
    return b'%b,"lost":%d}' % (message[:-1], min(lost, _MAX_COUNT)) if lost else message


# In what follows: the value as JSON, empty where the field does not take it. By the type itself, as what isinstance
# asks may be a property of the caller's object, which may raise; and by the methods of the built-in types.
def _count(value: object) -> str:
    return _whole(value, 0, _MAX_COUNT)


def _status(value: object) -> str:
    return _whole(value, 100, 599)


def _whole(value: object, least: int, most: int) -> str:
    kind = type(value)
    if kind is bool or not issubclass(kind, int):
        return ""
    number = int.__index__(value)  # type: ignore[arg-type] # its type was looked at, in a way that mypy does not follow
    return str(number) if least <= number <= most else ""


def _flag(value: object) -> str:
    if value is True:
        return "true"
    return "false" if value is False else ""


def _trace_id(value: object) -> str:
    text = _plain(value)
    return f'"{text}"' if _TRACE_ID.match(text) else ""


def _breaker(value: object) -> str:
    text = _plain(value)
    return f'"{text}"' if text in _BREAKERS else ""


def _plain(value: object) -> str:
    return str.__str__(value) if issubclass(type(value), str) else ""


def _seconds(value: object) -> str:
    if not issubclass(type(value), float):
        return _whole(value, 0, int(_MAX_SECONDS))
    number = float.__float__(value)  # type: ignore[arg-type] # as above
    return repr(number) if 0 <= number <= _MAX_SECONDS else ""


_WRITERS: Mapping[str, Callable[[object], str]] = {
    "prompt_tokens": _count,
    "output_tokens": _count,
    "cached_tokens": _count,
    "status": _status,
    "empty": _flag,
    "trace_id": _trace_id,
    "user": _flag,
    "tenant": _flag,
    "retries": _count,
    "breaker": _breaker,
    "ttft_seconds": _seconds,
    "e2e_seconds": _seconds,
}
