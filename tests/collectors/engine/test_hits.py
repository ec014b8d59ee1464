"""The hit ratio over a window, and its collapse."""

from hypothesis import given
from hypothesis import strategies as st

from oomcast_collectors.engine.hits import Hits


class Fed:
    """Hits, and the totals that grow."""

    def __init__(self, window: float = 300, min_queries: float = 10_000) -> None:
        self.hits = Hits(window, min_queries)
        self.at = 1000.0
        self.queries = self.found = 0.0

    def take(self, queries: float = 0.0, hits: float = 0.0, after: float = 1.0) -> float | None:
        self.at += after
        self.queries += queries
        self.found += hits
        self.hits.look(self.queries, self.found, self.at)
        return self.hits.ratio

    def run(self, seconds: float, queries: float, hits: float, step: float = 10.0) -> float | None:
        """queries, hits: per second."""
        for _ in range(round(seconds / step)):
            self.take(queries * step, hits * step, step)
        return self.hits.ratio

    @property
    def collapsed(self) -> bool:
        return self.hits.collapse(self.at) is not None


def test_the_ratio_is_of_the_window_not_of_the_engines_life() -> None:
    fed = Fed()
    fed.queries, fed.found = 1e9, 1e9
    fed.take()
    assert fed.run(300, 100, 25) == 0.25
    assert fed.run(310, 100, 75) == 0.75


def test_below_the_least_queries_there_is_no_ratio() -> None:
    fed = Fed()
    fed.take()
    assert fed.take(9_999, 9_999) is None
    assert fed.take(1, 0) == 0.9999
    assert fed.run(310, 1, 1) is None


def test_a_failed_look_has_no_ratio_and_the_next_one_has_it_again() -> None:
    fed = Fed()
    fed.run(300, 100, 50)
    fed.hits.look(None, None, fed.at + 1)
    assert fed.hits.ratio is None
    assert fed.take(40_000, 30_000, after=400) == 0.75
    assert fed.run(400, 100, 20) == 0.2


def test_the_memory_does_not_grow_with_the_looks() -> None:
    fed = Fed(window=86_400)
    for _ in range(20_000):
        fed.take(1000, 500, after=0.5)
    assert fed.hits.ratio == 0.5
    assert len(fed.hits._past.values()) < 70


def test_one_long_prompt_is_no_collapse() -> None:
    """65,000 new tokens among repeated ones took the ratio from 73 % to 10 %, rightly."""
    fed = Fed()
    fed.run(5400, 40, 29)
    for _ in range(4):
        fed.take(65_000, 0)
        fed.run(300, 40, 29)
        assert fed.hits.ratio is not None
        assert fed.hits.ratio < 0.2
        assert not fed.collapsed


def test_a_ratio_that_stays_low_is_a_collapse_until_it_recovers() -> None:
    fed = Fed()
    fed.run(5400, 1000, 900)
    fed.run(580, 1000, 30)
    assert not fed.collapsed
    fed.run(60, 1000, 30)
    collapse = fed.hits.collapse(fed.at)
    assert collapse is not None
    assert 0.85 < collapse.normal <= 0.9
    assert collapse.ratio < 0.04
    fed.run(600, 1000, 400)
    assert fed.collapsed
    fed.run(600, 1000, 500)
    assert not fed.collapsed


def test_a_workload_without_reuse_never_collapses() -> None:
    """Blocks that are larger than the shared prefix: 0 hits with everything healthy."""
    for ratio in (0.0, 0.45):
        fed = Fed()
        fed.run(20_000, 1000, 1000 * ratio)
        fed.run(3600, 1000, 0)
        assert not fed.collapsed


def test_without_half_an_hour_of_past_nothing_is_normal() -> None:
    fed = Fed()
    fed.run(1500, 1000, 900)
    assert fed.hits.normal(fed.at) is None
    fed.run(900, 1000, 0)
    assert not fed.collapsed
    other = Fed()
    other.run(1900, 1000, 900)
    assert other.hits.normal(other.at) == 0.9


def test_a_collapse_is_forgotten_without_traffic() -> None:
    fed = Fed()
    fed.run(5400, 1000, 900)
    fed.run(900, 1000, 0)
    assert fed.collapsed
    fed.run(4000, 0, 0)
    assert not fed.collapsed


def test_what_is_older_than_six_hours_is_no_longer_normal() -> None:
    fed = Fed()
    fed.run(20_000, 1000, 900)
    fed.run(22_000, 1000, 100)
    assert fed.hits.normal(fed.at) == 0.1


_STEPS = st.lists(
    st.tuples(
        st.floats(0.1, 1000, allow_nan=False),
        st.one_of(st.none(), st.tuples(st.floats(0, 1e7, allow_nan=False), st.floats(0, 1e7, allow_nan=False))),
    ),
    max_size=40,
)


@given(_STEPS)
def test_the_ratio_is_one(steps: list[tuple[float, tuple[float, float] | None]]) -> None:
    fed = Fed(min_queries=1)
    for after, gains in steps:
        if gains is None:
            fed.at += after
            fed.hits.look(None, None, fed.at)
            assert fed.hits.ratio is None
        else:
            ratio = fed.take(*gains, after)
            assert ratio is None or 0 <= ratio <= 1
