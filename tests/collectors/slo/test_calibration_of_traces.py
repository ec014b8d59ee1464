"""What docs/slo.md says of the calibration on real traces: the table, and the bounds that its prose states.

Of the two traces the one that takes less time is played again.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from oomcast_collectors.engine.settings import EngineSettings

ROOT = Path(__file__).parent.parent.parent.parent


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = ROOT / "scripts" / "calibrate.py"
    spec = importlib.util.spec_from_file_location("calibrate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Where dataclasses look their module up.
    sys.modules["calibrate"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def outcome(script: ModuleType) -> Any:
    return script.replayed(script.ALL[0])


def page() -> str:
    return (ROOT / "docs" / "slo.md").read_text()


def test_the_table_is_what_the_script_computes(script: ModuleType, outcome: Any) -> None:
    mooncake, azure = script.ALL
    section = page().partition(script.BEGIN)[2].partition(script.END)[0]
    computed = script.part(mooncake, outcome)
    assert section.startswith(computed)
    assert section.removeprefix(computed).startswith(f"\n**{azure.title}**")


def test_each_request_is_counted_by_both_sources_and_known_in_truth(outcome: Any) -> None:
    assert sum(count.requests for count in outcome.whole.truth.values()) == 6015
    assert sum(count.requests for count in outcome.whole.histograms.values()) == pytest.approx(6015, rel=0.001)
    assert {name: count[:2] for name, count in outcome.whole.requests.items()} == {
        name: count[:2] for name, count in outcome.whole.truth.items()
    }


def test_the_second_half_is_half(outcome: Any) -> None:
    for counts in outcome.second[1:]:
        assert sum(count.requests for count in counts.values()) == pytest.approx(6015 / 2, rel=0.01)


def test_learned_classes_are_calibrated(script: ModuleType, outcome: Any) -> None:
    for counts in outcome.second[1:]:
        assert script.total(counts).ratio == pytest.approx(1, abs=0.1)
        assert {name: counts[name].ratio for name in ("2048", "8192", "32768")} == {
            name: pytest.approx(1, abs=0.15) for name in ("2048", "8192", "32768")
        }


def test_the_priors_are_seen_where_they_have_a_part(outcome: Any) -> None:
    """A class with too low a prior, learned since, and one with too high a prior that it never gets rid of."""
    assert outcome.whole.requests["2048"].ratio > 1.5
    assert outcome.second.requests["131072"].ratio < 0.5


def test_attributed_violations_are_near_the_truth(script: ModuleType, outcome: Any) -> None:
    truth, found = outcome.whole.truth, outcome.whole.histograms
    assert script.total(found).violations == pytest.approx(script.total(truth).violations, rel=0.02)
    for name in ("2048", "8192", "32768"):
        assert found[name].violations == pytest.approx(truth[name].violations, rel=0.08)


def test_the_score_is_far_from_the_share_that_missed(script: ModuleType, outcome: Any) -> None:
    whole = script.total(outcome.whole.truth)
    assert outcome.score - whole.violations / whole.requests > 0.2


def test_a_ratio_needs_one_predicted(script: ModuleType) -> None:
    assert script.Count(10, 1, 0.99).ratio is None
    assert script.Count(10, 3, 2).ratio == 1.5


def test_looks_are_as_often_as_by_default(script: ModuleType) -> None:
    assert EngineSettings.model_validate({}).period == script.PERIOD


def test_objectives_are_bounds_of_the_histogram(script: ModuleType) -> None:
    from simulator.histograms import SECONDS

    assert {one.e2e for one in script.SLO.classes} - {None} <= set(SECONDS)


def test_a_page_without_the_markers_is_not_written(script: ModuleType) -> None:
    with pytest.raises(ValueError, match="no section between"):
        script.replaced("# Objectives\n", "")
