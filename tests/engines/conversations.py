"""Two hundred requests with the shape of real traffic, small enough for an engine on the CPU."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from engines.load import tokens
from simulator import Request, mooncake

COUNT = 200
MAX_MODEL_LEN = 2048
SPAN = 64
"""Tokens that stand for the 512 of an id."""

_SHRUNK = 512 // SPAN
# Answers grow while they are written, which is what preempts others: shrunk like prompts they would hardly do so.
_SHRUNK_ANSWERS = 2
_TURNS = 4
_TRACE = Path(__file__).parents[1] / "fixtures/traces/mooncake-conversation-first-half.jsonl.gz"


def conversations() -> list[Request]:
    """The first conversations of Mooncake's trace that have four turns or more, by arrival."""
    by_begin = defaultdict(list)
    for request in map(_small, mooncake(_TRACE)):
        # All begin with the same id; the one after it tells conversations apart.
        if len(request.block_ids) > 1 and request.prompt_tokens + request.answer_tokens <= MAX_MODEL_LEN:
            by_begin[request.block_ids[:2]].append(request)
    chosen: list[Request] = []
    for turns in by_begin.values():
        if len(turns) >= _TURNS and len(chosen) < COUNT:
            chosen += turns
    return sorted(chosen[:COUNT], key=lambda request: request.arrival)


def prompt(request: Request) -> list[int]:
    """Its tokens: those of an id are the same in all prompts."""
    return list(_spans(request))[: request.prompt_tokens]


def _small(request: Request) -> Request:
    length = -(-request.prompt_tokens // _SHRUNK)
    answer = -(-request.answer_tokens // _SHRUNK_ANSWERS)
    return Request(request.arrival, length, answer, request.block_ids, SPAN)


def _spans(request: Request) -> Iterator[int]:
    for block_id in request.block_ids:
        yield from tokens(SPAN, block_id)
