"""What is asked of every rule. What is asked of dashboards is in tests/grafana, of routes in test_alertmanager.py.

Not asked: that alerts without `for` are edge events alone, as forecasts and shares over ten minutes have their time
in them; `for` of such an alert would only come on top of it (NO_FOR lists them, and a test that none is forgotten).
That thresholds have a hysteresis: keep_firing_for does it, and the daemon's states have their own.
"""

import re

import promql_parser
import pytest

from alerts.promql import compares, functions, names, of, parts
from alerts.shipped import ALERTS, FIRING, KINDS, RECORDED, RULES, Rule, severity, title
from oomcast.rules.thresholds import THRESHOLDS

SCRAPE = 15.0
OTHERS = {"up", "kube_node_status_capacity"}
"""Metrics that are not oomcast's."""

NOT_BY_NODE = {"OomcastAbsent", "OomcastNodeUncovered", "OomcastTargetUnlabelled", "OomcastWatchdog"}
"""The one is about all nodes, two about those that have no label of oomcast's, the last about none."""

FIRST_SIGHT = re.compile(r"\boffset\b")
"""Counters that appear with their first event are compared with themselves a while ago, outside of increase()."""

SAMPLED = {f"engine:oomcast_slo_{one}:max" for one in ("requests", "violations", "predicted_violations")}
"""Recordings that are counters again."""

SINCE_THE_START = {"OomcastSloRisk", "OomcastStale"}
"""Whether a rate is known by enough requests, and whether a collector has ever succeeded."""

SECTIONS = ("## Meaning", "## First three commands", "## What it is not", "## Fix", "## See also")

real = pytest.mark.parametrize("rule", [r for r in FIRING if severity(r) != "none"], ids=title)
each = pytest.mark.parametrize("rule", RULES, ids=title)


@real
def test_1_4_13_it_says_how_bad_it_is_what_to_do_and_where_to_read_on(rule: Rule) -> None:
    assert severity(rule) in ("critical", "warning", "info")
    assert rule["labels"]["component"] in ("memory", "gpu", "engine", "requests", "oomcast")
    assert rule["labels"]["phase"] in ("forecast", "symptom", "fact", "itself")
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url", "dashboard_url"}
    assert rule["annotations"]["description"].count("Next:") == 1
    assert not [value for value in rule["labels"].values() if "{{" in value]


@real
def test_2_its_runbook_is_there_and_whole(rule: Rule) -> None:
    url = rule["annotations"]["runbook_url"]
    assert url.endswith(f"/alerts/runbooks/{rule['alert']}.md")
    text = (ALERTS / "runbooks" / f"{rule['alert']}.md").read_text()
    assert text.startswith(f"# {rule['alert']}\n")
    assert [line for line in text.splitlines() if line in SECTIONS] == list(SECTIONS)
    assert len(text.splitlines()) <= 70
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert link.startswith("https://") or (ALERTS / "runbooks" / link).exists(), link


def test_2_no_runbook_is_left_over() -> None:
    assert {file.stem for file in (ALERTS / "runbooks").glob("*.md")} == {
        rule["alert"] for rule in FIRING if severity(rule) != "none"
    }


def test_3_names_are_unique_and_of_one_kind() -> None:
    pairs = [(rule["alert"], severity(rule)) for rule in FIRING]
    assert len(set(pairs)) == len(pairs)
    assert all(re.fullmatch(r"Oomcast([A-Z][a-z]+)+", name) for name, _ in pairs)
    recorded = [rule["record"] for rule in RECORDED]
    assert len(set(recorded)) == len(recorded)
    assert all(re.fullmatch(r"[a-z_]+:oomcast_\w+:\w+", name) for name in recorded)


@real
def test_5_it_compares_with_something(rule: Rule) -> None:
    assert _compares(rule["expr"])


def _compares(expr: str) -> bool:
    """It, or a recording that it reads: what is recorded there is a finding already."""
    recorded = {one["record"]: one["expr"] for one in RECORDED}
    return compares(expr) or any(_compares(recorded[name]) for name in names(expr) & recorded.keys())


@each
def test_6_counters_are_read_as_counters_and_gauges_as_gauges(rule: Rule) -> None:
    if rule.get("record") in SAMPLED:
        return
    for node, around in parts(rule["expr"]):
        if not isinstance(node, promql_parser.VectorSelector) or node.name not in {*KINDS, *SAMPLED}:
            continue
        counts = node.name in SAMPLED or KINDS[node.name] == "counter"
        called = functions(around)
        if called & {"rate", "increase"}:
            assert counts, node.name
        elif counts and not called & {"changes", "resets"}:
            assert FIRST_SIGHT.search(rule["expr"]) or rule.get("alert") in SINCE_THE_START, node.name


