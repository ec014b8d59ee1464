"""The reader of exposition text on lines that are no samples, too long, too many, and on any bytes at all."""

import time
import tracemalloc
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from oomcast_collectors.exposition_text import MAX_LABELS, MAX_LINE, Line, Page, read

CAPTURE = (Path(__file__).parents[1] / "fixtures" / "engines" / "sglang-cpu-0.5.23-idle.prom").read_bytes()
CAPTURED = {line.partition(b"{")[0].partition(b" ")[0].decode() for line in CAPTURE.splitlines() if line[:1] != b"#"}


def refused(text: bytes) -> Page:
    page = read(text, ["m"])
    assert list(page) == []
    return page


def only(body: bytes) -> Line:
    (line,) = read(body, ["m"])
    return line


@pytest.mark.parametrize(
    "bad",
    [
        b"m\n",
        b"m five\n",
        b"m 1_000\n",
        b"m 0x10\n",
        b"m 1e\n",
        b"m -\n",
        "m \u0661\n".encode(),
        b"m 5 6 7\n",
        b"m 5 now\n",
        b"m 5 # no exemplar\n",
        b"m-x 5\n",
        b"m-5\n",
        b"m.5\n",
        b'm{a="1" 5\n',
        b'm{a="1"}\n',
        b'm{a="1" oops} 5\n',
        b'm{a="1" b="2"} 5\n',
        b'm{,a="1"} 5\n',
        b'm{a="1",,} 5\n',
        b"m{a=1} 5\n",
        b'm{a:b="1"} 5\n',
        b'm{1a="1"} 5\n',
        b'm{="1"} 5\n',
        b'm{"a.b"="1"} 5\n',
        'm{é="1"} 5\n'.encode(),
        b'm{a="1\\"} 5\n',
        b"m {count:1,sum:2} \n",
        b'm{k="' + b"x" * MAX_LINE + b'"} 5\n',
        b"m{" + b",".join(b'k%d="v"' % n for n in range(MAX_LABELS + 1)) + b"} 5\n",
    ],
)
def test_a_bad_line_costs_that_line(bad: bytes) -> None:
    page = read(b"m 1\n" + bad + b"m 2\n", ["m"])
    assert [line.value for line in page] == [1, 2]
    assert page.malformed == 1
    assert page.example == bad[:200].decode().strip()
    other = read(bad, ["other"])
    assert (list(other), other.malformed) == ([], 0)


def test_what_is_within_the_bounds() -> None:
    many = b"m{" + b",".join(b'k%d="v"' % n for n in range(MAX_LABELS)) + b"} 5\n"
    assert len(only(many).labels) == MAX_LABELS
    long = b'm{k="' + b"x" * (MAX_LINE - 10) + b'"} 5\n'
    assert len(long) == MAX_LINE
    assert len(only(long).labels["k"]) == MAX_LINE - 10


def test_the_example_is_the_first_and_prints() -> None:
    page = refused(b'm{k="\xff" 5\nm\n')
    assert (page.malformed, page.example) == (2, 'm{k="\\xff" 5')


def test_a_number_that_may_have_been_cut_is_not_read() -> None:
    assert refused(b"m 12").malformed == 1
    assert refused(b"# EOF").malformed == 0


def test_lines_above_the_limit_are_counted() -> None:
    page = read(b"m oops\n" + b"m 1\nn 2\n" * 10, ["m", "n"], max_lines=15)
    assert len(list(page)) == 14
    assert (page.dropped, page.malformed) == (6, 1)


PIECES = st.sampled_from(
    [
        "m",
        "m{",
        "{",
        "}",
        '"',
        "\\",
        ",",
        "=",
        " ",
        "\t",
        "\n",
        "\r",
        "# {",
        "1",
        "NaN",
        "+Inf",
        'a="b"',
        'a="',
        "é",
        "_",
    ]
)


@hypothesis.given(st.one_of(st.binary(max_size=400), st.lists(PIECES, max_size=60).map(lambda p: "".join(p).encode())))
def test_any_bytes_are_read(noise: bytes) -> None:
    page = read(b"m " + noise + b"\nm 5\n", ["m", "a", ":"])
    lines = list(page)
    assert lines[-1] == Line("m", {}, 5, "5")
    assert len(lines) + page.malformed + page.quoted <= noise.count(b"\n") + 2


@hypothesis.given(st.data())
def test_mutated_pages_are_read(data: st.DataObject) -> None:
    body = bytearray(CAPTURE)
    for _ in range(data.draw(st.integers(1, 8))):
        start = data.draw(st.integers(0, len(body)))
        body[start : start + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=10))
    page = read(bytes(body), CAPTURED)
    assert len(list(page)) + page.malformed <= body.count(b"\n") + 1


UNITS = [
    b" ",
    b"\t",
    b'"',
    b'\\"',
    b"\\",
    b"{",
    b"}",
    b",",
    b'a="b",',
    b'a="',
    b'a="}',
    b"a=",
    b"1",
    b"1e",
    b"# {",
    b" #",
    b"x",
]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("start", [b"m", b"m ", b"m{", b'm{a="', b'm{a="b" ', b'm{a="b",', b"m 1", b"m 1 ", b"m 1 # {"])
def test_the_longest_lines_take_time_in_proportion(start: bytes, unit: bytes) -> None:
    line = start + unit * ((MAX_LINE - len(start) - 1) // len(unit)) + b"\n"
    began = time.process_time()
    list(read(line, ["m"]))
    assert time.process_time() - began < 0.5


PAGES = [b"\n", b"m\n", b"m 1\n", b"m{\n", b" \n", b"{\n", b"x", b"m{" + b'a="b",' * 5000 + b"} 1\n"]


@pytest.mark.parametrize("unit", PAGES)
def test_huge_pages_take_time_in_proportion(unit: bytes) -> None:
    body = unit * ((2 << 20) // len(unit))
    began = time.process_time()
    for _ in read(body, ["m"]):
        pass
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "unit", [b'm{k="%d"} 1\n', b"m{k%d\n", b"\n%d", b"m{" + b",".join(b'k%%d%d="v"' % n for n in range(100)) + b"} 1\n"]
)
def test_a_page_takes_no_memory(unit: bytes) -> None:
    body = b"".join(unit.replace(b"%d", b"%d" % n) for n in range((1 << 20) // len(unit)))
    tracemalloc.start()
    try:
        for _ in read(body, ["m"]):
            pass
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
