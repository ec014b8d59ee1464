"""Length classes, their objectives and priors, and the score of a prompt by its length."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from oomcast.slo import LengthClass, RiskScore, Slo


def test_the_default_classes() -> None:
    classes = Slo().classes
    assert [one.up_to for one in classes] == [512, 2048, 65_536, 131_072, 200_000, None]
    assert [one.assumed for one in classes] == [0.00001, 0.012, 0.386, 0.386, 0.386, 0.386]
    assert {one.objective(which) for one in classes for which in ("ttft", "e2e")} == {None}


def test_a_class_is_taken_for_as_bad_as_its_longest_prompts_unless_it_is_told() -> None:
    assert LengthClass(up_to=513).assumed == 0.012
    assert LengthClass(up_to=2049).assumed == 0.386
    assert LengthClass(prior=0.5).assumed == 0.5
    assert LengthClass(up_to=100_000, prior=0).assumed == 0


def test_its_objectives() -> None:
    one = LengthClass(ttft=0.5, e2e=10)
    assert (one.objective("ttft"), one.objective("e2e")) == (0.5, 10)


@pytest.mark.parametrize(
    ("tokens", "score"),
    [(0, 0), (512, 0), (1280, 0.01), (2048, 0.02), (2049, 0.386772), (2525, 1), (1e9, 1), (float("inf"), 1)],
)
def test_the_score_by_hand(tokens: float, score: float) -> None:
    """0.386 * 1.002^476 is 0.999, and one token more makes it more than 1."""
    assert RiskScore().score(tokens) == pytest.approx(score)


def test_the_score_reaches_1_at_2525_tokens() -> None:
    assert RiskScore().score(2524) < 1 == RiskScore().score(2525)


@given(st.floats(0, 1e7), st.floats(0, 1e7), st.floats(0, 1), st.floats(0, 1), st.floats(1, 2))
def test_the_score_is_a_share_that_rises_with_length(a: float, b: float, x: float, y: float, growth: float) -> None:
    score = RiskScore(ramp=min(x, y), jump=max(x, y), growth=growth).score
    assert 0 <= score(min(a, b)) <= score(max(a, b)) <= 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"classes": []},
        {"classes": [{"up_to": 512}]},
        {"classes": [{}, {}]},
        {"classes": [{"up_to": 512}, {"up_to": 512}, {}]},
        {"classes": [{"up_to": 600}, {"up_to": 512}, {}]},
        {"classes": [{"up_to": 0}, {}]},
        {"classes": [{"ttft": 0}]},
        {"classes": [{"e2e": -1}]},
        {"classes": [{"prior": 1.5}]},
        {"classes": [{"slow": 1}]},
        {"risk_score": {"calm": 512, "knee": 512}},
        {"risk_score": {"growth": 0.9}},
    ],
)
def test_what_is_refused(wrong: object) -> None:
    with pytest.raises(ValidationError):
        Slo.model_validate(wrong)
