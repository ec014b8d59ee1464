"""The keys of prefixes."""

import pytest

from simulator.prefix import Keys
from simulator.trace import Request


def keys(
    prompt: int, ids: tuple[int, ...], *, serial: int = 0, span: int = 8, size: int = 4, count: int = 4
) -> list[int]:
    return Keys(Request(0, prompt, 1, ids, span), serial, size).first(count)[:count]


def test_prompts_that_begin_alike_share_keys_up_to_where_they_part() -> None:
    one, other = keys(16, (1, 2)), keys(16, (1, 3), serial=1)
    assert one[:2] == other[:2]
    assert set(one[2:]).isdisjoint(other[2:])


def test_a_key_is_of_all_that_comes_before() -> None:
    one, other = keys(16, (1, 2)), keys(16, (3, 2), serial=1)
    assert set(one).isdisjoint(other)


def test_an_id_has_a_key_for_each_block_of_it() -> None:
    assert len(set(keys(16, (1, 1)))) == 4


def test_nobody_shares_what_is_not_all_in_the_prompt_or_has_no_id() -> None:
    one, other = keys(15, (1, 2)), keys(15, (1, 2), serial=1)
    assert one[:3] == other[:3]
    assert one[3] != other[3]
    assert set(keys(16, (), serial=5)).isdisjoint(keys(16, (), serial=6))


@pytest.mark.parametrize("size", [3, 8, 12])
def test_blocks_need_not_fit_into_what_an_id_stands_for(size: int) -> None:
    count = 24 // size
    one, other = keys(24, (1, 2, 3), size=size, count=count), keys(24, (1, 2, 4), serial=1, size=size, count=count)
    alike = 16 // size
    assert one[:alike] == other[:alike]
    assert set(one[alike:]).isdisjoint(other[alike:])


def test_they_are_the_same_however_they_are_asked_for() -> None:
    at_once, by_and_by = (Keys(Request(0, 10, 30, (1, 2), 8), 3, 4) for _ in range(2))
    for count in range(11):
        assert len(by_and_by.first(count)) == count
    assert at_once.first(10) == by_and_by.first(10)
