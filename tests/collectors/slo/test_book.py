"""The account of one engine."""

import math
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.slo.books import LONG, MIDDLE, SHORT, SLO, WINDOW, values
from fakes import FakeClock
from oomcast.slo import CLASSES, LengthClass, Slo
from oomcast_collectors.slo.book import Book


def requests(slo: Slo = SLO) -> Book:
    return Book(slo, "llama", "requests", WINDOW)


def test_a_book_begins_with_counters_at_nothing_and_the_objectives() -> None:
    assert values(requests().samples(0.0), "e2e") == {
        "requests_total 512": 0,
        "violations_total 512": 0,
        "predicted_violations_total 512": 0,
        "objective_seconds 512": 10.0,
        "requests_total +Inf": 0,
        "violations_total +Inf": 0,
        "predicted_violations_total +Inf": 0,
        "objective_seconds +Inf": 60.0,
    }


def test_series_name_engine_objective_source_and_class() -> None:
    heads = {sample.series.head.strip() for sample in requests().samples(0.0)}
    assert 'oomcast_slo_requests_total{engine="llama",objective="ttft",source="requests",up_to="2048"}' in heads
    assert 'oomcast_slo_requests_total{engine="llama",objective="e2e",source="requests",up_to="+Inf"}' in heads


def test_values_by_hand() -> None:
    """Two short requests and one long: the second short one is predicted by a rate that knows the first."""
    book = requests()
    book.request(512, 1.0, 10.1, 0.0)
    book.request(1, 1.1, 9.9, 1.0)
    book.request(513, 2.0, 1e6, 2.0)
    book.request(2049, 4.1, 60.1, 3.0)
    first = 0.999 * 0.001 + 0.001 * 1.0
    short = 0.998 * 0.001 + 0.002 * 0.5
    long = 0.999 * 0.4 + 0.001 * 1.0
    found = values(book.samples(4.0), "e2e")
    assert found == pytest.approx(
        {
            "risk_score": (0.02 / 1536 + 0.386 * 1.002) / 4,
            "violation_risk_ratio": (2 * short + long) / 3,
            "violation_ratio": 2 / 3,
            "requests_total 512": 2,
            "violations_total 512": 1,
            "predicted_violations_total 512": 0.001 + first,
            "objective_seconds 512": 10.0,
            "requests_total +Inf": 1,
            "violations_total +Inf": 1,
            "predicted_violations_total +Inf": 0.4,
            "objective_seconds +Inf": 60.0,
        }
    )
    found = values(book.samples(4.0), "ttft")
    assert [found[f"violations_total {up_to}"] for up_to in ("512", "2048", "+Inf")] == [1, 0, 1]


def test_what_failed_missed_each_objective_of_its_class() -> None:
    book = requests()
    book.request(100, None, None, 0.0, failed=True)
    book.request(1000, 0.1, 0.1, 0.0, failed=True)
    ttft, e2e = values(book.samples(1.0), "ttft"), values(book.samples(1.0), "e2e")
    assert [ttft["violations_total 512"], ttft["violations_total 2048"]] == [1, 1]
    assert e2e["violations_total 512"] == e2e["requests_total 512"] == 1
    assert "requests_total 2048" not in e2e


def test_a_latency_that_is_not_told_does_not_count() -> None:
    book = requests()
    book.request(100, None, 11.0, 0.0)
    assert values(book.samples(1.0), "ttft")["requests_total 512"] == 0
    assert values(book.samples(1.0), "e2e")["violations_total 512"] == 1


def test_calibration_needs_one_predicted_violation() -> None:
    book = Book(Slo(classes=(LengthClass(prior=0.25, e2e=1.0),)), "llama", "requests", WINDOW)
    for _ in range(3):
        book.request(1, None, 2.0, 0.0)
    assert "calibration_ratio" not in values(book.samples(0.0), "e2e")
    for _ in range(3):
        book.request(1, None, 2.0, 0.0)
    found = values(book.samples(0.0), "e2e")
    assert found["calibration_ratio"] == pytest.approx(6 / found["predicted_violations_total +Inf"])


def test_good_rates_are_calibrated() -> None:
    """One of five above the objective, for long: the window has as many as were predicted."""
    book, clock = requests(), FakeClock()
    for number in range(20_000):
        book.request(5000, 1.0, 61.0 if number % 5 == 0 else 1.0, clock.mono)
        clock.advance(1)
    found = values(book.samples(clock.mono), "e2e")
    assert found["calibration_ratio"] == pytest.approx(1, abs=0.01)
    assert found["violation_risk_ratio"] == pytest.approx(0.2, abs=0.001)
    assert found["violation_ratio"] == pytest.approx(0.2, abs=0.001)


def test_the_window_forgets_and_counters_do_not() -> None:
    book = requests()
    for _ in range(10):
        book.request(5000, 9.0, 99.0, 0.0)
    found = values(book.samples(WINDOW + 120), "e2e")
    assert not found.keys() & {"risk_score", "violation_risk_ratio", "violation_ratio", "calibration_ratio"}
    assert found["violations_total +Inf"] == 10


