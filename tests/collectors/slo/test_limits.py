"""Objectives in buckets."""

import math

from oomcast_collectors.slo.limits import above, in_force, observed

INF = math.inf
EDGES = (1.0, 5.0, 10.0, INF)
BINS = [(0.0, 1.0, 7.0), (1.0, 5.0, 4.0), (5.0, 10.0, 2.0), (10.0, INF, 1.0)]


def test_the_edge_at_or_above() -> None:
    assert in_force([0.5, 1.0, 1.1, 10.0, 10.1, None], EDGES) == [1.0, 1.0, 5.0, 10.0, None, None]
    assert in_force([0.5], ()) == [None]
    assert in_force([0.5], (INF,)) == [None]


def test_above_an_edge() -> None:
    assert [above(BINS, edge) for edge in (1.0, 5.0, 10.0)] == [7, 3, 1]


def test_what_violates_whatever_class_it_is_of() -> None:
    assert observed([1.0, 4.0], EDGES, BINS) == (14, 3)
    assert observed([1.0, 4.0], EDGES, []) == (0, 0)


def test_without_a_limit_for_each_class_nothing_is_certain() -> None:
    assert observed([1.0, None], EDGES, BINS) is None
    assert observed([1.0, 11.0], EDGES, BINS) is None
