"""What still fits into KV memory."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomcast.contract import Level
from oomcast_collectors.engine.admission import capacity, headroom, kv_level, largest_request, longest_fits, usage
from oomcast_collectors.engine.reading import Pool, Reading


def reading(*pools: Pool, max_model_len: int | None = None) -> Reading:
    return Reading("vllm", pools, max_model_len=max_model_len)


def test_the_headroom_is_of_all_ranks_the_largest_request_of_the_emptiest() -> None:
    two = reading(Pool("0", 0.75, 4096, block=128), Pool("1", 0.5, 4096, block=128), max_model_len=131_072)
    assert (capacity(two), headroom(two), largest_request(two)) == (8192, 1024 + 2048, 2048)
    assert usage(two) == 0.75


def test_what_can_be_evicted_is_free() -> None:
    pool = Pool("", usage=0.4, capacity=8192, available=6000)
    assert (headroom(reading(pool)), largest_request(reading(pool, max_model_len=4000))) == (6000, 4000)


def test_a_request_takes_whole_blocks() -> None:
    assert largest_request(reading(Pool(capacity=4096, available=1000, block=128))) == 896
    assert largest_request(reading(Pool(capacity=4096, available=1000))) == 1000


@pytest.mark.parametrize("used", range(33))
def test_a_usage_in_blocks_gives_these_blocks(used: int) -> None:
    pool = Pool(usage=1 - (32 - used) / 32, capacity=4096, block=128)
    assert largest_request(reading(pool)) == (32 - used) * 128


def test_what_is_not_told_is_not_known() -> None:
    assert headroom(reading()) is None
    assert largest_request(reading(Pool(usage=0.5))) is None
    partly = reading(Pool("0", 0.5, 1000), Pool("1", 0.5))
    assert (capacity(partly), headroom(partly), largest_request(partly)) == (None, None, 500)
    assert usage(reading(Pool())) is None


def test_a_pool_smaller_than_the_longest_request_never_fits_it() -> None:
    """76,640 tokens for requests of up to 262,144: one longer than the pool waits for ever and blocks the others."""
    assert longest_fits(reading(Pool(capacity=76_640, block=16), max_model_len=262_144)) is False
    assert longest_fits(reading(Pool(capacity=548_864, block=16), max_model_len=262_144)) is True
    # Two ranks of which neither is large enough.
    assert longest_fits(reading(Pool("0", capacity=200), Pool("1", capacity=200), max_model_len=300)) is False
    assert longest_fits(reading(Pool(capacity=4100, block=128), max_model_len=4097)) is False


def test_without_a_capacity_or_a_longest_request_it_is_unknown() -> None:
    assert longest_fits(reading(Pool(capacity=1000))) is None
    assert longest_fits(reading(max_model_len=1000)) is None
    assert longest_fits(reading(Pool("0", capacity=10), Pool("1"), max_model_len=1000)) is None
    assert longest_fits(reading(Pool("0", capacity=1000), Pool("1"), max_model_len=1000)) is True


def test_the_level_is_in_tokens_and_begins_anew_with_a_restart() -> None:
    level = kv_level("a", reading(Pool("0", 0.75, 4096), Pool("1", 0.5, 4096)), restarts=3)
    assert level == Level("kv_cache", (("engine", "a"),), 5120, 8192, identity=3, noise=level.noise if level else 0)
    assert level is not None
    assert level.noise > 0.01 * level.capacity


def test_without_a_capacity_the_level_is_the_usage() -> None:
    level = kv_level("a", reading(Pool("0", 0.25), Pool("1", 0.5, 4096)), restarts=0)
    assert level is not None
    assert (level.used, level.capacity) == (0.5, 1.0)


def test_without_an_answer_or_a_usage_there_is_no_level() -> None:
    assert kv_level("a", None, 0) is None
    assert kv_level("a", reading(), 0) is None
    assert kv_level("a", reading(Pool(capacity=4096)), 0) is None


_POOLS = st.builds(
    Pool,
    usage=st.none() | st.floats(),
    capacity=st.none() | st.integers(0, 10**9),
    available=st.none() | st.integers(-10, 10**10),
    block=st.none() | st.integers(1, 4096),
)


@given(st.lists(_POOLS, max_size=4), st.none() | st.integers(1, 10**6))
def test_nothing_is_negative_or_more_than_there_is(pools: list[Pool], longest: int | None) -> None:
    found = reading(*pools, max_model_len=longest)
    room, whole, largest = headroom(found), capacity(found), largest_request(found)
    assert room is None or room >= 0
    assert room is None or whole is None or room <= whole
    assert largest is None or 0 <= largest <= (longest or math.inf)
    level = kv_level("a", found, 0)
    assert level is None or 0 <= level.used <= level.capacity
