"""Settings: what is wrong with a rule is said with its name."""

from typing import Any

import pytest
from pydantic import ValidationError

from oomcast_collectors.engine_log.rules import SHIPPED
from oomcast_collectors.engine_log.settings import EngineLogSettings


def with_rule(**rule: Any) -> EngineLogSettings:
    return EngineLogSettings.model_validate({"rules": [{"name": "own", "contains": ["mark"], **rule}]})


def test_by_default_nothing_is_followed_and_the_rules_are_the_shipped_ones() -> None:
    settings = EngineLogSettings.model_validate({})
    assert (settings.files, settings.units, settings.containers) == ((), (), False)
    assert tuple(settings.all_rules()) == SHIPPED


def test_rules_are_added_and_replaced_by_name() -> None:
    own = with_rule(numbers={"count": r"n=(\d{1,9})"}, severity="critical").all_rules()
    assert [rule.name for rule in own] == [*(rule.name for rule in SHIPPED), "own"]
    assert (own[-1].severity, own[-1].numbers) == ("critical", {"count": r"n=(\d{1,9})"})
    replaced = with_rule(name="panic").all_rules()
    assert len(replaced) == len(SHIPPED)
    assert next(rule for rule in replaced if rule.name == "panic").contains == ("mark",)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"regex": "("}, r"rule own: regex: no regular expression: missing \), unterminated subpattern"),
        ({"regex": "(a+)+b"}, r"rule own: regex: could take for ever; bound what repeats, as in \\d\{1,10\}"),
        ({"numbers": {"n": "["}}, "rule own: n: no regular expression: unterminated character set"),
        ({"numbers": {"rule": "(1)"}}, "rule own: numbers: rule is the name of another field"),
        ({"numbers": {"N": "(1)"}}, "should match pattern"),
        ({"contains": []}, "at least 1 item"),
        ({"contains": ["ab"]}, "at least 3 characters"),
        ({"contains": ["ab\ncd"]}, "should match pattern"),
        ({"name": "Own Rule"}, "should match pattern"),
        ({"severity": "bad"}, "Input should be 'critical', 'warning' or 'info'"),
    ],
)
def test_a_bad_rule(rule: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        with_rule(**rule)


def test_two_rules_of_one_name() -> None:
    rules = [{"name": "own", "contains": ["mark"]}] * 2
    with pytest.raises(ValidationError, match="rule own: is there more than once"):
        EngineLogSettings.model_validate({"rules": rules})


@pytest.mark.parametrize(
    "settings",
    [
        {"files": [{"engine": "a", "paths": ["relative.log"]}]},
        {"files": [{"engine": "a", "paths": ["/a\0b"]}]},
        {"files": [{"engine": "", "paths": ["/a"]}]},
        {"files": [{"engine": "a", "paths": []}]},
        {"units": [{"unit": "-x --merge"}]},
        {"units": [{"unit": "a*"}]},
    ],
)
def test_a_bad_source(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        EngineLogSettings.model_validate(settings)


def test_a_unit_is_called_as_it_is_or_as_it_is_told() -> None:
    units = [{"unit": "vllm.service"}, {"unit": "vllm@8000.service", "engine": "big"}]
    settings = EngineLogSettings.model_validate({"units": units})
    assert [unit.name for unit in settings.units] == ["vllm", "big"]
