"""What holds for the page of any engine: nothing told that is none, and no row without use."""

import math
import random
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest

from collectors.engine.kind_pages import CAPTURES, WRITTEN, lines, reading, text
from oomcast_collectors.engine.kinds import KINDS, NAMES
from oomcast_collectors.engine.kinds.rows import Row, Table
from oomcast_collectors.engine.reading import Kind, Reading
from oomcast_collectors.exposition_text import Line

PAGES = CAPTURES + WRITTEN


def numbers(reading: Reading) -> Iterator[float]:
    """Every number of it."""
    for pool in reading.pools:
        yield from (value for value in (pool.usage, pool.capacity, pool.available, pool.block) if value is not None)
        assert pool.usage is None or pool.usage <= 1
    for value in (getattr(reading, field.name) for field in fields(reading)):
        if isinstance(value, int | float):
            yield value
    yield from reading.waiting.values()
    for values in reading.counts.values():
        yield from values.values()
    if reading.lengths is not None:
        yield from (reading.lengths.sum, reading.lengths.count)
        yield from (count for _, count in reading.lengths.buckets)


@pytest.mark.parametrize("name", PAGES)
def test_order_of_lines_does_not_matter(name: str) -> None:
    page = text(name).splitlines(keepends=True)
    random.Random(1).shuffle(page)
    assert reading("".join(page)) == reading(text(name))


@pytest.mark.parametrize("name", PAGES)
def test_labels_and_metrics_of_later_releases_do_not_matter(name: str) -> None:
    page = lines(text(name))
    kind = reading(text(name)).kind
    later = [line._replace(labels={**line.labels, "shard": "s", "unheard_of": 'a"b'}) for line in page]
    later.insert(0, Line("vllm:unheard_of_total", {}, 7.0, "7"))
    assert KINDS[kind].read(later) == KINDS[kind].read(page)


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("value", [math.nan, -1.0, math.inf, 1e300])
def test_what_is_no_amount_is_not_told(name: str, value: float) -> None:
    page = lines(text(name))
    whole = reading(text(name))
    table = KINDS[whole.kind]
    for at, line in enumerate(page):
        if line.name.endswith("_bucket") and at % 17:
            continue
        found = table.read([*page[:at], line._replace(value=value), *page[at + 1 :]])
        assert all(0 <= number < math.inf for number in numbers(found)), line
        # Nothing else is changed by it: what is still told is what was told before, never a part of a sum.
        assert all(found.counts[count].items() <= whole.counts[count].items() for count in found.counts), line
        assert found.waiting.items() <= whole.waiting.items(), line


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_page_tells_nothing(kind: Kind) -> None:
    assert KINDS[kind].read([]) == Reading(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_only_names_that_are_asked_for_are_read(kind: Kind) -> None:
    assert KINDS[kind].names <= NAMES
    assert all(isinstance(name, str) and name for name in KINDS[kind].names)


def without_parts(table: Table) -> Iterator[tuple[str, Table]]:
    """The table with a row less, with a name less or in another place, and with a row or a table that says less."""
    for at, row in enumerate(table.rows):
        yield f"row of {row}", replace(table, rows=(*table.rows[:at], *table.rows[at + 1 :]))
        for what, changed in less(row):
            yield f"{what} of {row}", replace(table, rows=(*table.rows[:at], changed, *table.rows[at + 1 :]))
    for part in ("lengths", "answers", "finish", "only", "rank", "model"):
        value = getattr(table, part)
        if value:
            nothing: dict[str, Any] = {part: "" if isinstance(value, str) else None}
            yield part, replace(table, **nothing)
    if table.blocks:
        yield "blocks", replace(table, blocks=False)


def less(row: Row) -> Iterator[tuple[str, Row]]:
    if len(row.names) > 1:
        yield "order", row._replace(names=row.names[::-1])
        for name in row.names:
            yield name, row._replace(names=tuple(other for other in row.names if other != name))
    for field, default in Row._field_defaults.items():
        if getattr(row, field) != default:
            yield field, row._replace(**{field: default})


# Kinds of which no release has two names for the same.
_RENAMED = ("trtllm", "dynamo")


@pytest.mark.parametrize("kind", KINDS)
def test_every_part_of_every_table_changes_what_some_page_says(kind: Kind) -> None:
    pages = [lines(text(name)) for name in PAGES]
    table = KINDS[kind]
    told = [table.read(page) for page in pages]
    unused = [what for what, other in without_parts(table) if [other.read(page) for page in pages] == told]
    assert [what for what in unused if not (what.startswith("order") and kind in _RENAMED)] == []
