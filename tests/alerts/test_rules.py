"""The rules, by promtool: of every generation that is found, and for jobs of other names."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from alerts.shipped import ALERTS, FIRING, RECORDED, ROOT, RULES, RULES_FILE, TESTS, cases, title
from e2e.prometheuses import Prometheus, on_each
from requires import needs

pytestmark = needs("prometheus")

SECONDS = 240


CALM = {**os.environ, "GOGC": "400"}
"""A third of promtool's time would go into looking for garbage."""

BY_JOB = [file for file in TESTS if re.search(r"series: *'?(up|process_\w+)\{", file.read_text())]
"""Those about rules that choose by job."""


def promtool(which: Prometheus | str, *arguments: str) -> str:
    program = which if isinstance(which, str) else which.promtool
    done = subprocess.run([program, *arguments], env=CALM, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rules(*options: str) -> str:
    argv = [sys.executable, "-m", "oomcast", "rules", *options]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout


@on_each()
@pytest.mark.parametrize("options", [(), ("--scale", "20"), ("--match", 'env="prod"', "--node-labels", "instance")])
def test_every_rule_is_understood(which: Prometheus, options: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "rules.yml"
    file.write_text(rules(*options))
    assert f"SUCCESS: {len(RULES)} rules found" in promtool(which, "check", "rules", "--lint-fatal", str(file))


@on_each()
@pytest.mark.parametrize("file", TESTS, ids=lambda file: file.name.removesuffix(".test.yml"))
def test_each_fires_and_rests_as_written_by_hand(which: Prometheus, file: Path) -> None:
    assert "SUCCESS" in promtool(which, "test", "rules", str(file))


@pytest.mark.parametrize("file", BY_JOB, ids=lambda file: file.name.removesuffix(".test.yml"))
def test_a_job_of_another_name_changes_nothing(file: Path, tmp_path: Path) -> None:
    text = file.read_text()
    assert 'job="oomcast"' in text
    (tmp_path / "oomcast.rules.yml").write_text(rules("--job", "memory-watch"))
    renamed = tmp_path / "tests" / file.name
    renamed.parent.mkdir()
    renamed.write_text(text.replace('job="oomcast"', 'job="memory-watch"'))
    assert "SUCCESS" in promtool("promtool", "test", "rules", str(renamed))


def test_no_other_rule_chooses_by_job() -> None:
    named = {rule["alert"] for rule in FIRING if "job=" in rule["expr"]}
    shown = {case.alert for case in cases(BY_JOB)}
    assert named <= shown
    assert BY_JOB


def test_what_is_committed_is_what_is_generated() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "generate.py", "--check"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "grafana")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("", 0)


@pytest.mark.parametrize("rule", FIRING, ids=title)
def test_the_tests_of_each_show_what_they_should(rule: dict[str, object]) -> None:
    labels = rule["labels"]
    assert isinstance(labels, dict)
    if labels["severity"] == "none":
        return
    shown = set[str]().union(
        *(one.shows for one in cases() if (one.alert, one.severity) == (rule["alert"], labels["severity"]))
    )
    wanted = {"fires", "resolves", "missing"}
    wanted |= {"shorter"} if "for" in rule else set()
    wanted |= {"reset"} if re.search(r"_total\b", str(rule["expr"])) else set()
    wanted |= {"stale"} if labels["severity"] == "critical" else set()
    assert wanted - shown == set()


def test_the_tests_name_alerts_that_exist() -> None:
    names = {(rule["alert"], rule["labels"]["severity"]) for rule in FIRING}
    assert {(one.alert, one.severity) for one in cases()} <= names


def test_the_operator_gets_the_same_rules(tmp_path: Path) -> None:
    import yaml

    resource = yaml.safe_load((ALERTS / "prometheusrule.yaml").read_text())
    assert (resource["apiVersion"], resource["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert resource["spec"] == yaml.safe_load(RULES_FILE.read_text())
    assert len(RECORDED) + len(FIRING) == len(RULES)
