"""The reader of exposition text beside prometheus_client's parser, on what is valid."""

import math
from collections.abc import Collection
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from oomcast_collectors.exposition_text import Line, read

CAPTURES = sorted((Path(__file__).parents[1] / "fixtures" / "engines").glob("*.prom"))

Samples = list[tuple[str, dict[str, str], str]]


def plain(lines: Collection[Line]) -> Samples:
    """Values as text, in which NaN is equal to itself."""
    return [(line.name, dict(line.labels), repr(line.value)) for line in lines]


def expected(body: bytes) -> Samples:
    """What prometheus_client reads. Without the comments, as it renames the samples of what is called a counter."""
    text = "\n".join(line for line in body.decode().split("\n") if not line.startswith("#"))
    return [
        (sample.name, sample.labels, repr(float(sample.value)))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]


def one(text: str | bytes, name: str = "m") -> Line:
    page = read(text if isinstance(text, bytes) else text.encode(), [name])
    (line,) = page
    assert (page.malformed, page.dropped, page.quoted) == (0, 0, 0)
    return line


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_real_pages(path: Path) -> None:
    body = path.read_bytes()
    samples = expected(body)
    page = read(body, {name for name, _, _ in samples})
    assert plain(list(page)) == samples
    assert (page.malformed, page.example, page.dropped, page.quoted) == (0, "", 0, 0)
    some = {name for name, _, _ in samples[::7]}
    assert plain(list(read(body, some))) == [sample for sample in samples if sample[0] in some]
    assert len(samples) >= 15


LABEL_NAMES = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,8}", fullmatch=True).filter(lambda name: name != "__name__")
NAMES = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,12}", fullmatch=True)
# The client goes through its text in universal newlines, so a carriage return ends a line there.
VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=12)
NUMBERS = st.one_of(st.floats().map(repr), st.integers().map(str), st.sampled_from(["+Inf", "-Inf", "NaN", "1e+06"]))
TIMESTAMPS = st.one_of(st.just(""), st.integers(0, 1 << 42).map(lambda time: f" {time}"))
COMMAS = st.sampled_from([",", ", ", " ,\t"])
ENDS = st.sampled_from(["}", ",}"])
SPACES = st.sampled_from(["", " ", "\t"])
BLANKS = st.text(" \t", min_size=1, max_size=3)


def escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@st.composite
def sample_lines(draw: st.DrawFn) -> str:
    labels = draw(st.dictionaries(LABEL_NAMES, VALUES, max_size=4))
    comma, space, end = draw(COMMAS), draw(SPACES), draw(ENDS)
    block = "{" + comma.join(f'{name}="{escape(value)}"' for name, value in labels.items())
    block += end if labels else "}"
    text = draw(NAMES) + (space + block if labels or end == "}" else "")
    text += draw(BLANKS) + draw(NUMBERS) + draw(TIMESTAMPS)
    return draw(SPACES) + text + draw(SPACES)


COMMENTS = st.sampled_from(["", "# HELP m Text with {braces} and \\n.", "# any", "#", "  ", "# EOF"])


@hypothesis.given(st.lists(st.one_of(sample_lines(), COMMENTS), max_size=8), st.sampled_from(["\n", "\r\n"]))
def test_valid_text_reads_as_the_client_reads_it(lines: list[str], newline: str) -> None:
    body = "".join(line + newline for line in lines).encode()
    samples = expected(body)
    page = read(body, {name for name, _, _ in samples})
    assert plain(list(page)) == samples
    assert page.malformed == 0


def test_openmetrics_reads_as_the_client_reads_it() -> None:
    text = (
        "# HELP http_seconds Time.\n# TYPE http_seconds histogram\n# UNIT http_seconds seconds\n"
        'http_seconds_bucket{path="/a",le="0.1"} 8 # {trace_id="a}b"} 0.067\n'
        'http_seconds_bucket{path="/a",le="+Inf"} 9 # {trace_id="k # {"} 9.8 1520879607.7\n'
        'http_seconds_count{path="/a"} 9\nhttp_seconds_sum{path="/a"} 3.5\n'
        'http_seconds_created{path="/a"} 1520430000.123\n'
        "# TYPE up counter\nup_total 5 # {} 1\nup_created 1.5e9\n# TYPE t gauge\nt 2 1520879607.789\n# EOF\n"
    )
    families = openmetrics(text)  # type: ignore[no-untyped-call]
    samples = [sample for family in families for sample in family.samples]
    lines = list(read(text.encode(), {sample.name for sample in samples}))
    assert [(line.name, line.labels, line.value) for line in lines] == [sample[:3] for sample in samples]
    assert len(lines) == 8


@pytest.mark.parametrize(
    ("number", "value"),
    [
        ("NaN", math.nan),
        ("+Inf", math.inf),
        ("-Inf", -math.inf),
        ("inf", math.inf),
        (".5", 0.5),
        ("1.", 1),
        ("-0", -0.0),
    ],
)
def test_numbers(number: str, value: float) -> None:
    line = one(f"m {number}\n")
    assert repr(line.value) == repr(float(value))
    assert line.number == number


@pytest.mark.parametrize(
    "text",
    ["m 1\r\n", "m\t1\n", " m 1\n", "\t \tm\t 1 \t\n", "m{} 1\n", "m {\t} 1\n", "m{}1\n", "m 1 1700000000000\n"],
)
def test_blanks_and_line_ends(text: str) -> None:
    assert one(text) == Line("m", {}, 1.0, "1")


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (rb"a\\b\"c\nd", 'a\\b"c\nd'),
        (rb"\\n", "\\n"),
        (rb"\t\x", "\\t\\x"),
        (b"} 5 # {", "} 5 # {"),
        ("é\U0001f600".encode(), "é\U0001f600"),
        (b"a\xffb\xc3", "a\\xffb\\xc3"),
        (b"\xed\xa0\x80", "\\xed\\xa0\\x80"),
        (b"a\rb\x00", "a\rb\x00"),
        (b"", ""),
    ],
)
def test_label_values(written: bytes, value: str) -> None:
    assert one(b'm{k="' + written + b'"} 1\n').labels == {"k": value}


def test_of_a_label_that_is_there_twice_the_first_counts() -> None:
    assert one('m{a="1",b="2",a="3"} 1\n').labels == {"a": "1", "b": "2"}


def test_names_are_whole_and_those_of_histograms_are_names() -> None:
    body = b'm_bucket{le="1"} 1\nm_count 2\nm_sum 3\nm 4\nmm 5\nm:m 6\nM 7\n'
    assert [(line.name, line.value) for line in read(body, ["m_sum", "m", "m:m"])] == [
        ("m_sum", 3),
        ("m", 4),
        ("m:m", 6),
    ]
    assert list(read(body, [])) == []


def test_names_in_quotes_are_counted() -> None:
    page = read(b'{"m"} 1\n {"m.n",k="v"} 2\nm 3\n{"x"} 4', ["m", "m.n"])
    assert [line.value for line in page] == [3]
    assert (page.quoted, page.malformed) == (3, 0)