def test_without_an_objective_there_is_the_score_alone() -> None:
    book = requests(Slo())
    assert book.samples(0.0) == []
    book.request(2048, 1e9, 1e9, 0.0, failed=True)
    assert values(book.samples(0.0), "e2e") == {"risk_score": 0.02}


def test_classes_without_the_objective_have_no_part_in_the_risk() -> None:
    book = requests()
    for _ in range(99):
        book.request(1000, None, None, 0.0)
    assert "violation_risk_ratio" not in values(book.samples(0.0), "e2e")
    book.request(5000, None, None, 0.0)
    assert values(book.samples(0.0), "e2e")["violation_risk_ratio"] == 0.4


def histograms() -> Book:
    book = Book(SLO, "llama", "histograms", WINDOW)
    book.limits("e2e", [10.0, None, 75.0])
    return book


def test_counted_requests_of_histograms() -> None:
    book = histograms()
    book.counted("e2e", [10.5, 3.0, 2.0], [0.5, 1.0, 1.0], 0.0)
    found = values(book.samples(1.0, shares=[0.5, 0.25, 0.25], score=0.3), "e2e")
    short = (1 - 0.0105) * 0.001 + 0.0105 * 0.5 / 10.5
    long = 0.998 * 0.4 + 0.002 * 0.5
    assert found == pytest.approx(
        {
            "risk_score": 0.3,
            "violation_risk_ratio": (0.5 * short + 0.25 * long) / 0.75,
            "violation_ratio": 1.5 / 12.5,
            "requests_total 512": 10.5,
            "violations_total 512": 0.5,
            "predicted_violations_total 512": 0.0105,
            "objective_seconds 512": 10.0,
            "requests_total +Inf": 2.0,
            "violations_total +Inf": 1.0,
            "predicted_violations_total +Inf": 0.8,
            "objective_seconds +Inf": 75.0,
        }
    )
    assert values(book.samples(1.0), "ttft") == {}


def test_observed_requests_have_a_share_and_nothing_else() -> None:
    book = Book(SLO, "llama", "histograms", WINDOW)
    book.observed("ttft", 8, 2, 0.0)
    assert values(book.samples(1.0, shares=[1, 1, 1]), "ttft") == {"violation_ratio": 0.25}


def test_no_more_violations_than_requests() -> None:
    book = histograms()
    book.counted("e2e", [1.0, 0.0, 0.0], [1.0 + 1e-9, 1e-9, 1e-9], 0.0)
    book.observed("ttft", 1.0, 2.0, 0.0)
    found = values(book.samples(1.0), "e2e")
    assert (found["violations_total 512"], found["violations_total +Inf"]) == (1.0, 0.0)
    assert values(book.samples(1.0), "ttft")["violation_ratio"] == 1.0


def test_series_are_made_once() -> None:
    book = requests()
    book.request(5000, 9.0, 99.0, 0.0)
    assert [one.series for one in book.samples(0.0)] == [one.series for one in book.samples(1.0)]


def test_memory_does_not_depend_on_the_number_of_requests() -> None:
    slo = Slo(classes=tuple(one.model_copy(update={"ttft": 1.0, "e2e": 2.0}) for one in CLASSES))
    book = requests(slo)
    tracemalloc.start()
    try:
        for number in range(20_000):
            book.request(number % 300_000, 0.5, 3.0, number / 2)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < 50_000


_LATENCY = st.one_of(st.none(), st.floats(0, 100))
_REQUEST = st.tuples(st.integers(0, 5000), _LATENCY, _LATENCY, st.booleans())


@settings(deadline=None)
@given(st.lists(_REQUEST, max_size=60))
def test_any_requests(told: list[tuple[int, float | None, float | None, bool]]) -> None:
    book, before = requests(), {"ttft": dict[str, float](), "e2e": dict[str, float]()}
    for second, (tokens, ttft, e2e, failed) in enumerate(told):
        book.request(tokens, ttft, e2e, float(second), failed)
        for objective, last in before.items():
            found = values(book.samples(float(second)), objective)
            shares = [value for name, value in found.items() if name.endswith(("_ratio", "_score"))]
            assert min(shares, default=0) >= 0
            assert all(0 <= found.get(name, 0) <= 1 for name in ("violation_risk_ratio", "violation_ratio"))
            for name, value in found.items():
                if "_total" in name:
                    assert value >= last.get(name, 0)
            for up_to in ("512", "2048", "+Inf"):
                seen = found.get(f"requests_total {up_to}", 0)
                assert found.get(f"violations_total {up_to}", 0) <= seen
                assert found.get(f"predicted_violations_total {up_to}", 0) <= seen
            before[objective] = found


@settings(deadline=None)
@given(st.lists(st.just(0.0) | st.floats(1e-6, 1e6), min_size=3, max_size=3))
def test_the_risk_is_between_the_rates(shares: list[float]) -> None:
    risk = values(requests().samples(0.0, shares=shares), "ttft").get("violation_risk_ratio")
    priors = [one.assumed for one in (SHORT, MIDDLE, LONG)]
    if sum(shares) == 0:
        assert risk is None
    else:
        assert risk is not None
        assert min(priors) * (1 - 1e-9) <= risk <= max(priors) * (1 + 1e-9)
        assert math.isclose(risk, sum(a * b for a, b in zip(shares, priors, strict=True)) / sum(shares))
