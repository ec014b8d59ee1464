import re
from pathlib import Path

import pytest
import yaml

from daemon.settings_cases import SPECS, loaded
from oomcast.example import example
from oomcast.settings import SettingsError, load
from oomcast_collectors.all import ALL

DOCUMENT = Path(__file__).parents[2] / "docs" / "oomcast.example.yaml"


def uncommented(text: str) -> str:
    return re.sub(r"^(\s*)#(?=\S)", r"\1", text, flags=re.MULTILINE)


def test_it_is_the_defaults_with_and_without_its_comments(tmp_path: Path) -> None:
    text = example(SPECS)
    assert loaded(tmp_path, text) == load(None, {}, SPECS)
    assert loaded(tmp_path, uncommented(text)) == load(None, {}, SPECS)


ENDS = (512, 2048, 65_536, 131_072, 200_000)
"""What the length classes have set by default; what is not set is not shown."""


def test_every_key_is_in_it() -> None:
    values = yaml.safe_load(uncommented(example(SPECS)))
    defaults = load(None, {}, SPECS).model_dump(mode="json")
    assert values == defaults | {"slo": defaults["slo"] | {"classes": [{"up_to": end} for end in ENDS] + [{}]}}


def test_a_key_has_its_meaning_its_limits_and_its_variable() -> None:
    text = example(SPECS)
    interval = """\
    # seconds between two runs
    # (number, at least 0.2; OOMCAST_COLLECTORS__ENGINES__INTERVAL)
    #interval: 2.0
"""
    limits = """\
    # what is too much
    limits:
      # share
      # (number, 0 to 1; OOMCAST_COLLECTORS__ENGINES__LIMITS__RATIO)
      #ratio: 0.5
      # levels
      # (whole number, above 0; OOMCAST_COLLECTORS__ENGINES__LIMITS__DEPTH)
      #depth: 3
"""
    assert interval in text
    assert limits in text
    assert "(list of mapping of url, kind; OOMCAST_COLLECTORS__ENGINES__TARGETS)" in text
    assert "(one of debug, info, warning, error; OOMCAST_LOG__LEVEL)" in text
    assert "(path or null; OOMCAST_HTTP__WEB_CONFIG)" in text
    assert "(true or false; OOMCAST_COLLECTORS__CGROUP__ENABLED)" in text


def test_the_variables_in_it_are_read() -> None:
    names = re.findall(r"OOMCAST_\w+(?=\)$)", example(SPECS), re.MULTILINE)
    with pytest.raises(SettingsError) as caught:
        load(None, dict.fromkeys(names, "\x01"), SPECS)
    assert [problem.message for problem in caught.value.problems] == ["holds the character '\\x01'"] * len(names)
    assert {problem.place.source for problem in caught.value.problems} == set(names)


def test_the_documented_one_is_current(request: pytest.FixtureRequest) -> None:
    text = example(ALL)
    if request.config.getoption("--update-golden"):
        DOCUMENT.write_text(text)
    assert DOCUMENT.read_text() == text, f"{DOCUMENT.name} is not current: pytest --update-golden"
