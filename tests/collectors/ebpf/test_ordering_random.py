"""The analysis of order among CUDA streams, against paths in a graph of small random programs."""

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from oomcast_collectors.ebpf.child.cuda.ordering import LEGACY, Ordering
from oomcast_collectors.ebpf.child.cuda.pending import Stream, Write


class Step(NamedTuple):
    """stream, event: which of four and of two."""

    does: str
    stream: int
    event: int
    start: int
    length: int


STEPS = st.builds(
    Step,
    st.sampled_from(
        ["write"] * 6 + ["record", "wait"] * 3 + ["sync", "sync_event", "touch", "launch", "recreate", "recreate_free"]
    ),
    *(st.integers(0, 3), st.integers(0, 1), st.integers(0, 2), st.integers(1, 3)),
)


class Reference:
    """The same by brute force: every call is a node, with edges from those it waits for; no path is a conflict.

    Stream 0 is the default stream. What a stream was before it was destroyed and made again is another one.
    """

    def __init__(self) -> None:
        self.before: list[set[int]] = []
        self.lives = [0, 0, 0, 0]
        self.blocking: dict[tuple[int, int], bool] = {(stream, 0): stream != 3 for stream in range(4)}
        self.last: dict[tuple[int, int], int] = {}
        self.recorded: dict[object, int] = {}
        self.host: set[int] = set()
        self.writes: dict[int, Step] = {}

    def enqueue(self, stream: int, others: set[int]) -> int:
        life = (stream, self.lives[stream])
        if stream == 0:
            others |= {last for one, last in self.last.items() if self.blocking[one]}
        elif self.blocking[life] and (0, 0) in self.last:
            others.add(self.last[0, 0])
        if life in self.last:
            others.add(self.last[life])
        self.before.append(others | self.host)
        self.last[life] = len(self.before) - 1
        return self.last[life]

    def reaches(self, first: int, second: int) -> bool:
        seen: set[int] = set()
        todo = [second]
        while todo:
            for node in self.before[todo.pop()] - seen:
                seen.add(node)
                todo.append(node)
        return first in seen

    def run(self, step: Step) -> set[int]:
        """The nodes of the writes that this one conflicts with."""
        known = self.recorded.get(("event", step.event))
        awaited = set(range(len(self.before))) if known is None else {known}
        match step.does:
            case "write":
                node = self.enqueue(step.stream, set())
                found = {other for other in self.writes if self.conflict(other, step, node)}
                self.writes[node] = step
                return found
            case "record":
                self.recorded["event", step.event] = self.enqueue(step.stream, set())
            case "wait":
                self.enqueue(step.stream, awaited)
            case "touch":
                self.enqueue(step.stream, set())
            case "sync":
                self.host |= {self.enqueue(step.stream, set())}
            case "sync_event":
                self.host |= awaited
            case "launch":
                last = self.recorded.get(("graph", step.event))
                everything = set(range(len(self.before)))
                node = self.enqueue(step.stream, everything if last is None else {last})
                self.recorded["graph", step.event] = node
            case _ if step.stream:
                self.lives[step.stream] += 1
                self.blocking[step.stream, self.lives[step.stream]] = step.does == "recreate"
        return set()

    def conflict(self, other: int, step: Step, node: int) -> bool:
        one = self.writes[other]
        overlap = one.start < step.start + step.length and step.start < one.start + one.length
        return overlap and not self.reaches(other, node) and not self.replaced(other)

    def replaced(self, other: int) -> bool:
        one = self.writes[other]
        return any(
            later.start <= one.start
            and one.start + one.length <= later.start + later.length
            and self.reaches(other, node)
            for node, later in self.writes.items()
            if node > other
        )


@settings(max_examples=600, deadline=None)
@given(st.lists(STEPS, min_size=5, max_size=25))
def test_conflicts_are_those_without_a_path(program: list[Step]) -> None:
    order, reference = Ordering(), Reference()
    order.synchronized()
    for number in (1, 2, 3):
        order.created(100 + number, blocking=number != 3)
    nodes: dict[int, int] = {}
    for at, step in enumerate(program):
        stream: Stream = 100 + step.stream if step.stream else LEGACY
        event = ("event", step.event)
        found: list[Write] = []
        match step.does:
            case "write":
                found = order.write(stream, step.start, step.start + step.length, at)
                nodes[len(reference.before)] = at
            case "record":
                order.record(event, stream)
            case "wait":
                order.wait(stream, event)
            case "touch":
                order.touch(stream)
            case "sync":
                order.complete_stream(stream)
            case "sync_event":
                order.complete_event(event)
            case "launch":
                order.launch(("graph", step.event), stream)
            case _ if step.stream:
                order.created(stream, blocking=step.does == "recreate")
        expected = sorted(str(nodes[node]) for node in reference.run(step))
        assert sorted(str(write.site) for write in found) == expected, at
