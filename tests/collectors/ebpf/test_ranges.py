"""Ranges of addresses, compared with looking at each."""

from hypothesis import given
from hypothesis import strategies as st

from oomcast_collectors.ebpf.child.cuda.ranges import Ranges, Span


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 200))), st.integers(0, 300), st.integers(1, 200))
def test_ranges_find_what_overlaps(pairs: list[tuple[int, int]], start: int, length: int) -> None:
    spans = [Span(at, at + size, number) for number, (at, size) in enumerate(pairs)]
    ranges = Ranges()
    for span in spans:
        ranges.add(span)
    for span in spans[::3]:
        ranges.remove(span)
    left = [span for at, span in enumerate(spans) if at % 3]
    expected = [span for span in left if span.start < start + length and start < span.end]
    assert sorted(ranges.overlapping(start, start + length)) == sorted(expected)
