"""Steps of used memory and who took them."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from oomcast_collectors.gpu.growth import Growth, Step, remainder, total

GB = 10**9


def growth(seconds: float = 40) -> Growth[str]:
    return Growth(seconds)


def steps(
    over: Growth[str], *readings: tuple[float, int | None, Mapping[str, int | None] | None], least: float = 4 * GB
) -> list[Step[str]]:
    return [step for at, used, shares in readings if (step := over.add(at, used, shares, least)) is not None]


def test_a_rise_with_its_cause() -> None:
    assert steps(
        growth(),
        (0, 10 * GB, {"a": 4 * GB, "b": 5 * GB}),
        (20, 12 * GB, {"a": 6 * GB, "b": 5 * GB}),
        (38, 16 * GB, {"a": 9 * GB, "b": 6 * GB}),
    ) == [Step(6 * GB, 38, "a", 5 * GB, 0)]


def test_below_the_threshold_and_too_slow_are_none() -> None:
    assert steps(growth(), (0, 0, {}), (40, 4 * GB - 1, {})) == []
    assert steps(growth(), (0, 0, {}), (20, 2 * GB, {}), (41, 4 * GB, {}), (61, 5 * GB, {})) == []
    assert steps(growth(), (0, 0, {}), (40, 4 * GB, {})) != []


def test_without_a_threshold_there_is_none_and_the_past_counts_later() -> None:
    over = growth()
    assert [over.add(at, at * GB, {}, None) for at in (0, 5)] == [None, None]
    assert steps(over, (6, 6 * GB, {})) == [Step(6 * GB, 6, None, 0, 6 * GB)]


def test_a_ramp_is_one_step_for_each_threshold() -> None:
    found = steps(growth(), *((at, at * GB, {"a": at * GB}) for at in range(21)))
    assert found == [Step(4 * GB, 4, "a", 4 * GB, 0)] * 5


def test_the_rise_is_measured_from_the_low_and_from_its_last_moment() -> None:
    readings: list[tuple[float, int, Mapping[str, int]]] = [
        (0, 9 * GB, {}),
        (10, 2 * GB, {}),
        (20, 2 * GB, {}),
        (30, 6 * GB, {}),
    ]
    assert steps(growth(), *readings) == [Step(4 * GB, 10, None, 0, 4 * GB)]


def test_after_a_step_the_low_before_it_is_forgotten() -> None:
    over = growth()
    assert len(steps(over, (0, 0, {}), (1, 5 * GB, {}))) == 1
    assert steps(over, (2, 8 * GB, {}), (3, 9 * GB - 1, {})) == []
    assert steps(over, (4, 9 * GB, {})) == [Step(4 * GB, 3, None, 0, 4 * GB)]


def test_who_came_counts_with_all_and_who_left_gave_back() -> None:
    assert steps(growth(), (0, 10 * GB, {"old": 10 * GB}), (2, 15 * GB, {"new": 15 * GB})) == [
        Step(5 * GB, 2, "new", 15 * GB, 0)
    ]


def test_what_nobody_took() -> None:
    assert steps(growth(), (0, 10 * GB, {"a": 9 * GB}), (2, 15 * GB, {"a": 8 * GB})) == [
        Step(5 * GB, 2, None, 0, 6 * GB)
    ]


def test_holders_that_are_not_known() -> None:
    assert steps(growth(), (0, 0, None), (2, 5 * GB, {"a": 5 * GB})) == [Step(5 * GB, 2, None, 0, None)]
    assert steps(growth(), (0, 0, {}), (2, 5 * GB, None)) == [Step(5 * GB, 2, None, 0, None)]


def test_shares_that_are_not_told() -> None:
    over = growth()
    assert steps(over, (0, 0, {"a": None, "b": 0}), (2, 5 * GB, {"a": 4 * GB, "b": GB})) == [
        Step(5 * GB, 2, "b", GB, None)
    ]
    assert steps(over, (4, 10 * GB, {"a": None, "b": GB})) == [Step(5 * GB, 2, None, 0, None)]


def test_used_memory_that_is_not_known() -> None:
    over = growth()
    assert steps(over, (0, 0, {}), (2, None, {"a": 9 * GB}), (4, 5 * GB, {"a": 5 * GB})) == [
        Step(5 * GB, 4, "a", 5 * GB, 0)
    ]


def test_the_growth_of_each_over_the_window_goes_on_after_a_step() -> None:
    over = growth()
    over.add(0, None, None, None)
    over.add(1, 2, {"a": 1, "b": 1}, None)
    assert steps(over, (30, 9 * GB, {"a": 9 * GB})) != []
    assert over.grown({"a": 9 * GB, "b": 0, "c": 7, "d": None}) == {"a": 9 * GB - 1, "b": -1, "c": 7}
    over.add(70, 0, {"a": 5}, None)
    assert over.grown({"a": 9 * GB}) == {"a": 0}
    assert growth().grown({"a": 5}) == {}


def test_readings_in_any_number_take_bounded_room_and_keep_the_low() -> None:
    over = growth(600)
    for tick in range(6000):
        used = 0 if tick == 1234 else 3 * GB
        assert over.add(tick / 10, used, {"a": used}, 4 * GB) is None
    assert len(over._points) <= 66
    assert steps(over, (600, 4 * GB, {"a": 4 * GB})) == [Step(4 * GB, 600 - 123.4, "a", 4 * GB, 0)]


def test_parts_that_exceed_the_whole() -> None:
    assert [remainder(whole, 100, 1000) for whole in (130, 100, 90, 89)] == [30, 0, 0, None]
    assert [total(parts) for parts in ((), (1, 2), (1, None))] == [0, 3, None]


@given(
    st.lists(
        st.tuples(
            st.integers(1, 30),
            st.integers(0, 100),
            st.dictionaries(st.sampled_from("abc"), st.integers(0, 30)),
        )
    ),
    st.integers(1, 40),
)
def test_a_step_is_what_an_exhaustive_look_finds(readings: list[tuple[int, int, dict[str, int]]], least: int) -> None:
    over = growth(40)
    at = base = 0
    seen: list[tuple[int, int, dict[str, int]]] = []
    for gap, rest, shares in readings:
        at += gap
        used = rest + sum(shares.values())
        step = over.add(at, used, shares, least)
        window = [(u, s) for t, u, s in seen[base:] if t >= at - 40]
        rise = used - min((u for u, _ in window), default=used)
        assert (step is not None) == (rise >= least)
        if step is not None:
            assert step.bytes == rise
            base = len(seen)
            taken = [{k: v - s.get(k, 0) for k, v in shares.items()} for u, s in window if used - u == rise]
            assert step.share in [max([0, *each.values()]) for each in taken]
        seen.append((at, used, shares))
