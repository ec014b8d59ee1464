"""The analysis of order among CUDA streams: case by case."""

from collections.abc import Callable

import pytest

from oomcast_collectors.ebpf.child.cuda.ordering import LEGACY, PER_THREAD, Ordering
from oomcast_collectors.ebpf.child.cuda.pending import Stream, Write

A, B, C, FREE = 11, 12, 13, 14
"""Streams; FREE is a non-blocking one."""

EVENT, OTHER_EVENT, GRAPH = 21, 22, 31


def ordering(**limits: int) -> Ordering:
    """Of a process that was seen from the start."""
    order = Ordering(**limits)
    order.synchronized()
    for stream in (A, B, C):
        order.created(stream, blocking=True)
    order.created(FREE, blocking=False)
    return order


def sites(writes: list[Write]) -> list[object]:
    return [write.site for write in writes]


def conflicts(order: Ordering, between: Callable[[Ordering], None], first: Stream = A, second: Stream = B) -> bool:
    order.write(first, 0, 10, "first")
    between(order)
    return sites(order.write(second, 9, 20, "second")) == ["first"]


def nothing(order: Ordering) -> None:
    pass


def by_event(order: Ordering) -> None:
    order.record(EVENT, A)
    order.wait(B, EVENT)


def by_event_that_was_recorded_again(order: Ordering) -> None:
    order.record(EVENT, A)
    order.record(EVENT, C)
    order.wait(B, EVENT)


def by_an_event_of_another_capture(order: Ordering) -> None:
    order.record(EVENT, A)
    order.capture_begun(C)
    order.record(EVENT, C)
    order.capture_ended(C)
    order.wait(B, EVENT)


def by_event_that_was_recorded_too_early(order: Ordering) -> None:
    order.record(EVENT, C)
    order.wait(B, EVENT)


def by_event_that_was_waited_for_too_early(order: Ordering) -> None:
    order.record(EVENT, C)
    order.wait(B, EVENT)
    order.record(EVENT, A)


def by_chain(order: Ordering) -> None:
    order.record(EVENT, A)
    order.wait(C, EVENT)
    order.record(OTHER_EVENT, C)
    order.wait(B, OTHER_EVENT)


def by_graph(order: Ordering) -> None:
    order.launch(GRAPH, A)
    order.launch(GRAPH, B)


def by_default_stream(order: Ordering) -> None:
    order.touch(LEGACY)


def by_record_of_everything(order: Ordering) -> None:
    order.record_all(EVENT)
    order.wait(B, EVENT)


def by_stream_that_was_destroyed(order: Ordering) -> None:
    order.destroyed(A)
    order.created(A, blocking=True)
    order.complete_stream(A)


ORDERS = [
    by_event,
    by_an_event_of_another_capture,
    by_chain,
    by_graph,
    by_default_stream,
    by_record_of_everything,
    lambda order: order.complete_stream(A),
    lambda order: order.synchronized(),
    lambda order: order.host_function(A),
    lambda order: order.complete_all(),
    lambda order: order.allocated(9, 10),
    lambda order: order.wait(B, "never recorded"),
    lambda order: order.gap(),
    lambda order: order.blind(),
]
DOES_NOT = [
    nothing,
    by_event_that_was_recorded_again,
    by_event_that_was_recorded_too_early,
    by_event_that_was_waited_for_too_early,
    by_stream_that_was_destroyed,
    lambda order: order.complete_stream(B),
    lambda order: order.complete_stream(C),
    lambda order: order.touch(FREE),
    lambda order: order.allocated(10, 20),
]


@pytest.mark.parametrize("between", ORDERS)
def test_orders(between: Callable[[Ordering], None]) -> None:
    assert not conflicts(ordering(), between)


