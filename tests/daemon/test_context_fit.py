"""What breaks first, and where, by limits alone."""

import pytest

from oomcast.context.fit import FITS, NEVER, NOT_KNOWN, NOT_NOW, Fit, Limit, Name, Request, exit_code, fit, in_order
from oomcast.context.room import Room, known_limits, whole_blocks

LONGEST, NOW, EMPTY = 100, 50, 80


def limits(longest: int | None = LONGEST, now: int | None = NOW, empty: int | None = EMPTY) -> tuple[Limit, ...]:
    return known_limits(longest, ("kv_pool_now", now), ("kv_pool_empty", empty))[0]


def first(found: Fit) -> tuple[Name, int | None] | None:
    return (found.broken[0].name, found.broken[0].breaks_at) if found.broken else None


def framebuffer(tokens: int | None, *, passing: bool = True) -> Limit:
    return Limit("framebuffer", tokens, input_only=True, passing=passing)


@pytest.mark.parametrize(
    ("request_", "there", "now", "empty", "breaks", "code"),
    [
        (Request(49, 1), limits(), True, True, None, FITS),
        (Request(50, 1), limits(), False, True, ("kv_pool_now", 51), NOT_NOW),
        (Request(79, 1), limits(), False, True, ("kv_pool_now", 51), NOT_NOW),
        (Request(80, 1), limits(), False, False, ("kv_pool_now", 51), NEVER),
        (Request(99, 1), limits(now=100, empty=100), True, True, None, FITS),
        (Request(100, 1), limits(now=101, empty=101), False, False, ("max_model_len", 101), NEVER),
        (Request(1, 100), limits(now=101, empty=101), False, False, ("max_model_len", 101), NEVER),
        (Request(100, 1), limits(now=90, empty=90), False, False, ("kv_pool_empty", 91), NEVER),
        (Request(49, 1), (*limits(), framebuffer(49)), True, True, None, FITS),
        (Request(30, 20), (*limits(), framebuffer(29)), False, None, ("framebuffer", 30), NOT_NOW),
        (Request(30, 20), (*limits(), framebuffer(29, passing=False)), False, False, ("framebuffer", 30), NEVER),
        (Request(29, 21), (*limits(), framebuffer(29)), True, True, None, FITS),
        (Request(60, 1), (*limits(), framebuffer(55)), False, None, ("kv_pool_now", 51), NOT_NOW),
        (Request(49, 1), (*limits(), framebuffer(None)), True, True, None, FITS),
        (Request(1, 1), (*limits(), framebuffer(0)), False, None, ("framebuffer", 1), NOT_NOW),
    ],
)
def test_each_limit(
    request_: Request,
    there: tuple[Limit, ...],
    now: bool,
    empty: bool | None,
    breaks: tuple[Name, int] | None,
    code: int,
) -> None:
    found = fit(request_, there, ())
    assert (found.now, found.empty, first(found), exit_code([found])) == (now, empty, breaks, code)


@pytest.mark.parametrize(
    ("tokens", "there", "unknown", "now", "empty", "code"),
    [
        (10, limits(now=None), ("kv_pool_now",), None, True, NOT_NOW),
        (81, limits(now=None), ("kv_pool_now",), False, False, NEVER),
        (50, limits(empty=None), ("kv_pool_empty",), True, True, FITS),
        (51, limits(empty=None), ("kv_pool_empty",), False, None, NOT_NOW),
        (10, limits(now=None, empty=None), ("kv_pool_now", "kv_pool_empty"), None, None, NOT_KNOWN),
        (101, limits(now=None, empty=None), ("kv_pool_now", "kv_pool_empty"), False, False, NEVER),
        (10, (), ("kv_pool_empty",), None, None, NOT_KNOWN),
        (50, limits(longest=None), ("max_model_len", "framebuffer"), True, True, FITS),
        (80, (Limit("kv_pool_empty", 80),), (), True, True, FITS),
        (81, (Limit("kv_pool_empty", 80),), (), False, False, NEVER),
        (1 << 40, (Limit("kv_pool_empty", None),), (), True, True, FITS),
    ],
)
def test_what_is_not_known(
    tokens: int, there: tuple[Limit, ...], unknown: tuple[Name, ...], now: bool | None, empty: bool | None, code: int
) -> None:
    found = fit(Request(tokens - 1, 1), there, unknown)
    assert (found.now, found.empty, exit_code([found])) == (now, empty, code)


def test_all_that_break_are_told_the_first_one_first() -> None:
    there = (*limits(), framebuffer(70), Limit("kv_pool_now", None, passing=True))
    found = fit(Request(200, 1), there, ())
    assert [(limit.name, limit.breaks_at) for limit in found.broken] == [
        ("kv_pool_now", 51),
        ("framebuffer", 71),
        ("kv_pool_empty", 81),
        ("max_model_len", 101),
    ]
    assert in_order(there)[-1] == Limit("kv_pool_now", None, passing=True)


@pytest.mark.parametrize(
    ("least", "most", "code"),
    [(1, 50, FITS), (50, 51, NOT_NOW), (60, 70, NOT_NOW), (50, 81, NOT_NOW), (70, 81, NOT_NOW), (81, 90, NEVER)],
)
def test_of_two_numbers_of_tokens_both_must_agree(least: int, most: int, code: int) -> None:
    assert exit_code([fit(Request(tokens - 1, 1), limits(), ()) for tokens in (least, most)]) == code


@pytest.mark.parametrize(
    ("headroom", "per_token", "chunk", "tokens"),
    [
        (1000, 10, 0, 100),
        (999, 10, 0, 99),
        (0, 10, 0, 0),
        (1000, 10, 100, None),
        (999, 10, 100, 99),
        (1000, 10, 101, 100),
    ],
)
def test_headroom_of_prefill(headroom: int, per_token: int, chunk: int, tokens: int | None) -> None:
    room = Room("engine", "", "", limits()).with_headroom(headroom, per_token, chunk, passing=True)
    assert room.limits == (*limits(), framebuffer(tokens))
    assert room.unknown == ()


def test_bytes_are_of_whole_blocks() -> None:
    assert [whole_blocks(1024.0, 16)(tokens) for tokens in (1, 16, 17)] == [16_384, 16_384, 32_768]
    assert whole_blocks(10.5, None)(3) == 32
    assert whole_blocks(None, 16)(3) is None
