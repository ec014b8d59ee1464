"""The histogram of prompt lengths over restarts, with other buckets or none."""

import math

from hypothesis import given
from hypothesis import strategies as st

from collectors.engine.pages import Fed, page
from oomcast_collectors.engine.length_totals import gained
from oomcast_collectors.engine.reading import Lengths

INF = math.inf


def histogram(**below: float) -> Lengths:
    """below: cumulative counts by bound, b100=3; the sum is 10 for each."""
    buckets = tuple((INF if name == "inf" else float(name[1:]), count) for name, count in below.items())
    return Lengths(buckets, 10 * buckets[-1][1], buckets[-1][1])


def test_lengths_go_on_over_a_restart_with_other_buckets() -> None:
    fed = Fed()
    fed.take(page(queries=100, lengths=histogram(b100=2, b1000=5, inf=6)))
    fed.take(page(queries=120, lengths=histogram(b100=2, b1000=6, inf=8)))
    assert fed.take(page(queries=1, lengths=histogram(b100=1, b1000=1, b5000=1, inf=1)), after=60)
    total = fed.counters.lengths
    # The two that were longer than 1000 may have been longer than 5000.
    assert total == Lengths(((100.0, 3), (1000.0, 7), (5000.0, 7), (INF, 9)), 90, 9)
    fed.take(page(queries=0, lengths=histogram(b100=1, b1000=2, inf=2)), after=60)
    assert fed.counters.lengths == Lengths(((100.0, 4), (1000.0, 9), (INF, 11)), 110, 11)
    assert len(fed.counters.length_parts) == 2


def test_a_histogram_that_is_late_once_moves_nothing() -> None:
    fed = Fed()
    fed.take(page(queries=100, hits=1, http=1, lengths=histogram(b100=2, b1000=5, inf=6)))
    before = fed.counters.lengths
    fed.take(page(queries=100, hits=1, http=1, lengths=histogram(b100=1, b1000=1, inf=1)))
    fed.take(page(queries=100, hits=1, http=1, lengths=histogram(b1000=6, inf=7)))
    fed.take(page(queries=100, hits=1, http=1))
    assert fed.counters.lengths == before
    fed.take(page(queries=100, hits=1, http=1, lengths=histogram(b100=2, b1000=6, inf=7)))
    assert fed.counters.lengths == Lengths(((100.0, 2), (1000.0, 6), (INF, 7)), 70, 7)


def test_buckets_that_changed_for_good_go_on_without_a_jump() -> None:
    fed = Fed()
    fed.take(page(queries=100, hits=1, http=1, lengths=histogram(b100=2, b1000=5, inf=6)))
    for _ in range(20):
        fed.take(page(queries=100, hits=1, http=1, lengths=histogram(b100=2, b500=4, inf=7)))
    fed.take(page(queries=100, hits=1, http=1, lengths=histogram(b100=2, b500=5, inf=8)))
    total = fed.counters.lengths
    assert total is not None
    assert (total.count, total.sum) == (7, 70)
    assert fed.counters.restarts == 0


def test_histograms_that_are_none_are_left_out() -> None:
    for broken in (
        Lengths((), 0, 0),
        Lengths(((100.0, 1),), 1, 1),
        Lengths(((100.0, 2), (INF, 1)), 1, 1),
        Lengths(((100.0, 1), (50.0, 1), (INF, 1)), 1, 1),
        Lengths(((100.0, math.nan), (INF, 1)), 1, 1),
        Lengths(((INF, 1),), math.nan, 1),
        Lengths((*((float(n), 1.0) for n in range(300)), (INF, 1.0)), 1, 1),
    ):
        fed = Fed()
        fed.take(page(queries=1, lengths=broken))
        assert fed.counters.lengths is None


def test_buckets_that_change_with_each_restart_are_bounded() -> None:
    fed = Fed()
    for bound in range(1, 40):
        lengths = Lengths(((float(bound), 1.0), (INF, 2.0)), 20, 2)
        fed.take(page(started=1000.0 * bound, queries=1, lengths=lengths), after=60)
    total = fed.counters.lengths
    assert total is not None
    assert (total.count, total.sum) == (78, 780)
    assert len(fed.counters.length_parts) <= 9


_HISTOGRAMS = st.lists(
    st.tuples(st.sampled_from([(100.0,), (100.0, 1000.0), (50.0, 2000.0)]), st.lists(st.integers(0, 9), min_size=3)),
    max_size=20,
)


@given(_HISTOGRAMS, st.sampled_from([1.0, 20.0]))
def test_no_bucket_ever_falls_and_each_holds_the_smaller_ones(
    pages: list[tuple[tuple[float, ...], list[int]]], step: float
) -> None:
    fed = Fed()
    highest: dict[float, float] = {}
    for bounds, gains in pages:
        bounds = (*bounds, INF)
        counts = [float(sum(gains[: n + 1])) for n in range(len(bounds))]
        fed.take(page(lengths=Lengths(tuple(zip(bounds, counts, strict=True)), counts[-1], counts[-1])), step)
        total = fed.counters.lengths
        assert total is not None
        shown = [count for _, count in total.buckets]
        assert shown == sorted(shown)
        for bound, count in total.buckets:
            assert count >= highest.get(bound, 0.0)
            highest[bound] = count


def test_what_was_gained_rises_to_the_gain_of_the_whole() -> None:
    before = histogram(b100=2, b1000=5, inf=6)
    assert gained(before, None) == before
    assert gained(histogram(b100=3, b1000=8, inf=10), before) == histogram(b100=1, b1000=3, inf=4)
    # The second bucket is behind: what the first gained is in it as well.
    assert gained(histogram(b100=4, b1000=6, inf=9), before) == histogram(b100=2, b1000=2, inf=3)
    # A life that began unseen has more short ones than both have more of all.
    assert gained(histogram(b100=9, b1000=9, inf=9), before) == histogram(b100=3, b1000=3, inf=3)
