"""The records of /dev/kmsg."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomcast_collectors.kernel_log.record import Record, may_matter, parse_record


def test_record_with_all_that_it_may_have() -> None:
    raw = b"6,339,5140900,-,caller=T1;NET: a;b\n SUBSYSTEM=acpi\n DEVICE=+acpi:PNP0A03:00\n"
    record = parse_record(raw)
    assert record == Record(0, 339, 5140900, b"NET: a;b\n SUBSYSTEM=acpi\n DEVICE=+acpi:PNP0A03:00\n")
    assert record.text == "NET: a;b"


@pytest.mark.parametrize(("prio", "facility"), [(0, 0), (7, 0), (12, 1), (30, 3), (4294967295, 536870911)])
def test_facility(prio: int, facility: int) -> None:
    record = parse_record(b"%d,1,2,-;x\n" % prio)
    assert record is not None
    assert record.facility == facility


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (rb"a\x0ab", "a\nb"),
        (rb"\x5cx2d", r"\x2d"),  # a printed backslash: what follows it was text
        (rb"caf\xc3\xa9", "café"),
        (rb"\xff\xfe", r"\xff\xfe"),
        (b"\xff\x00", "\\xff\0"),  # a file may hold what the kernel would have escaped
        (rb"\x0", r"\x0"),
        (b"", ""),
    ],
)
def test_text(body: bytes, text: str) -> None:
    assert Record(0, 1, 2, body).text == text


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b";", b"\n", b"6,1,2;x", b"6,1,2,-", b"-6,1,2,-;x", b"6,x,2,-;x", b"6, 1,2,-;x", b"6,1,2,-\n;x"),
        *(b"\0" * 99, b" KEY=value", "٦,1,2,-;x".encode(), b"6,%s,2,-;x" % (b"9" * 5000)),
    ],
)
def test_what_is_no_record(raw: bytes) -> None:
    assert parse_record(raw) is None


@settings(deadline=None)  # the machine may be busy
@given(st.binary(max_size=300))
def test_no_bytes_break_it(raw: bytes) -> None:
    for candidate in (raw, b"6,1,2,-;" + raw):
        record = parse_record(candidate)
        if record is not None:
            record.text.encode()  # no lone surrogates


@settings(deadline=None)  # the machine may be busy
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=100))
def test_text_is_what_was_printed(text: str) -> None:
    escaped = b"".join(b"\\x%02x" % b if b < 32 or b >= 127 or b == 92 else bytes((b,)) for b in text.encode())
    record = parse_record(b"4,1,2,-;" + escaped + b"\n K=v\n")
    assert record is not None
    assert record.text == text


def test_what_may_matter() -> None:
    assert not may_matter(b"eth0: link up")
    assert not may_matter(b"[    126]     0   126     5376     5134    77824        0             0 hog")
    assert may_matter(b"NVRM: Xid (PCI:0000:3b:00): 79")
