"""What is told of an engine's objectives: from the gains of two histograms, over its whole life."""

from collections.abc import Mapping

import pytest

from collectors.engine.test_tell import Told
from oomcast.slo import LengthClass, Slo
from oomcast_collectors.engine.reading import Lengths, Reading

INF = float("inf")
SLO = Slo(classes=(LengthClass(up_to=2000, e2e=1.0, prior=0.5), LengthClass(e2e=10.0, prior=0.5)))


def page(short: tuple[int, int], long: tuple[int, int]) -> Reading:
    """Of vLLM, with so many short and long prompts that were in time, and that were not."""
    (short_fine, short_late), (long_fine, _) = short, long
    shorts, longs = sum(short), sum(long)
    lengths = Lengths(((2000.0, shorts), (INF, shorts + longs)), shorts * 1000 + longs * 50_000, shorts + longs)
    # A late short one takes 5 s, a long one in time 8 s, a late one 50 s.
    fast = (1.0, short_fine), (10.0, short_fine + short_late + long_fine), (INF, shorts + longs)
    e2e = Lengths(fast, 1.0, shorts + longs)
    return Reading("vllm", lengths=lengths, latencies={"e2e": e2e}, paired="e2e")


def by_class(samples: Mapping[str, object], name: str) -> list[object]:
    text = f"oomcast_slo_{name}{{'objective': 'e2e', 'source': 'histograms', 'up_to': '%s'}}"
    return [samples.get(text % up_to) for up_to in ("2000", "+Inf")]


def test_violations_are_counted_by_class_from_the_first_look_on() -> None:
    told = Told(SLO)
    # What it did before was nobody's to see.
    samples = told.take(page((100, 100), (100, 100)))
    assert by_class(samples, "requests_total") == [0, 0]
    assert by_class(samples, "objective_seconds") == [1, 10]
    told.take(page((101, 100), (100, 100)))
    told.take(page((101, 101), (100, 100)))
    samples = told.take(page((101, 101), (102, 101)))
    assert by_class(samples, "requests_total") == [2, 3]
    assert by_class(samples, "violations_total") == [1, 1]
    assert samples["oomcast_slo_violation_ratio{'objective': 'e2e', 'source': 'histograms'}"] == pytest.approx(2 / 5)


def test_they_stay_while_the_engine_is_down_and_go_on_after_a_restart() -> None:
    told = Told(SLO)
    told.take(page((0, 0), (0, 0)))
    told.take(page((5, 3), (0, 0)))
    samples = told.take(None)
    assert by_class(samples, "requests_total") == [8, 0]
    # All it counts has fallen to nothing, which is a restart; what it counts from then on is added.
    told.take(page((0, 0), (0, 0)))
    for _ in range(20):
        told.take(page((0, 0), (0, 0)))
    samples = told.take(page((1, 1), (0, 0)))
    assert by_class(samples, "requests_total") == [10, 0]
    assert by_class(samples, "violations_total") == [4, 0]


def test_a_restart_that_shows_in_no_total_makes_nothing_negative() -> None:
    """Eight long ones before, nine short ones after: one was gained in all, nine by the first bucket."""
    told = Told(SLO)
    told.take(page((0, 0), (0, 0)))
    told.take(page((0, 0), (4, 4)))
    told.clock.advance(4000)
    told.take(page((0, 0), (4, 4)))
    samples = told.take(page((5, 4), (0, 0)))
    assert by_class(samples, "requests_total") == [1, 8]
    assert samples["oomcast_slo_risk_score{'source': 'histograms'}"] == pytest.approx(0.019, abs=0.001)


def test_the_score_is_told_without_objectives_and_nothing_else() -> None:
    told = Told()
    told.take(page((0, 0), (0, 0)))
    samples = told.take(page((5, 3), (2, 0)))
    assert [name for name in samples if "slo" in name] == ["oomcast_slo_risk_score{'source': 'histograms'}"]


def test_the_risk_of_an_engine_that_is_gone_goes_with_the_window() -> None:
    told = Told(SLO)
    told.take(page((0, 0), (0, 0)))
    told.take(page((5, 3), (2, 0)))
    names = "violation_risk_ratio", "risk_score"
    samples = told.take(None)
    assert all(any(f"oomcast_slo_{name}" in series for series in samples) for name in names)
    told.clock.advance(3700)
    samples = told.take(None)
    assert not any(f"oomcast_slo_{name}" in series for series in samples for name in names)
    assert by_class(samples, "requests_total") == [8, 2]
