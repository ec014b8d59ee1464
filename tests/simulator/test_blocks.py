"""The pool of blocks, every order worked out by hand."""

from simulator.blocks import Pool


def owned(pool: Pool, *keys: int | None) -> list[int]:
    """New blocks, of which those with a key are full."""
    blocks = pool.take(len(keys))
    for block, key in zip(blocks, keys, strict=True):
        if key is not None:
            pool.hold([block], [key])
    return blocks


def test_block_0_is_never_given_out_and_does_not_count() -> None:
    pool = Pool(5)
    assert (pool.free, pool.usage) == (4, 0)
    assert pool.take(1) == [1]
    assert pool.usage == 0.25
    assert pool.take(3) == [2, 3, 4]
    assert (pool.free, pool.usage) == (0, 1)


def test_what_was_used_longest_ago_goes_first_and_of_that_its_tail() -> None:
    pool = Pool(6)
    old, new = owned(pool, 10, 11, 12), owned(pool, 20, 21)
    pool.give_back(old)
    pool.give_back(new)
    assert pool.take(1) == [3]
    assert pool.find([10, 11, 12], 3) == [1, 2]
    assert pool.take(2) == [2, 1]
    assert pool.find([10], 1) == []
    assert pool.find([20, 21], 2) == [4, 5]
    assert pool.take(2) == [5, 4]


def test_what_holds_nothing_goes_before_all_else() -> None:
    pool = Pool(5)
    blocks = owned(pool, 10, None)
    pool.give_back(blocks)
    assert pool.take(1) == [2]
    assert pool.take(3) == [3, 4, 1]


def test_of_blocks_that_hold_nothing_the_last_goes_first() -> None:
    pool = Pool(4)
    pool.give_back(owned(pool, 10, None, None))
    assert pool.take(3) == [3, 2, 1]


def test_looking_ends_at_the_first_that_is_not_there_and_at_most_where_told() -> None:
    pool = Pool(5)
    owned(pool, 10, 11, 13)
    assert pool.find([10, 11, 12, 13], 4) == [1, 2]
    assert pool.find([10, 11], 1) == [1]
    assert pool.find([12], 1) == []


def test_a_found_block_is_no_longer_free_and_goes_to_the_end_again_afterwards() -> None:
    pool = Pool(4)
    pool.give_back(owned(pool, 10))
    pool.give_back(owned(pool, 20))
    found = pool.find([10], 1)
    assert pool.idle(found) == 1
    pool.share(found)
    assert (pool.idle(found), pool.free) == (0, 2)
    pool.give_back(found)
    assert pool.take(3) == [3, 2, 1]


def test_a_shared_block_is_free_once_nobody_has_it() -> None:
    pool = Pool(3)
    mine = owned(pool, 10)
    pool.share(mine)
    pool.give_back(mine)
    assert pool.free == 1
    pool.give_back(mine)
    assert pool.free == 2


def test_of_two_that_hold_the_same_the_older_is_found_as_long_as_it_is_there() -> None:
    pool = Pool(3)
    first, second = owned(pool, 10), owned(pool, 10)
    assert pool.find([10], 1) == first == [1]
    pool.give_back(first)
    assert pool.take(1) == [1]
    assert pool.find([10], 1) == second == [2]


def test_cached_are_the_free_ones_that_hold_something() -> None:
    pool = Pool(4)
    blocks = owned(pool, 10, 11, None)
    assert pool.cached == 0
    pool.give_back(blocks)
    assert pool.cached == 2
    pool.share([1])
    assert pool.cached == 1
    assert pool.take(2) == [3, 2]
    assert pool.cached == 0
