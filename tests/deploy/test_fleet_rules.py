"""The rules that sum up a cluster and a fleet, by promtool of every generation that is found."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from e2e.prometheuses import Prometheus, on_each
from requires import needs

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy" / "prometheus"
LOCAL, OVERALL = DEPLOY / "fleet.rules.yml", DEPLOY / "fleet.global.rules.yml"
TESTS = [Path(__file__).with_name(name) for name in ("fleet.test.yml", "fleet.global.test.yml")]

pytestmark = needs("prometheus")


def promtool(which: Prometheus, *arguments: str) -> str:
    done = subprocess.run([which.promtool, *arguments], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def recorded(file: Path) -> set[str]:
    groups = yaml.safe_load(file.read_text())["groups"]
    return {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}


@on_each()
@pytest.mark.parametrize("file", [LOCAL, OVERALL], ids=lambda file: file.name)
def test_they_are_understood(which: Prometheus, file: Path) -> None:
    assert "rules found" in promtool(which, "check", "rules", "--lint-fatal", str(file))


@on_each()
@pytest.mark.parametrize("file", TESTS, ids=lambda file: file.name)
def test_they_say_what_was_worked_out_by_hand(which: Prometheus, file: Path) -> None:
    assert "SUCCESS" in promtool(which, "test", "rules", str(file))


@pytest.mark.parametrize(("file", "cases"), [(LOCAL, TESTS[0]), (OVERALL, TESTS[1])], ids=lambda file: file.name)
def test_each_recording_has_a_case(file: Path, cases: Path) -> None:
    names = recorded(file)
    asked = set(re.findall(r"expr: [^\n]*?((?:cluster|fleet):[\w:]+)", cases.read_text()))
    # What the windows of an alert are made of is asked through the alert.
    assert names - asked <= {f"fleet:oomcast_slo_violations:ratio_rate{window}" for window in ("30m", "6h")}


def test_the_global_rules_read_only_what_the_local_ones_record() -> None:
    """Anything else would take the series of every node where they are evaluated."""
    read = set(re.findall(r"\b(?:[a-z]+:)?oomcast_[\w:]+", re.sub("#.*", "", OVERALL.read_text())))
    names = {name for name in read if not name.startswith("fleet:")}
    assert names
    assert names <= recorded(LOCAL)
