"""Births by age: never older than they are, never lost, and few buckets for however long."""

from hypothesis import given, settings
from hypothesis import strategies as st

from oomcast_collectors.ebpf.child.allocations.ages import EPOCH_SHIFT, Births
from oomcast_collectors.ebpf.child.allocations.outstanding import Outstanding
from oomcast_collectors.ebpf.child.allocations.tables import Change, Counts

EPOCH = 1 << EPOCH_SHIFT
SECOND = 10**9
START = 1000 * SECOND
AGES = (0.1, 5.0, 60.0, 3600.0)


def told(born: int, now: int) -> int:
    """The epoch of a birth as the program tells of it."""
    epoch = born >> EPOCH_SHIFT
    age = (now >> EPOCH_SHIFT) - epoch
    width = next(
        w for w, limit in ((1, 1 << 10), (1 << 5, 1 << 15), (1 << 10, 1 << 20), (1 << 15, 1 << 60)) if age < limit
    )
    return epoch // width * width


steps = st.tuples(
    st.floats(0.01, 20_000),  # seconds that pass first
    st.integers(1, 1000),  # bytes of a block that is born
    st.integers(0, 3),  # blocks that end
    st.randoms(use_true_random=False),
)


@settings(deadline=None, max_examples=200)
@given(st.lists(steps, max_size=40))
def test_against_every_single_block(moves: list[tuple[float, int, int, object]]) -> None:
    births, now = Births(START), START
    blocks: list[tuple[int, int]] = []
    for seconds, size, ends, random in moves:
        # The child looks once in a second; where nothing happens one look is as good.
        now += int(seconds * SECOND)
        births.settle(now)
        births.settle(now)
        births.settle(now)
        births.add(told(now, now), size, 1, now)
        blocks.append((now, size))
        for _ in range(min(ends, len(blocks))):
            born, old = blocks.pop(random.randrange(len(blocks)))  # type: ignore[attr-defined] # a Random
            births.add(told(born, now), -old, -1, now)
        for age in AGES:
            found, count = births.older(age, now)
            surely = [s for born, s in blocks if now - born >= age * SECOND * 17 / 16 + 2 * EPOCH]
            older = [s for born, s in blocks if now - born >= age * SECOND]
            assert sum(surely) <= found <= sum(older)
            assert len(surely) <= count <= len(older)
    assert births.older(0.0, now + EPOCH) == (sum(s for _, s in blocks), len(blocks))


def test_a_leak_of_weeks_has_few_buckets() -> None:
    births, now = Births(START), START
    for _ in range(30_000):
        now += 60 * SECOND
        births.add(now >> EPOCH_SHIFT, 100, 1, now)
        births.settle(now)
    assert len(births) < 2000
    assert births.older(0.0, now + EPOCH) == (3_000_000, 30_000)


def test_what_was_born_before_is_not_taken_in() -> None:
    births = Births(START)
    births.add((START - SECOND) >> EPOCH_SHIFT, -100, -1, START + SECOND)
    births.add(START >> EPOCH_SHIFT, 40, 1, START + SECOND)
    assert births.older(0.5, START + SECOND) == (40, 1)


def test_changes_that_come_again_count_once() -> None:
    births, later = Births(START), START + SECOND
    births.add(START >> EPOCH_SHIFT, 100, 2, later)
    births.recent([(START >> EPOCH_SHIFT, -30, -1)], later)
    births.recent([(START >> EPOCH_SHIFT, -30, -1)], later)
    assert births.older(0.5, later) == (70, 1)
    births.recent([], later)
    births.add(START >> EPOCH_SHIFT, -30, -1, later)
    assert births.older(0.5, later) == (70, 1)


def test_classes_add_up_to_all_that_is_outstanding() -> None:
    outstanding = Outstanding(Counts(live_bytes=1000, live_blocks=10), START)
    outstanding.count(Counts(live_bytes=1300, live_blocks=13))
    outstanding.change([Change(1, 3, START >> EPOCH_SHIFT, 200, 2)], [], START + 10 * SECOND)
    assert list(outstanding.classes(AGES, START + 10 * SECOND)) == [
        *(("0", 100, 1), ("0.1", 0, 0), ("5", 200, 2), ("60", 0, 0), ("3600", 0, 0)),
    ]


def test_a_block_that_was_taken_out_is_outstanding_no_more() -> None:
    outstanding = Outstanding(Counts(), START)
    outstanding.change([Change(1, 2, START >> EPOCH_SHIFT, 300, 3)], [], START + SECOND)
    outstanding.take(100, START, START + SECOND)
    outstanding.count(Counts(live_bytes=300, live_blocks=3))
    assert (outstanding.bytes, outstanding.blocks) == (200, 2)
    assert outstanding.older(0.5, START + SECOND) == (200, 2)


def test_growth_is_that_of_a_whole_minute() -> None:
    outstanding = Outstanding(Counts(), START)
    for second in range(90):
        outstanding.count(Counts(live_bytes=1000 * second))
        outstanding.change([], [], START + second * SECOND)
        assert (outstanding.growth() is None) == (second < 60)
    growth = outstanding.growth()
    assert growth is not None
    assert abs(growth - 1000) < 1e-6
