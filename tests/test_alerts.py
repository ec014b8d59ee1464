"""The alert rules: what promtool says of them, and what it does not look at."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from oomcast.core import CORE_METRICS
from oomcast_collectors.all import ALL
from requires import needs

ALERTS = Path(__file__).parents[1] / "alerts"
RULES_FILE = ALERTS / "oomcast.rules.yml"
RULES: list[Mapping[str, Any]] = [
    rule for group in yaml.safe_load(RULES_FILE.read_text())["groups"] for rule in group["rules"]
]
NAMES = [rule["alert"] for rule in RULES]
METRICS = {metric.name for metric in CORE_METRICS} | {m.name for spec in ALL for m in spec.metrics}


def promtool(*arguments: str) -> str:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs("prometheus")
def test_promtool_reads_every_rule() -> None:
    assert f"SUCCESS: {len(RULES)} rules found" in promtool("check", "rules", str(RULES_FILE))


@needs("prometheus")
def test_each_fires_and_rests_as_written_by_hand() -> None:
    promtool("test", "rules", *map(str, sorted((ALERTS / "tests").glob("*.yml"))))


@pytest.mark.parametrize("name", NAMES)
def test_each_is_tested_for_firing_and_for_silence(name: str) -> None:
    cases = [
        case
        for file in (ALERTS / "tests").glob("*.yml")
        for test in yaml.safe_load(file.read_text())["tests"]
        for case in test["alert_rule_test"]
        if case["alertname"] == name
    ]
    assert [case for case in cases if case.get("exp_alerts")]
    assert [case for case in cases if not case.get("exp_alerts")]


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_each_says_how_bad_it_is_and_where_to_read_on(rule: Mapping[str, Any]) -> None:
    assert rule["alert"].startswith("Oomcast")
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["labels"]["component"]
    assert {"summary", "description", "runbook_url"} == rule["annotations"].keys()
    runbook = ALERTS / "runbooks" / rule["annotations"]["runbook_url"].rpartition("/")[2]
    assert runbook.read_text().startswith(f"# {rule['alert']}\n")


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_each_asks_for_metrics_that_exist(rule: Mapping[str, Any]) -> None:
    asked = set(re.findall(r"\b(oomcast_\w+|process_\w+)", rule["expr"]))
    assert asked <= METRICS
    assert asked or "up{" in rule["expr"]


@needs("prometheus")
@pytest.mark.parametrize(("document", "heading", "count"), [("joins.md", "# ", 4), ("engines.md", "## Queries", 10)])
def test_the_queries_of_the_documentation_are_promql(document: str, heading: str, count: int, tmp_path: Path) -> None:
    text = (ALERTS.parent / "docs" / document).read_text()
    queries = re.findall(r"(?:^    .*\n)+", text[text.index(heading) :], re.MULTILINE)
    assert len(queries) == count
    rules = [{"record": f"oomcast:query:{i}", "expr": query} for i, query in enumerate(queries)]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    promtool("check", "rules", str(file))
    for query in queries:
        assert {name.removesuffix("_bucket") for name in re.findall(r"\boomcast_\w+", query)} <= METRICS
