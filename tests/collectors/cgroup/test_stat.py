"""The parsers of the controller's files, with any text that anyone may think of."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.cgroup.support import keyed, v1, v2
from oomcast_collectors.cgroup.stat import UNLIMITED_V1, Malformed, Picker, bounded, limit, number, pressure, table
from oomcast_collectors.cgroup.swap import Swap, read_swap
from oomcast_collectors.cgroup.version import V1, V2, Version

KEYS = ("anon", "file", "slab", "pgmajfault", "x1", "y_2")
COUNTS = st.integers(0, (1 << 64) - 1)
TABLES = st.lists(st.tuples(st.sampled_from(KEYS), COUNTS), min_size=1, unique_by=lambda pair: pair[0]).map(dict)
ANY = st.one_of(
    st.binary(max_size=200),
    st.text("anoile 0123456789\n_-+.", max_size=60).map(str.encode),
    TABLES.map(lambda values: keyed(values).encode()),
)
DIGITS = re.compile(rb"[0-9]+")


def numbers_of(text: bytes) -> set[int]:
    return {int(digits) for digits in DIGITS.findall(text) if len(digits) <= 20}


@given(st.lists(TABLES, min_size=1, max_size=6), st.lists(st.sampled_from(KEYS), min_size=1, unique=True))
def test_a_picker_says_what_a_table_says_also_when_the_layout_changes(
    tables: list[dict[str, int]], picked: list[str]
) -> None:
    picker = Picker(*(key.encode() for key in picked))
    for values in tables:
        text = keyed(values).encode()
        assert table(text) == values
        assert list(picker.pick(text)) == [values.get(key) for key in picked]


@given(st.lists(ANY, min_size=1, max_size=6))
def test_a_picker_invents_nothing(texts: list[bytes]) -> None:
    picker = Picker(b"anon", b"file", b"slab")
    for text in texts:
        try:
            picked = picker.pick(text)
        except Malformed:
            continue
        assert {value for value in picked if value is not None} <= numbers_of(text)
        assert list(Picker(b"anon", b"file", b"slab").pick(text)) == list(picked)


def test_a_picker_refuses_what_it_has_learned_with_other_values() -> None:
    picker = Picker(b"a", b"b")
    assert picker.pick(b"a 1\nb 2\n") == [1, 2]
    for text in (b"a 1\nb -2\n", b"a 1\nb +2\n", b"a 1_0\nb 2\n", b"a 1\nb 2", b"a 1\nb 999999999999999999999\n"):
        with pytest.raises(Malformed):
            picker.pick(text)
    assert picker.pick(b"a 3\nb 4\n") == [3, 4]


def test_a_key_that_appears_in_the_place_of_another_is_seen() -> None:
    picker = Picker(b"a", b"b", b"c")
    assert picker.pick(b"a 1\nx 2\nc 3\n") == [1, None, 3]
    assert picker.pick(b"a 4\nb 5\nc 6\n") == [4, 5, 6]
    assert picker.pick(b"a 7\nx 8\nc 9\n") == [7, None, 9]


@given(ANY)
def test_a_table_invents_nothing(text: bytes) -> None:
    try:
        values = table(text)
    except Malformed:
        return
    assert set(values.values()) <= numbers_of(text)
    assert text.endswith(b"\n")


@given(ANY)
def test_a_number_is_all_of_its_file(text: bytes) -> None:
    try:
        value = number(text)
    except Malformed:
        return
    assert re.fullmatch(rb"[0-9]{1,20}\n", text)
    assert value == int(text)


@given(COUNTS)
def test_numbers_and_limits(value: int) -> None:
    text = b"%d\n" % value
    assert number(text) == value
    assert limit(text) == bounded(value) == (value if value < UNLIMITED_V1 else None)


@pytest.mark.parametrize("text", [b"max\n", b"9223372036854771712\n", b"9223372036854710272\n"])
def test_no_limit(text: bytes) -> None:
    assert limit(text) is None


@pytest.mark.parametrize(
    "text", [b"", b"\n", b"max", b"12", b" 12\n", b"12\n\n", b"-1\n", b"1_0\n", b"1.5\n", b"\xb2\n"]
)
def test_what_is_no_limit_at_all(text: bytes) -> None:
    with pytest.raises(Malformed):
        limit(text)


@given(st.one_of(ANY, st.text("somefull avg10=total.0123456789\n", max_size=80).map(str.encode)))
def test_pressure_invents_nothing(text: bytes) -> None:
    try:
        totals = pressure(text)
    except Malformed:
        return
    assert totals.keys() <= {"some", "full"}
    assert {round(seconds * 1e6) for seconds in totals.values() if seconds < 1e9} <= numbers_of(text)


def test_pressure() -> None:
    text = (
        b"some avg10=0.00 avg60=0.12 avg300=0.00 total=584062\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\n"
    )
    assert pressure(text) == {"some": 0.584062, "full": 1.0}
    assert pressure(text.splitlines(keepends=True)[0]) == {"some": 0.584062}


@pytest.mark.parametrize("text", [b"", b"\n", b"some\n", b"some total=1", b"some total=\n", b"irq total=1\n"])
def test_what_is_no_pressure(text: bytes) -> None:
    with pytest.raises(Malformed):
        pressure(text)


SWAPS = (
    "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
    "/dev/dm-1                               partition\t8388604\t\t1024\t\t-2\n"
    "/swap\\040file                            file\t\t2048\t\t2048\t\t-3\n"
)


def test_swap(tmp_path: Path) -> None:
    assert read_swap(tmp_path) == Swap(0, 0)
    (tmp_path / "swaps").write_text(SWAPS)
    assert read_swap(tmp_path) == Swap((8388604 + 2048) * 1024, (8388604 - 1024) * 1024)
    (tmp_path / "swaps").write_text(SWAPS.splitlines()[0] + "\n")
    assert read_swap(tmp_path) == Swap(0, 0)


@pytest.fixture(scope="module")
def proc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("proc")


@given(st.one_of(st.binary(max_size=100), st.integers(0, len(SWAPS)).map(lambda end: SWAPS[:end].encode())))
def test_swap_invents_nothing(proc: Path, text: bytes) -> None:
    (proc / "swaps").write_bytes(text)
    try:
        swap = read_swap(proc)
    except Malformed:
        return
    assert 0 <= swap.left <= swap.total
    assert swap.total == sum(int(line.split()[2]) * 1024 for line in text.splitlines()[1:])


FILES = [
    (V1(), list(v1(limit=1 << 30).values())),
    (V2(swap=False, local_events=False), list(v2(limit=1 << 30).values())),
]
SWAPPING = V2(swap=True, local_events=False), [*v2(limit=5).values(), "1\n", "max\n"]


@pytest.mark.parametrize(("version", "texts"), [*FILES, SWAPPING])
@given(data=st.data())
def test_a_decoder_invents_nothing(version: Version, texts: list[str], data: st.DataObject) -> None:
    given_texts = [data.draw(st.one_of(st.just(text.encode()), ANY)) for text in texts]
    try:
        reading = version.decode(given_texts)
    except Malformed:
        return
    there = numbers_of(b"\n".join(given_texts))
    told = (reading.used, reading.limit, reading.effective, reading.kills, reading.pgmajfault, reading.swap_used)
    assert {value for value in told if value is not None} <= there
    assert reading.unreclaimable is None or reading.unreclaimable >= 0
    assert reading.swap_limit is None or reading.swap_limit >= 0


@pytest.mark.parametrize(("version", "texts"), [*FILES, SWAPPING])
def test_a_file_that_is_not_there_leaves_its_values_out(version: Version, texts: list[str]) -> None:
    assert set(version.decode([b""] * len(texts))) == {None}
    for missing in range(len(texts)):
        version.decode([b"" if i == missing else text.encode() for i, text in enumerate(texts)])