@each
def test_7_rates_span_four_scrapes(rule: Rule) -> None:
    for node in of(promql_parser.MatrixSelector, rule["expr"]):
        assert node.range.total_seconds() >= 4 * SCRAPE


@each
def test_8_nothing_is_divided_by_what_may_be_zero(rule: Rule) -> None:
    for node in of(promql_parser.BinaryExpr, rule["expr"]):
        if str(node.op) == "/":
            below = str(node.rhs.prettify())
            assert compares(below) or names(below) == {"gpu:oomcast_gpu_memory_usable_bytes:max"}, below


NO_FOR = {
    "OomcastCgroupExhaustion critical", "OomcastHostExhaustion critical", "OomcastGpuExhaustion critical",
    "OomcastExhaustionSudden warning", "OomcastGpuMemoryFull critical", "OomcastSloBurn critical",
    "OomcastSloBurn warning", "OomcastLongRequestsFail critical", "OomcastLongRequestsFail warning",
    "OomcastLongResponsesEmpty critical", "OomcastLongResponsesEmpty warning",
    "OomcastLogOutOfMemory warning", "OomcastLogEngineDead warning", "OomcastLogBadNumbers warning",
}  # fmt: skip


def test_9_what_is_no_event_has_to_last() -> None:
    window = re.compile(r"\[\d+[mhd]\]|:\w+\d+m\b")
    at_once = {
        f"{rule['alert']} {severity(rule)}"
        for rule in FIRING
        if "for" not in rule and severity(rule) != "none" and rule["labels"]["phase"] in ("forecast", "symptom")
    }
    assert at_once == NO_FOR
    for rule in FIRING:
        if "for" not in rule and rule["labels"]["phase"] == "fact":
            assert window.search(rule["expr"]), rule["alert"]
    absent = next(rule for rule in FIRING if rule["alert"] == "OomcastAbsent")
    assert absent["for"] == "5m"


@real
def test_10_no_critical_alert_resolves_before_the_one_about_its_source(rule: Rule) -> None:
    seconds = promql_parser.parse_duration(rule["keep_firing_for"]).total_seconds()
    if "audience" not in rule["labels"]:
        assert seconds >= (600 if severity(rule) == "critical" else 300)
    down = next(rule for rule in FIRING if rule["alert"] == "OomcastDown")
    assert promql_parser.parse_duration(down["for"]).total_seconds() < 600


def test_11_what_has_two_severities_says_the_same() -> None:
    for name in {rule["alert"] for rule in FIRING}:
        pair = [rule for rule in FIRING if rule["alert"] == name]
        assert len({tuple(sorted(_kept(rule))) for rule in pair}) == 1, name


def _kept(rule: Rule) -> set[str]:
    """The labels that the texts use."""
    return set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))


def test_12_all_ways_to_be_blind_are_told_apart() -> None:
    told = {rule["alert"] for rule in FIRING}
    assert {"OomcastDown", "OomcastAbsent", "OomcastCollectorDown", "OomcastStale", "OomcastNodeUncovered"} <= told


@each
def test_14_every_sum_keeps_the_node(rule: Rule) -> None:
    if rule.get("alert") in NOT_BY_NODE:
        return
    sums = of(promql_parser.AggregateExpr, rule["expr"])
    for node in sums:
        assert node.modifier is not None
        assert {"cluster", "node"} <= set(node.modifier.labels)
    assert sums or any(":" in name for name in names(rule["expr"]))


@each
def test_15_numbers_are_those_of_the_table(rule: Rule) -> None:
    values = {one.value for one in THRESHOLDS}
    budget = 1 - next(one.value for one in THRESHOLDS if one.name == "slo_target")
    values |= {one.value * budget for one in THRESHOLDS if one.name.startswith("burn_")}
    for node in of(promql_parser.NumberLiteral, rule["expr"]):
        assert node.val in (0, 0.5, 1, 3) or any(abs(node.val - one) < 1e-5 * one for one in values), node.val


@each
def test_19_metrics_are_known(rule: Rule) -> None:
    recorded = {one["record"] for one in RECORDED}
    for name in names(rule["expr"]):
        assert name in recorded | OTHERS or name in KINDS, name


def test_22_burn_rates_look_at_two_windows_at_once() -> None:
    for rule in FIRING:
        if rule["alert"] == "OomcastSloBurn":
            windows = re.findall(r"ratio_rate(\w+)", rule["expr"])
            assert windows == (["1h", "5m", "6h", "30m"] if severity(rule) == "critical" else ["1d", "2h", "3d", "6h"])
            assert rule["expr"].count(">= 20") == 2