@pytest.mark.parametrize("between", DOES_NOT)
def test_does_not_order(between: Callable[[Ordering], None]) -> None:
    assert conflicts(ordering(), between)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (A, A, False),
        (A, B, True),
        (LEGACY, A, False),
        (A, LEGACY, False),
        (LEGACY, FREE, True),
        (FREE, LEGACY, True),
        (LEGACY, LEGACY, False),
        (LEGACY, (PER_THREAD, 1), False),
        ((PER_THREAD, 1), (PER_THREAD, 1), False),
        ((PER_THREAD, 1), (PER_THREAD, 2), True),
        (LEGACY, "never seen created", False),
    ],
)
def test_kinds_of_streams(first: Stream, second: Stream, expected: bool) -> None:
    assert conflicts(ordering(), nothing, first, second) == expected


def test_work_of_a_destroyed_stream_goes_on_and_its_handle_is_another_stream() -> None:
    order = ordering()
    order.write(A, 0, 10, "first")
    order.destroyed(A)
    order.created(A, blocking=True)
    assert sites(order.write(A, 0, 10, "second")) == ["first"]


def test_default_stream_waits_for_a_destroyed_blocking_stream() -> None:
    order = ordering()
    order.write(A, 0, 10, "first")
    order.destroyed(A)
    assert not order.write(LEGACY, 0, 10, "second")


def test_event_that_was_recorded_before_the_write() -> None:
    order = ordering()
    order.record(EVENT, A)
    assert conflicts(order, lambda order: order.wait(B, EVENT))


def test_event_at_the_address_of_a_destroyed_one() -> None:
    order = ordering()
    order.record(EVENT, A)
    order.event_destroyed(EVENT)
    assert not conflicts(order, lambda order: order.wait(B, EVENT))


def test_a_write_takes_the_place_of_what_it_covers_and_follows() -> None:
    order = ordering()
    for site in ("first", "second", "third"):
        order.write(A, 0, 10, site)
    order.write(A, 0, 9, "part")
    assert sorted(map(str, sites(order.write(B, 0, 10, "other")))) == ["part", "third"]


def test_writes_that_are_captured_are_none() -> None:
    order = ordering()
    order.capture_begun(A)
    order.write(A, 0, 10, "captured")
    order.write(B, 0, 10, "while capturing")
    order.capture_ended(A)
    assert not order.write(C, 0, 10, "real")


def test_streams_that_may_be_captured_count_once_they_were_waited_for() -> None:
    order = Ordering()
    assert not conflicts(order, nothing)
    order.complete_stream(A)
    assert not conflicts(order, nothing), "the other one may be captured"
    order.complete_stream(A)
    order.complete_stream(B)
    assert conflicts(order, nothing)


def test_a_stream_drawn_into_a_capture_whose_begin_was_missed() -> None:
    order = Ordering()
    order.created(B, blocking=False)
    order.created(C, blocking=False)
    order.record(EVENT, A)
    order.wait(B, EVENT)
    order.write(B, 0, 10, "captured")
    assert not order.write(C, 0, 10, "real")


def test_a_gap_forgets_and_counts() -> None:
    order = ordering()
    order.write(A, 0, 10, "first")
    order.write(B, 20, 30, "second")
    order.gap()
    assert order.dropped == 2
    order.synchronized()
    assert conflicts(order, nothing)


def test_writes_are_bounded() -> None:
    order = ordering(writes=3)
    for at in range(5):
        order.write(A, at, at + 1, at)
    assert order.dropped == 2
    assert sites(order.write(B, 0, 5, "all")) == [2, 3, 4]


def test_events_are_bounded_and_a_forgotten_one_orders() -> None:
    order = ordering(events=2)
    for event in ("old", "newer", "newest"):
        order.record(event, C)
    assert not conflicts(order, lambda order: order.wait(B, "old"))


@pytest.mark.parametrize("destroyed", [True, False])
def test_streams_are_bounded_and_none_is_in_conflict_with_itself(destroyed: bool) -> None:
    order = ordering(lanes=16)
    for stream in range(100, 200):
        order.created(stream, blocking=False)
        for at in (0, 5):
            assert all(write.stream != stream for write in order.write(stream, at, at + 10, stream))
        if destroyed:
            order.destroyed(stream)
    assert order.dropped > 0
    assert len(order.write(A, 0, 10, "last")) < 2 * 16
