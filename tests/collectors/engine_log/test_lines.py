"""Cutting bytes into lines, and taking off what container runtimes put around them."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomcast_collectors.engine_log.lines import MAX_LINE, Joiner, Lines, Tally, unwrap

STAMP = "2026-11-29T16:44:10.123456789Z"
SECONDS = 1795970650.123456


def cri(text: str, stream: str = "stderr", tag: str = "F") -> bytes:
    return f"{STAMP} {stream} {tag} {text}\n".encode()


@settings(deadline=None)
@given(st.lists(st.binary(max_size=30)), st.integers(1, 7))
def test_however_it_is_cut_the_same_lines_come_out(pieces: list[bytes], longest: int) -> None:
    whole = b"".join(pieces)
    tally = Tally()
    lines = Lines(tally, longest)
    got = b"".join(map(lines.feed, pieces)) + lines.finish()
    expected = whole.split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert got == b"".join(line[:longest] + b"\n" for line in expected)
    assert tally.lines == len(expected)
    assert tally.skipped == sum(max(0, len(line) - longest) for line in expected)
    assert tally.cut == sum(len(line) > longest for line in expected)


def test_what_follows_a_loss_is_the_end_of_a_line() -> None:
    tally = Tally()
    lines = Lines(tally)
    assert lines.feed(b"begun") == b""
    lines.lost()
    assert lines.feed(b"some end") == b""
    assert lines.feed(b" of it\nwhole\n") == b"\nwhole\n"
    assert tally.skipped == len("some end of it")


def test_an_endless_line_takes_bounded_memory() -> None:
    tally = Tally()
    lines = Lines(tally)
    for _ in range(1000):
        assert lines.feed(b"x" * 10_000) == b""
        assert len(lines._rest) <= MAX_LINE
    assert lines.feed(b"\nnext\n") == b"x" * MAX_LINE + b"\nnext\n"
    assert (tally.skipped, tally.cut, tally.lines) == (10_000_000 - MAX_LINE, 1, 2)


@pytest.mark.parametrize(
    ("raw", "text", "time"),
    [
        (cri("CUDA out of memory")[:-1], "CUDA out of memory", SECONDS),
        (b"2026-11-29T17:44:10.123456+01:00 stdout F x", "x", SECONDS),
        (b"2026-11-29T16:44:10.123456Z stdout F:tag:x two words", "two words", SECONDS),
        (b"2026-11-29T16:44:10.123456Z stdout X no", "2026-11-29T16:44:10.123456Z stdout X no", None),
        (b"2026-99-29T16:44:10.123456Z stdout F x", "x", None),
        (
            json.dumps({"log": 'a "b"\n', "stream": "stderr", "time": STAMP}, separators=(",", ":")).encode(),
            'a "b"',
            SECONDS,
        ),
        (b'{"log":"\\u003ctag\\u003e\\n","time":"2026-11-29T16:44:10.123456"}', "<tag>", None),
        (b'{"log":"cut \\"here and th\\u00', 'cut "here and th', None),
        (b'{"log":"cut\\', "cut", None),
        (b'{"log":"a"b', '{"log":"a"b', None),
        (b'{"log":"a","x":' + b"[" * 5000, '{"log":"a","x":' + "[" * 5000, None),
        (b"plain", "plain", None),
        (b"\xff\xfe \0 x", "�� \0 x", None),
        (b"", "", None),
    ],
)
def test_unwrap(raw: bytes, text: str, time: float | None) -> None:
    line = unwrap(raw)
    assert line.text == text
    assert line.time == (None if time is None else pytest.approx(time, abs=1e-6))


@settings(deadline=None)
@given(st.one_of(st.binary(), st.binary().map(lambda b: b'{"log":"' + b), st.binary().map(lambda b: cri("")[:-1] + b)))
def test_anything_can_be_unwrapped(raw: bytes) -> None:
    unwrap(raw).text.encode("utf-8")


def test_parts_are_joined_for_each_stream_and_across_blocks() -> None:
    joiner = Joiner(Tally())
    assert joiner.join(b"plain\n" + cri("whole")) == b"plain\n" + cri("whole")
    assert joiner.join(cri("CUDA out", tag="P") + cri("other", "stdout")) == cri("other", "stdout")
    assert joiner.join(cri("x", "stdout", "P")) == b""
    assert joiner.join(cri(" of mem", tag="P:a") + cri("ory") + cri("y", "stdout")) == cri("CUDA out of memory") + cri(
        "xy", "stdout"
    )
    assert joiner.join(cri("next")) == cri("next")


def test_parts_without_an_end_take_bounded_memory() -> None:
    tally = Tally()
    joiner = Joiner(tally)
    for _ in range(100):
        assert joiner.join(cri("x" * 16_384, tag="P")) == b""
    joined = joiner.join(cri("end"))
    assert joined.count(b"x") == MAX_LINE
    assert tally.skipped == 100 * 16_384 - MAX_LINE
