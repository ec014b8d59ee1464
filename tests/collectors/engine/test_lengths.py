"""The shares of long prompts: the truth is always between the bounds."""

import math
from collections.abc import Mapping

from hypothesis import example, given
from hypothesis import strategies as st

from oomcast_collectors.engine.counters import Counters
from oomcast_collectors.engine.lengths import ABOVE, LengthWindow, Share, above
from oomcast_collectors.engine.reading import Lengths, Reading

INF = math.inf
VLLM = (*(float(m * 10**e) for e in range(5) for m in (1, 2, 5)), 100_000.0)
VLLM_200K = (*VLLM, 200_000.0)
SGLANG = (100.0, 1000.0, 40_000.0, 60_000.0, 80_000.0, 100_000.0, 200_000.0, 300_000.0)
LONG = ABOVE[1:]
OWN = (2048.0, 65_536.0, 131_072.0, 200_000.0)


def histogram(prompts: list[int], bounds: tuple[float, ...]) -> Lengths:
    buckets = tuple((bound, float(sum(n <= bound for n in prompts))) for bound in (*bounds, INF))
    return Lengths(buckets, float(sum(prompts)), float(len(prompts)))


def shares(window: LengthWindow, at: float) -> Mapping[int, Share]:
    recent = window.recent(at)
    return recent.shares() if recent is not None else {}


def test_where_the_buckets_have_the_length_the_bounds_are_equal() -> None:
    prompts = [65_536, 65_537, 131_072, 131_073, 300_000]
    assert [above(histogram(prompts, OWN), tokens) for tokens in LONG] == [(4, 4), (2, 2), (1, 1)]


def test_without_anything_else_a_bucket_holds_all_or_none() -> None:
    prompts = [90_000, *[100] * 99]
    assert above(histogram(prompts, (20_000.0,)), 65_536) == (0, 1)


def test_no_prompt_is_longer_than_the_engine_accepts() -> None:
    lengths = histogram([120_000] * 4, VLLM)
    assert above(lengths, 131_072, longest=131_072) == (0, 0)
    assert above(lengths, 200_000, longest=131_072) == (0, 0)


def test_the_sum_bounds_how_many_are_long() -> None:
    """Ten above 100,000 with a sum of 1,130,000: more than four above 131,072 were too many tokens."""
    lengths = Lengths(((100_000.0, 0.0), (INF, 10.0)), 1_130_000, 10)
    assert above(lengths, 131_072) == (0, 4)


def test_the_sum_bounds_how_few_are_long() -> None:
    """Ten between 100,000 and 200,000 with a mean of 180,000 cannot all be below 131,072."""
    lengths = Lengths(((100_000.0, 0.0), (INF, 10.0)), 1_800_000, 10)
    assert above(lengths, 131_072, longest=200_000) == (8, 10)
    assert above(lengths, 131_072) == (0, 10)


def test_a_sum_that_contradicts_the_buckets_is_not_used() -> None:
    buckets = ((100_000.0, 0.0), (INF, 10.0))
    assert above(Lengths(buckets, 5.0, 10), 131_072, longest=200_000) == (0, 10)
    assert above(Lengths(buckets, 5e9, 10), 131_072, longest=200_000) == (0, 10)


_PROMPTS = st.lists(st.one_of(st.integers(0, 3000), st.integers(50_000, 300_000)), max_size=30)
_BOUNDS = st.one_of(
    st.sampled_from([VLLM, VLLM_200K, SGLANG, OWN, ()]),
    st.sets(st.integers(1, 300_000), max_size=6).map(lambda bounds: tuple(float(n) for n in sorted(bounds))),
)


@given(_PROMPTS, _BOUNDS, st.integers(1, 400_000), st.booleans())
@example([131_073], VLLM, 131_072, True)
@example([131_072], VLLM, 131_072, True)
def test_the_truth_is_between_the_bounds(
    prompts: list[int], bounds: tuple[float, ...], tokens: int, longest_known: bool
) -> None:
    longest = max(prompts, default=1) if longest_known else INF
    lower, upper = above(histogram(prompts, bounds), tokens, longest)
    truth = sum(n > tokens for n in prompts)
    assert lower <= truth <= upper
    assert lower >= 0
    assert upper <= len(prompts)


_LIVES = st.lists(
    st.tuples(st.sampled_from([VLLM, VLLM_200K, SGLANG]), st.booleans(), st.lists(_PROMPTS, min_size=1, max_size=6)),
    min_size=1,
    max_size=4,
)


@given(_LIVES)
def test_the_truth_is_between_the_bounds_over_restarts(
    lives: list[tuple[tuple[float, ...], bool, list[list[int]]]],
) -> None:
    """The longest request of a life is told or not; the first look's prompts are before the window."""
    counters, window, at = Counters(), LengthWindow(3600), 1000.0
    seen: list[int] = []
    for number, (bounds, told, looks) in enumerate(lives):
        life: list[int] = []
        longest = max((n for prompts in looks for n in prompts), default=1) if told else None
        for prompts in looks:
            life += prompts
            seen += prompts if at > 1000 else []
            at += 30
            queries = {"": 1e6 - 1e3 * number + len(life)}
            lengths = histogram(life, bounds)
            counters.look(Reading("vllm", started=1e3 * number, counts={"queries": queries}, lengths=lengths), at)
            window.look(counters.length_parts, longest, at)
    found = shares(window, at)
    assert bool(found) == bool(seen)
    for tokens, share in found.items():
        truth = sum(n > tokens for n in seen) / len(seen)
        assert share.lower - 1e-9 <= truth <= share.upper + 1e-9


def test_the_window_forgets() -> None:
    window = LengthWindow(3600)
    prompts: list[int] = []
    for minute in range(200):
        prompts += [150_000] if minute < 100 else [100]
        window.look({OWN: histogram(prompts, OWN)}, None, 60.0 * minute)
    assert shares(window, 60.0 * 199) == {tokens: Share(0, 0) for tokens in ABOVE}
    for minute in range(200, 400):
        window.look({OWN: histogram(prompts, OWN)}, None, 60.0 * minute)
    assert shares(window, 60.0 * 399) == {}


def test_it_goes_on_where_there_are_no_looks() -> None:
    window = LengthWindow(3600)
    window.look({OWN: histogram([], OWN)}, None, 0.0)
    window.look({OWN: histogram([150_000], OWN)}, None, 1.0)
    assert shares(window, 3600.0)[65_536] == Share(1, 1)
    assert shares(window, 3601.0) == {}


def test_what_was_counted_before_the_first_look_is_not_in_the_window() -> None:
    window = LengthWindow(3600)
    window.look({}, None, 0.0)
    assert shares(window, 0.0) == {}
    old = [150_000] * 9
    window.look({OWN: histogram(old, OWN)}, None, 1.0)
    assert shares(window, 1.0) == {}
    window.look({OWN: histogram([*old, 100], OWN)}, None, 2.0)
    assert shares(window, 2.0)[65_536] == Share(0, 0)
