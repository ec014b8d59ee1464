"""What is added up, what is not, and what is left out: cases of pages that are partly wrong, or of many ranks."""

import math

import pytest

from collectors.engine.kind_pages import lines, reading, text
from oomcast_collectors.engine.kinds import NAMES, read
from oomcast_collectors.engine.reading import Pool


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


def test_processes_of_one_server_are_not_added_up() -> None:
    page = "".join(
        f'vllm:num_requests_running{{engine="{engine}",pid="{pid}"}} {value}\n'
        for engine, pid, value in ((0, 71, 5), (0, 72, 0), (1, 71, 0), (1, 72, 3))
    )
    assert reading(f"{page}vllm:num_preemptions_total 0\n").running == 8


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


def test_a_configuration_is_of_its_rank_or_of_all() -> None:
    usage = "".join(f'vllm:kv_cache_usage_perc{{engine="{rank}"}} 0\n' for rank in (0, 1, 2))
    sizes = [f'vllm:cache_config_info{{engine="{rank}",kv_cache_size_tokens="{rank + 5}"}} 1\n' for rank in (0, 1)]
    common = 'vllm:cache_config_info{kv_cache_size_tokens="9"} 1\n'
    assert [pool.capacity for pool in reading(usage + "".join(sizes)).pools] == [5, 6, None]
    assert [pool.capacity for pool in reading(usage + sizes[1] + common).pools] == [9, 6, 9]
    assert [pool.capacity for pool in reading(usage + sizes[1]).pools] == [6, 6, 6]


def test_bytes_per_token_only_where_every_rank_tells_its_bytes() -> None:
    page = text("written/sglang-dp2-tp2").splitlines(keepends=True)
    found = reading("".join(line for line in page if not ("memory_usage" in line and 'dp_rank="1"' in line)))
    assert found.bytes_per_token is None


def test_shares_and_sizes_are_never_added_up() -> None:
    page = "".join(
        f'sglang:{name}{{dp_rank="{rank}",zone="{zone}"}} {value}\n'
        for name, value in (("full_token_usage", 0.75), ("page_size", 64), ("context_len", 4096))
        for rank in (0, 1)
        for zone in "ab"
    )
    found = reading(page)
    assert found.pools == (Pool("0", 0.75, block=64), Pool("1", 0.75, block=64))
    assert found.max_model_len == 4096


def test_what_is_left_is_rounded_down_but_not_by_an_error_of_rounding() -> None:
    page = "sglang:max_total_num_tokens 1000\nsglang:token_usage "
    assert [pool.available for usage in (0.9, 0.8999) for pool in reading(f"{page}{usage}\n").pools] == [100, 100]


def test_more_used_than_there_is() -> None:
    found = reading("tgi_batch_current_max_tokens 150\ntgi_batch_max_total_tokens 100\n")
    assert found.pools == (Pool("", 1.0, 100, 0),)


def test_a_size_of_zero_is_not_known() -> None:
    found = reading("sglang:max_total_num_tokens 0\nsglang:page_size 0\nsglang:context_len 0\n")
    assert found.pools == (Pool(),)
    assert found.max_model_len is None


def test_hits_of_the_connector_alone_are_not_the_hits() -> None:
    page = text("written/vllm-0.11.2").replace(
        'vllm:prefix_cache_hits_total{engine="0",model_name="llama"} 2000.0', "x 1"
    )
    own = 'vllm:prefix_cache_hits_total{engine="0"} NaN\n'
    assert reading(page + own).counts.keys() == {"preemptions", "corrupted"}


def test_a_long_label_value_is_cut() -> None:
    (reason,) = reading(
        f'vllm:num_preemptions_total 0\nvllm:request_success_total{{finished_reason="{"r" * 999}"}} 1\n'
    ).counts["finished"]
    assert len(reason) == 64


def test_the_histogram_of_processes_of_one_server_is_one() -> None:
    page = "".join(
        f'vllm:request_prompt_tokens_bucket{{le="{le}",pid="{pid}"}} {count}\n'
        for pid, counts in ((71, (3, 4)), (72, (0, 0)))
        for le, count in zip(("1.0", "+Inf"), counts, strict=True)
    )
    found = reading(f"{page}vllm:request_prompt_tokens_sum 5\nvllm:num_preemptions_total 0\n").lengths
    assert found is not None
    assert found.buckets == ((1.0, 3), (math.inf, 4))


def test_a_histogram_of_one_bucket_tells_nothing_of_short_answers() -> None:
    found = reading('vllm:num_preemptions_total 0\nvllm:request_generation_tokens_bucket{le="+Inf"} 4\n')
    assert found.counts.keys() == {"preemptions"}


def test_an_idle_engine_is_not_taken_for_one_that_does_not_tell() -> None:
    page = "sglang:num_running_reqs 0\nsglang:num_queue_reqs 0\n" + text("written/dynamo-frontend")
    found = reading(page)
    assert (found.kind, found.running, found.waiting) == ("sglang", 0, {"": 0})
