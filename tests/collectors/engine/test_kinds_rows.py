"""What holds for the page of any engine: nothing told that is none, and no row without use."""

import math
import random
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest

from collectors.engine.pages import CAPTURES, WRITTEN, lines, reading, text
from oomcast_collectors.engine.kinds import KINDS, NAMES, read
from oomcast_collectors.engine.kinds.rows import Row, Table
from oomcast_collectors.engine.reading import Kind, Pool, Reading
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


def test_a_sum_with_a_part_that_is_no_number_is_left_out() -> None:
    page = text("written/vllm-0.32.0-dp2").replace(
        'queries_total{engine="1",model_name="tiny"} 200.0', "queries_total NaN"
    )
    found = reading(page)
    assert "queries" not in found.counts
    assert "hits" not in found.counts
    assert found.running == 7


def test_a_part_of_the_hits_that_is_no_number_takes_them_all() -> None:
    page = text("written/vllm-0.11.2").replace(
        'external_prefix_cache_hits_total{engine="0",model_name="llama"} 500.0', "external_prefix_cache_hits_total NaN"
    )
    found = reading(page)
    assert found.counts.keys() == {"preemptions", "corrupted"}


def test_eight_ranks_in_the_order_of_their_numbers() -> None:
    page = "".join(
        f'vllm:kv_cache_usage_perc{{engine="{rank}"}} {rank / 16}\n'
        f'vllm:num_requests_running{{engine="{rank}"}} 1\n'
        f'vllm:num_preemptions_total{{engine="{rank}"}} {rank}\n'
        for rank in (7, 3, 0, 1, 10, 2, 6, 5)
    )
    config = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="808",engine="0"} 1\n'
    found = reading(page + config)
    assert [pool.rank for pool in found.pools] == ["0", "1", "2", "3", "5", "6", "7", "10"]
    assert found.pools[7] == Pool("10", 0.625, 1616, 600, False, 16)
    assert (found.running, found.count("preemptions")) == (8, 34)


def test_a_rank_whose_usage_is_not_told_still_has_a_capacity() -> None:
    page = text("written/vllm-0.32.0-dp2").replace('engine="1",model_name="tiny"} 0.75', 'engine="1"} NaN')
    assert reading(page).pools == (Pool("0", 0.25, 1600, 1188, True, 16), Pool("1", None, 1600, None, True, 16))


@pytest.mark.parametrize("usage", ["97.5", "-0.5", "NaN", "+Inf"])
def test_a_usage_that_is_no_share_is_not_told(usage: str) -> None:
    for name in ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"):
        found = reading(f'{name} {usage}\nvllm:cache_config_info{{block_size="16",num_gpu_blocks="2"}} 1\n')
        assert found.pools == (Pool("", None, 32, None, False, 16),)


@pytest.mark.parametrize("value", ["None", "", "-16", "1e3", "16.5", "0", "٣", "9" * 400])
def test_labels_of_the_configuration_that_are_no_numbers(value: str) -> None:
    config = (
        f'block_size="{value}",kv_cache_size_tokens="{value}",num_gpu_blocks="{value}",kv_cache_memory_bytes="{value}"'
    )
    found = reading(f"vllm:cache_config_info{{{config}}} 1\nvllm:kv_cache_usage_perc 0.5\n")
    assert found.pools == (Pool("", 0.5, None, None, False, None),)
    assert found.capacity_bytes is None


def test_counters_that_come_late_are_zero_only_where_the_release_has_them() -> None:
    page = "sglang:kv_used_tokens 5\nsglang:num_running_reqs 1\n"
    assert reading(page).counts == {"preemptions": {"": 0}, "evicted": {"": 0}}
    assert reading(page + "sglang:num_retracted_requests_total 3\n").counts["preemptions"] == {"": 3}
    assert reading("sglang:num_running_reqs 1\n").counts == {}


def test_the_gauge_of_sglang_is_no_hit_ratio() -> None:
    assert not any("hit_rate" in name for name in NAMES)


def test_an_open_breaker() -> None:
    page = text("written/envoy").replace('rq_pending_open{envoy_cluster_name="vllm_a"} 0', "rq_pending_open 1")
    assert reading(page).breaker_open is True


def test_label_values_without_number_are_few() -> None:
    page = "".join(f'vllm:request_success_total{{finished_reason="r{at:03}"}} 1\n' for at in range(500))
    finished = reading("vllm:num_preemptions_total 0\n" + page).counts["finished"]
    assert (len(finished), finished["other"], sum(finished.values())) == (65, 436, 500)


def test_ranks_without_number_are_bounded() -> None:
    page = "".join(
        f'vllm:kv_cache_usage_perc{{engine="{at}"}} 0\nvllm:cache_config_info{{engine="c{at}"}} 1\n'
        for at in range(5000)
    )
    assert len(reading(page).pools) <= 2049


def test_a_long_name_of_a_model_is_cut() -> None:
    assert len(reading(f'vllm:num_preemptions_total{{model_name="{"m" * 9999}"}} 1\n').model) == 256


def test_engines_that_differ_in_buckets_share_those_that_both_have() -> None:
    page = "".join(
        f'vllm:request_prompt_tokens_bucket{{engine="{rank}",le="{le}"}} {at}\n'
        for rank, bounds in enumerate((("1", "100", "+Inf"), ("1.0", "50", "100.0", "200", "+Inf")))
        for at, le in enumerate(bounds)
    )
    found = reading(f'{page}vllm:request_prompt_tokens_sum{{engine="0"}} 5\nvllm:num_preemptions_total 0\n').lengths
    assert found is not None
    assert found.buckets == ((1.0, 0), (100.0, 3), (math.inf, 6))


@pytest.mark.parametrize(
    "buckets",
    [
        'le="1"} 1',  # cut off before the last
        'le="1"} 2\nX{le="+Inf"} 1',  # falls
        'le="x"} 1\nX{le="+Inf"} 1',
        'le="1"} NaN\nX{le="+Inf"} 1',
    ],
)
def test_a_histogram_that_is_not_whole_is_none(buckets: str) -> None:
    name = "vllm:request_prompt_tokens_bucket"
    page = f"{name}{{{buckets.replace('X', name)}\nvllm:request_prompt_tokens_sum 5\nvllm:num_preemptions_total 0\n"
    assert reading(page).lengths is None


def test_what_another_kind_adds_fills_gaps_only() -> None:
    page = lines(text("written/sglang-old") + text("written/dynamo-frontend") + text("written/vllm-lmcache"))
    found = read(("sglang", "dynamo", "lmcache"), page)
    assert (found.kind, found.running, found.waiting) == ("sglang", 5, {"": 6})
    assert (found.max_model_len, found.count("retries")) == (40960, 15)
    assert (found.counts["queries"], found.counts["hits"], found.cache_unit) == ({"": 6000}, {"": 2500}, "tokens")
