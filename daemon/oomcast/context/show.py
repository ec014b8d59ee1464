"""What `oomcast context` prints, for people and for programs."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from oomcast.context.fit import Fit, Limit, Name, Request, in_order
from oomcast.context.room import Room
from oomcast.context.tokens import USUAL_BYTES, Tokens
from oomcast.kv.table import size

_NAMES: Mapping[Name, str] = {
    "max_model_len": "longest request that is accepted",
    "kv_pool_now": "KV pool, what is free of it now",
    "kv_pool_empty": "KV pool, empty",
    "framebuffer": "framebuffer, for prefill's own memory",
}


class Answer(NamedTuple):
    """cases: for the fewest and the most tokens that the input may have, or one where that is one number."""

    tokens: Tokens
    room: Room
    cases: tuple[tuple[Request, Fit], ...]


def as_json(answer: Answer) -> str:
    """An object whose keys are always the same; null is what is not known, of `tokens` and `breaks_at` of a limit what
    there is none of. Sizes are bytes on each GPU, positions count from 1."""
    tokens, room, _ = answer
    found: dict[str, Any] = {
        "input": {"method": tokens.method, "least": tokens.least, "most": tokens.most, "bytes": tokens.size},
        "output_tokens": answer.cases[0][0].output,
        "source": room.source,
        "target": room.target,
        "about": room.about,
        "bytes_per_token": room.bytes_per_token,
        "block_tokens": room.block,
        "cases": [_case(request, fit, room) for request, fit in answer.cases],
        "limits": [
            {
                "limit": limit.name,
                "tokens": limit.tokens,
                "breaks_at": limit.breaks_at,
                "counts": "input" if limit.input_only else "input and answer",
                "holds": "now" if limit.passing else "always",
            }
            for limit in in_order(room.limits)
        ],
        "unknown": list(room.unknown),
        "notes": list(room.notes),
    }
    return json.dumps(found, indent=2) + "\n"


def as_text(answer: Answer) -> str:
    """Lines and a table."""
    tokens, room, cases = answer
    lines = [
        f"{'input':<13} {_input(tokens)}, and {cases[0][0].output:,} of answer",
        f"{room.source:<13} {room.target}{f': {room.about}' if room.about else ''}",
        f"{'KV memory':<13} {_each([_memory(room, request) for request, _ in cases], cases)}",
        *(f"{name:<13} {_each([_word(known) for known in column], cases)}" for name, column in _fits(answer)),
        f"{'breaks first':<13} {_each([_first(request, fit) for request, fit in cases], cases)}",
        "",
        f"{'BREAKS AT TOKEN':>15} LIMIT",
        *(_line(limit) for limit in in_order(room.limits)),
        *(f"{'not known':>15} {_NAMES[name]}" for name in room.unknown),
    ]
    notes = [*_counting(tokens), *room.notes]
    if notes:
        lines += ["", *(f"note: {note}" for note in notes)]
    return "\n".join(lines) + "\n"


def _fits(answer: Answer) -> list[tuple[str, list[bool | None]]]:
    """A plan has no other requests, so one line is enough."""
    now, empty = [fit.now for _, fit in answer.cases], [fit.empty for _, fit in answer.cases]
    return [("fits", now)] if answer.room.source == "config" else [("fits now", now), ("fits empty", empty)]


def _case(request: Request, fit: Fit, room: Room) -> dict[str, Any]:
    return {
        "input_tokens": request.input,
        "tokens": request.tokens,
        "kv_bytes": room.kv_bytes(request.tokens),
        "fits_now": fit.now,
        "fits_empty": fit.empty,
        "breaks_first": fit.broken[0].name if fit.broken else None,
        "breaks": [{"limit": limit.name, "at": limit.breaks_at, "in": _part(request, limit)} for limit in fit.broken],
    }


def _part(request: Request, limit: Limit) -> str:
    """Of which part of the request the first token is that is too much."""
    return "input" if limit.tokens is None or limit.tokens < request.input else "answer"


def _input(tokens: Tokens) -> str:
    if tokens.least == tokens.most:
        return f"{tokens.least:,} tokens"
    return f"{tokens.least:,} to {tokens.most:,} tokens ({tokens.size:,} bytes)"


def _counting(tokens: Tokens) -> list[str]:
    if tokens.method == "size":
        return [
            f"tokens: not counted; {USUAL_BYTES} bytes each are usual in English, 1 is the worst there is"
            " (--tokenizer counts them); a chat template adds some"
        ]
    return ["tokens: a chat template adds some"] if tokens.method == "tokenizer" else []


def _memory(room: Room, request: Request) -> str:
    needed = room.kv_bytes(request.tokens)
    return "not known" if needed is None else f"{size(needed)} on each GPU"


def _first(request: Request, fit: Fit) -> str:
    if not fit.broken:
        return "nothing that is known"
    limit = fit.broken[0]
    return f"{_NAMES[limit.name]}: at token {limit.breaks_at:,}, in the {_part(request, limit)}"


def _line(limit: Limit) -> str:
    if limit.tokens is None:
        return f"{'never':>15} {_NAMES[limit.name]}"
    return (
        f"{limit.breaks_at:>15,} {_NAMES[limit.name]}: {limit.tokens:,} tokens{' of input' if limit.input_only else ''}"
    )


def _each(words: Sequence[str], cases: Sequence[tuple[Request, Fit]]) -> str:
    """One word for all cases where they agree, else each with its number of tokens."""
    if len(set(words)) == 1:
        return words[0]
    return "; ".join(f"{word} (if {request.input:,})" for word, (request, _) in zip(words, cases, strict=True))


def _word(known: bool | None) -> str:
    return "not known" if known is None else "yes" if known else "no"
