"""From what histograms gained to the series of an engine."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from collectors.slo.books import SLO, WINDOW, values
from oomcast.slo import LengthClass, Objective, Slo
from oomcast_collectors.slo.book import Book
from oomcast_collectors.slo.classes import Bin
from oomcast_collectors.slo.histograms import Histograms

INF = math.inf


class Gain(NamedTuple):
    edges: Sequence[float]
    bins: Sequence[Bin]


LENGTHS = [(0.0, 512.0, 2.0), (512.0, 2048.0, 1.0)]
E2E = Gain((10.0, 75.0, INF), [(0.0, 10.0, 2.0), (75.0, INF, 1.0)])
TTFT = Gain((1.0, 5.0, INF), [(0.0, 1.0, 6.0), (1.0, 5.0, 2.0), (5.0, INF, 1.0)])


def told(
    slo: Slo, latencies: Mapping[Objective, Gain], paired: Objective | None, lengths: Sequence[Bin] = LENGTHS
) -> Mapping[Objective, Mapping[str, float]]:
    book = Book(slo, "llama", "histograms", WINDOW)
    histograms = Histograms(slo, book)
    histograms.look(lengths, latencies, paired, 0.0)
    samples = book.samples(0.0, shares=[2, 1, 0] if len(slo.classes) == 3 else None)
    return {"ttft": values(samples, "ttft"), "e2e": values(samples, "e2e")}


def test_what_is_paired_is_told_by_class_and_the_other_as_a_share_alone() -> None:
    found = told(SLO, {"ttft": TTFT, "e2e": E2E}, "e2e")
    assert found["ttft"] == {"violation_ratio": 1 / 9}
    assert found["e2e"]["requests_total 512"] == 2
    assert 0 < found["e2e"]["violations_total 512"] < 1
    assert found["e2e"]["objective_seconds +Inf"] == 75.0
    assert "violation_risk_ratio" in found["e2e"]
    assert "requests_total 2048" not in found["e2e"]


def test_a_gateway_may_pair_the_first_token() -> None:
    lengths = [(0.0, 512.0, 6.0), (512.0, 2048.0, 2.0), (2048.0, INF, 1.0)]
    found = told(SLO, {"ttft": TTFT, "e2e": E2E}, "ttft", lengths)
    assert found["ttft"]["requests_total 2048"] == 2
    assert found["ttft"]["objective_seconds 2048"] == 5.0
    assert found["e2e"] == {}


def test_without_a_pair_there_is_no_risk_and_no_counter_by_class() -> None:
    whole = Slo(classes=(LengthClass(up_to=512, e2e=9), LengthClass(e2e=70)))
    assert told(whole, {"e2e": E2E}, None)["e2e"] == {"violation_ratio": 1 / 3}
    assert told(SLO, {"e2e": E2E}, None)["e2e"] == {}


def test_without_a_finite_bucket_at_the_objective_the_class_has_no_series() -> None:
    found = told(SLO, {"e2e": Gain((10.0, 20.0, INF), [])}, "e2e", [])
    assert found["e2e"].keys() == {
        "violation_risk_ratio",
        *(f"{name} 512" for name in ("requests_total", "violations_total", "predicted_violations_total")),
        "objective_seconds 512",
    }


def test_without_objectives_nothing_is_told() -> None:
    assert told(Slo(), {"ttft": TTFT, "e2e": E2E}, "e2e") == {"ttft": {}, "e2e": {}}
