"""Ranges of addresses, found by what they overlap."""

from bisect import bisect_left, insort
from typing import NamedTuple


class Span(NamedTuple):
    """The addresses from start to before end. number: its own, so that several may be of the same addresses."""

    start: int
    end: int
    number: int


class Ranges:
    """A sorted list for each magnitude of length: within one, what overlaps starts at most that length before."""

    def __init__(self) -> None:
        self._by_magnitude: dict[int, list[Span]] = {}

    def add(self, span: Span) -> None:
        """A span of no addresses overlaps nothing and is not to be added."""
        insort(self._by_magnitude.setdefault(_magnitude(span), []), span)

    def remove(self, span: Span) -> None:
        """Raises KeyError or ValueError when it is not there."""
        spans = self._by_magnitude[_magnitude(span)]
        at = bisect_left(spans, span)
        if spans[at : at + 1] != [span]:
            raise ValueError(f"{span} is not there")
        del spans[at]
        if not spans:
            del self._by_magnitude[_magnitude(span)]

    def overlapping(self, start: int, end: int) -> list[Span]:
        """All that have an address in common with those from start to before end."""
        found: list[Span] = []
        for magnitude, spans in self._by_magnitude.items():
            first = bisect_left(spans, (start - (1 << magnitude) + 1,))
            last = bisect_left(spans, (end,))
            found += [span for span in spans[first:last] if span.end > start]
        return found

    def clear(self) -> None:
        self._by_magnitude.clear()


def _magnitude(span: Span) -> int:
    return (span.end - span.start).bit_length()
