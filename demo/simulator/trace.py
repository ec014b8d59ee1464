"""Requests, and the published traces that they are read from."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

MOONCAKE_SPAN = 512
_AZURE_COLUMNS = "TIMESTAMP,ContextTokens,GeneratedTokens"

# zlib.error and EOFError: a file that is damaged, or breaks off. RecursionError: JSON that is nothing but brackets.
_UNREADABLE = (ValueError, TypeError, KeyError, EOFError, RecursionError, gzip.BadGzipFile, zlib.error)

_Fields = tuple[float, int, int, tuple[int, ...]]
"""Seconds, tokens of the prompt and of the answer, ids."""


class TraceError(ValueError):
    """A trace that cannot be read; the text names the file and the line."""


@dataclass(frozen=True, slots=True)
class Request:
    """arrival: seconds since the trace began. block_ids: what each span of the prompt holds, block_tokens long save the
    last one; prompts that begin with the same ids begin with the same tokens. What no id covers is like nothing else.

    Raises ValueError unless there is something to read and something to answer.
    """

    arrival: float
    prompt_tokens: int
    answer_tokens: int
    block_ids: tuple[int, ...] = ()
    block_tokens: int = MOONCAKE_SPAN

    def __post_init__(self) -> None:
        if not 0 <= self.arrival < float("inf"):
            raise ValueError("arrives before the trace began, or never")
        if self.prompt_tokens < 1 or self.answer_tokens < 1 or self.block_tokens < 1:
            raise ValueError("prompt, answer and span have at least one token")


def mooncake(path: Path | str) -> list[Request]:
    """The requests of a trace in Mooncake's format, .jsonl.gz. Raises TraceError, OSError."""
    return list(_read(path, _mooncake, 0))


def azure(path: Path | str) -> list[Request]:
    """The requests of a trace in the format of Azure's of 2023, .csv.gz. Raises TraceError, OSError."""
    return list(_read(path, _azure, 1))


def _read(path: Path | str, parse: Callable[[str], _Fields], header: int) -> Iterator[Request]:
    """header: lines before the first request, which are checked to be Azure's."""
    number = 0
    began: float | None = None
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if number <= header:
                    _check(line)
                    continue
                at, prompt, answer, ids = parse(line)
                began = at if began is None else began
                yield Request(at - began, prompt, answer, ids)
    except _UNREADABLE as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise TraceError(f"{path}:{number}: {reason}") from error


def _check(line: str) -> None:
    if line.rstrip() != _AZURE_COLUMNS:
        raise ValueError(f"the columns are not {_AZURE_COLUMNS}")


def _mooncake(line: str) -> _Fields:
    fields = json.loads(line)
    ids = tuple(map(_whole, fields["hash_ids"]))
    prompt = _whole(fields["input_length"])
    if len(ids) != -(-prompt // MOONCAKE_SPAN):
        raise ValueError(f"{len(ids)} hash_ids for {prompt} tokens")
    return _whole(fields["timestamp"]) / 1000, prompt, _whole(fields["output_length"]), ids


def _azure(line: str) -> _Fields:
    moment, prompt, answer = line.split(",")
    at = datetime.fromisoformat(moment).replace(tzinfo=UTC)
    return at.timestamp(), int(prompt), int(answer), ()


def _whole(value: object) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r} is no whole number")
    return value
