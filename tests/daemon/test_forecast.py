"""Time to exhaustion on made histories with known answers."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomcast.contract import Level
from oomcast.forecast import Forecaster
from oomcast.trend import Trend, theil_sen

MIB = 1 << 20


def level(used: float, capacity: float = 1000 * MIB, name: str = "/a", within: str = "", identity: int = 1) -> Level:
    return Level("cgroup_memory", (("cgroup", name),), used, capacity, identity, within, noise=4 * MIB)


def remaining(forecaster: Forecaster) -> dict[str, float]:
    return {dict(s.series.labels)["cgroup"]: s.value for s in forecaster.samples() if isinstance(s.value, float)}


def test_a_linear_ramp_is_forecast_exactly_from_its_fourth_second_on() -> None:
    forecaster = Forecaster()
    for second in range(20):
        forecaster.observe("cgroup", [level(100 * MIB + 20 * MIB * second)], float(second), whole=True)
        if second >= 3:
            assert remaining(forecaster)["/a"] == pytest.approx((900 - 20 * second) / 20)
        else:
            assert remaining(forecaster) == {}


def test_a_ramp_that_begins_after_a_long_rest_is_right_within_five_seconds() -> None:
    forecaster = Forecaster()
    for second in range(120):
        forecaster.observe("cgroup", [level(100 * MIB)], float(second), whole=True)
    assert remaining(forecaster) == {"/a": math.inf}
    for second in range(1, 6):
        forecaster.observe("cgroup", [level((100 + 80 * second) * MIB)], 119.0 + second, whole=True)
    assert remaining(forecaster)["/a"] == pytest.approx(500 / 80)


def test_noise_and_a_sawtooth_never_run_out() -> None:
    forecaster = Forecaster()
    rng = random.Random(7)
    for second in range(300):
        forecaster.observe("cgroup", [level(500 * MIB + rng.random() * 4 * MIB)], float(second), whole=True)
        if second > 3:
            assert remaining(forecaster) == {"/a": math.inf}


def test_a_slow_leak_shows_in_the_coarse_window() -> None:
    forecaster = Forecaster()
    for second in range(600):
        forecaster.observe("cgroup", [level(100 * MIB + 0.1 * MIB * second)], float(second), whole=True)
    assert remaining(forecaster)["/a"] == pytest.approx((900 - 0.1 * 599) / 0.1, rel=0.01)


def test_a_load_that_ended_a_minute_ago_is_no_trend() -> None:
    forecaster = Forecaster()
    for second in range(240):
        used = min(second, 60) * 10 * MIB
        forecaster.observe("cgroup", [level(used)], float(second), whole=True)
        if second > 130:
            assert remaining(forecaster) == {"/a": math.inf}


def test_of_nested_limits_only_the_binding_one_has_a_series_and_it_does_not_flap() -> None:
    forecaster = Forecaster()
    for second in range(20):
        used = 20 * MIB * second
        pod = level(used + 10 * MIB, 600 * MIB, "/pod")
        container = level(used, 590 * MIB + (second % 2) * 2 * MIB, "/pod/c", within="/pod")
        forecaster.observe("cgroup", [pod, container], float(second), whole=True)
        assert len(remaining(forecaster)) <= 1
    first = set(remaining(forecaster))
    forecaster.observe(
        "cgroup", [level(400 * MIB, 420 * MIB, "/pod"), level(390 * MIB, 900 * MIB, "/pod/c", "/pod")], 20.0, whole=True
    )
    assert set(remaining(forecaster)) == {"/pod"}
    assert len(first) == 1


def test_two_containers_of_a_pod_each_have_their_own_binding_limit() -> None:
    forecaster = Forecaster()
    for second in range(6):
        forecaster.observe(
            "cgroup",
            [
                level(50 * MIB * second, 10_000 * MIB, "/pod"),
                level(20 * MIB * second, 500 * MIB, "/pod/a", "/pod"),
                level(30 * MIB * second, 500 * MIB, "/pod/b", "/pod"),
            ],
            float(second),
            whole=True,
        )
    assert remaining(forecaster) == pytest.approx({"/pod/a": 400 / 20, "/pod/b": 350 / 30})


def test_a_cgroup_made_anew_at_the_same_path_starts_without_a_past() -> None:
    forecaster = Forecaster()
    for second in range(10):
        forecaster.observe("cgroup", [level(50 * MIB * second)], float(second), whole=True)
    forecaster.observe("cgroup", [level(900 * MIB, identity=2)], 10.0, whole=True)
    assert remaining(forecaster) == {}


def test_a_level_that_went_away_has_no_series_and_a_partial_reading_takes_none_away() -> None:
    forecaster = Forecaster()
    for second in range(6):
        forecaster.observe("cgroup", [level(0, name="/a"), level(0, name="/b")], float(second), whole=True)
    forecaster.observe("cgroup", [level(MIB, name="/a")], 6.5, whole=False)
    assert set(remaining(forecaster)) == {"/a", "/b"}
    forecaster.observe("cgroup", [level(MIB, name="/a")], 7.0, whole=True)
    assert set(remaining(forecaster)) == {"/a"}
    forecaster.pause("cgroup")
    assert remaining(forecaster) == {}
    forecaster.observe("cgroup", [level(MIB, name="/a")], 8.0, whole=True)
    assert set(remaining(forecaster)) == {"/a"}


def test_above_its_limit_the_time_is_zero_while_it_rises() -> None:
    forecaster = Forecaster()
    for second in range(6):
        forecaster.observe("cgroup", [level(990 * MIB + 10 * MIB * second)], float(second), whole=True)
    assert remaining(forecaster) == {"/a": 0.0}


@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1e15)), max_size=300))
def test_any_history_gives_a_rise_that_is_a_number_and_not_negative(points: list[tuple[float, float]]) -> None:
    trend = Trend()
    for at, used in points:
        trend.add(at, used)
    if trend.known():
        rise = trend.rise(4096)
        assert rise >= 0
        assert not math.isnan(rise)


def test_one_bad_reading_does_not_bend_the_slope() -> None:
    points = [(float(i), 10.0 * i) for i in range(12)]
    points[6] = (6.0, 5000.0)
    assert theil_sen(points) == pytest.approx(10.0)


@pytest.mark.parametrize("slow", [1.0, 5.0, 15.0])
def test_a_level_that_is_suddenly_read_ten_times_a_second_stays_known_and_exact(slow: float) -> None:
    trend = Trend()
    at = 0.0
    for _ in range(40):
        trend.add(at, MIB * at)
        at += slow
    for _ in range(300):
        at += 0.1
        trend.add(at, MIB * at)
        assert trend.known()
        assert trend.rise(4 * MIB) == pytest.approx(MIB)


def test_a_rise_that_ended_is_forgotten() -> None:
    trend = Trend()
    rising = []
    for second in range(1000):
        trend.add(float(second), min(second, 100) * MIB)
        if trend.known() and trend.rise(4 * MIB) > 0:
            rising.append(second)
    assert rising[:96] == list(range(5, 101))
    assert rising[-1] < 400
