"""What the child and the daemon say to each other, and what is no such thing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomcast.contract import Event
from oomcast_collectors.ebpf.wire import (
    Absent,
    Checked,
    Failed,
    Log,
    Message,
    Order,
    Report,
    Row,
    Stack,
    Wanted,
    decode,
    decode_order,
    encode,
)

MESSAGES: list[Message] = [
    Report([]),
    Report([Row("oomcast_ebpf_targets", ("a b",), 1), Row("oomcast_alloc_bytes_total", ('é\n"\\', ""), 1.5)]),
    Event("crash", 1.7e9, 12.5, "it crashed", {"pid": 7, "share": 0.5, "stack": "a\nb"}),
    Log(30, "\udcff is no UTF-8"),
    Checked("crashes", False, "no"),
    Absent("nothing here"),
    Failed("not now"),
    Stack(4096, 2, ("a+0x1 (b)", "[unknown]")),
]


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_arrives_as_it_was_said(message: Message) -> None:
    line = encode(message)
    assert (line.count(b"\n"), line[-1:]) == (1, b"\n")
    assert decode(line) == message


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"nonsense",
        b"[]",
        b"{}",
        b"null",
        b"7",
        b'"report"',
        b'["report"]',
        b'["report", 7]',
        b'["report", [7]]',
        b'["report", [["name", "text"]]]',
        b'["event", "crash", 1, 2, "text"]',
        b'["event", "crash", 1, 2, "text", [1]]',
        b'["event", "crash", {}, 2, "text", {}]',
        b'["event", "crash", 1.5, 2.5, "text", {"stack": ["a"]}]',
        b'["event", "crash", 1.5, 2.5, "text", {"stack": null}]',
        b'["log", "loud", "text"]',
        b'["bye"]',
        b'["report", [], 1]',
        b"[" * 100_000,
        b"\xff\xfe",
        b'["log", 30, "cut o',
    ],
)
def test_what_is_no_message(line: bytes) -> None:
    with pytest.raises(ValueError, match=r".{0,400}"):
        decode(line)


@given(st.binary())
def test_any_bytes(line: bytes) -> None:
    said: object = None
    try:
        said = decode(line)
    except ValueError as error:
        said = str(error)
    assert len(str(said)) < 600


def test_an_order_arrives_as_it_was_given() -> None:
    order = Order({"probes": ["crashes"]}, ("vllm*",), True, "/host/proc", "/pods")
    assert decode_order(order.encode()) == order
    order = Order(stacks=Wanted(7, "libc", 1.5, 3))
    assert decode_order(order.encode()) == order


@pytest.mark.parametrize("line", [b"", b"[]", b"7", b"[1, 2, 3, 4, 5, 6]", b"no"])
def test_what_is_no_order(line: bytes) -> None:
    with pytest.raises((TypeError, ValueError)):
        decode_order(line)
