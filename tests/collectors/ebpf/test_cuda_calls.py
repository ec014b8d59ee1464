"""What is concluded from the calls of a process: contexts, streams, memory."""

import pytest

from oomcast_collectors.ebpf.child.cuda.calls import Call, CudaCalls, Did
from oomcast_collectors.ebpf.child.cuda.device_memory import DeviceMemory

DEVICE = 0x7F00_0000_0000
FIRST, SECOND = 0x1000, 0x2000


def calls(*taken: Call) -> CudaCalls:
    found = CudaCalls()
    for call in taken:
        found.take(call)
    return found


def streams() -> list[Call]:
    return [Call(Did.CONTEXT_COMPLETE), *(Call(Did.STREAM_MADE, handle=one, bytes=1) for one in (FIRST, SECOND))]


def write(stream: int, did: Did = Did.WRITE) -> Call:
    return Call(did, stream=stream, address=DEVICE, bytes=16, function=1, stack=(2, 3))


def test_nothing_is_known_before_something_was_made() -> None:
    found = calls(Call(Did.CONTEXT_DESTROYED, handle=1), Call(Did.STREAM_DESTROYED, stream=FIRST))
    assert (found.contexts, found.streams) == (None, None)


def test_contexts_are_counted() -> None:
    found = calls(
        Call(Did.CONTEXT_MADE, handle=1),
        Call(Did.PRIMARY_RETAINED, handle=0),
        Call(Did.PRIMARY_RETAINED, handle=0),
        Call(Did.PRIMARY_RETAINED, handle=1),
    )
    assert found.contexts == 3
    found.take(Call(Did.PRIMARY_RELEASED, handle=0))
    assert found.contexts == 3
    found.take(Call(Did.PRIMARY_RELEASED, handle=0))
    found.take(Call(Did.PRIMARY_RESET, handle=1))
    found.take(Call(Did.PRIMARY_RELEASED, handle=1))
    assert found.contexts == 1
    found.take(Call(Did.CONTEXT_DESTROYED, handle=1))
    assert found.contexts == 0


def test_streams_go_with_the_last_context() -> None:
    found = calls(Call(Did.PRIMARY_RETAINED), Call(Did.CONTEXT_MADE, handle=1), *streams())
    found.take(Call(Did.CONTEXT_DESTROYED, handle=1))
    assert found.streams == 2
    found.take(Call(Did.STREAM_DESTROYED, stream=FIRST))
    assert found.streams == 1
    found.take(Call(Did.PRIMARY_RELEASED))
    assert found.streams == 0


def test_a_gap_takes_away_what_was_known() -> None:
    found = calls(Call(Did.CONTEXT_MADE, handle=1), *streams(), write(FIRST))
    found.gap()
    assert (found.contexts, found.streams) == (None, None)
    assert found.ordering.dropped == 1
    assert not found.take(write(SECOND))


def test_a_conflict_has_what_both_write_to() -> None:
    found = calls(*streams(), write(FIRST))
    (conflict,) = found.take(Call(Did.WRITE, stream=SECOND, address=DEVICE + 8, bytes=16, function=4, stack=(5,)))
    assert (conflict.start, conflict.end) == (DEVICE + 8, DEVICE + 16)
    assert conflict.streams == (FIRST, SECOND)
    assert conflict.sites == ((1, (2, 3)), (4, (5,)))


@pytest.mark.parametrize(
    ("allocation", "did", "expected"),
    [
        (None, Did.WRITE, 1),
        (None, Did.WRITE_SOMEWHERE, 0),
        (Did.ALLOCATED, Did.WRITE, 1),
        (Did.ALLOCATED, Did.WRITE_SOMEWHERE, 1),
        (Did.ALLOCATED_IN_STREAM, Did.WRITE_SOMEWHERE, 1),
        (Did.ALLOCATED_MANAGED, Did.WRITE, 0),
        (Did.ALLOCATED_MANAGED, Did.WRITE_SOMEWHERE, 0),
    ],
)
def test_only_writes_to_device_memory_count(allocation: Did | None, did: Did, expected: int) -> None:
    found = calls(*streams())
    if allocation is not None:
        found.take(Call(allocation, address=DEVICE, bytes=4096))
    found.take(write(FIRST, did))
    assert len(found.take(write(SECOND, did))) == expected


@pytest.mark.parametrize(
    "between",
    [
        Call(Did.FREED, address=1),
        Call(Did.ALLOCATED, address=1, bytes=1),
        Call(Did.ALLOCATED_IN_STREAM, stream=SECOND, address=DEVICE, bytes=16),
        Call(Did.MAPPED, address=DEVICE, bytes=16),
        Call(Did.CONTEXT_DESTROYED, handle=9),
        Call(Did.TOUCHED),
        Call(Did.STREAM_COMPLETE, stream=FIRST),
        Call(Did.HOST_FUNCTION, stream=FIRST),
        Call(Did.NOT_FOLLOWED),
    ],
)
def test_calls_that_order(between: Call) -> None:
    found = calls(*streams(), write(FIRST), between)
    assert not found.take(write(SECOND))


@pytest.mark.parametrize(
    "between", [Call(Did.FREED_IN_STREAM, stream=SECOND, address=1), Call(Did.CONTEXT_MADE, handle=1)]
)
def test_calls_that_do_not_order(between: Call) -> None:
    found = calls(*streams(), write(FIRST), between)
    assert found.take(write(SECOND))


def test_a_default_stream_for_each_thread() -> None:
    found = calls(Call(Did.CONTEXT_COMPLETE))
    assert not found.take(write(2)._replace(tid=1))
    assert not found.take(write(2)._replace(tid=1))
    assert found.take(write(2)._replace(tid=2))


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="99"):
        CudaCalls().take(Call(99))


def test_handles_are_bounded() -> None:
    found = CudaCalls()
    for handle in range(20_005):
        found.take(Call(Did.STREAM_MADE, handle=handle))
    assert found.streams is not None
    assert found.streams <= 10_000


def test_memory_of_a_block_that_replaces_others() -> None:
    memory = DeviceMemory()
    memory.allocated(0, 100, device=False)
    memory.allocated(100, 100, device=False)
    memory.allocated(50, 100, device=True)
    assert [memory.is_device(at) for at in (0, 49, 50, 149, 150)] == [None, None, True, True, None]
    memory.freed(50)
    memory.freed(50)
    assert memory.is_device(50) is None
