"""`oomcast rules` as its user has it: what each option changes, and what is refused, and how."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.program import oomcast
from e2e.prometheuses import newest
from oomcast.rules.config import Config, duration, quoted
from oomcast.rules.thresholds import Limits
from requires import needs

ALERTS = Path(__file__).parents[2] / "alerts"


def rules(*options: str) -> str:
    done = oomcast("rules", *options)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def every(*options: str) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(rules(*options))["groups"] for rule in group["rules"]]


def alert(name: str, severity: str, *options: str) -> dict[str, Any]:
    (found,) = (r for r in every(*options) if r.get("alert") == name and r["labels"]["severity"] == severity)
    return found


def refusal(*options: str) -> str:
    """The one line of it. Nothing may be on standard output: it is often redirected into a file of rules."""
    done = oomcast("rules", *options)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr.splitlines()[-1]


def test_without_options_it_is_what_is_shipped() -> None:
    assert rules() == (ALERTS / "oomcast.rules.yml").read_text()
    assert rules("--format", "prometheusrule") == (ALERTS / "prometheusrule.yaml").read_text()


def test_a_threshold_of_ones_own_is_in_the_rule_and_in_its_text() -> None:
    down = alert("OomcastDown", "critical", "--set", "down=90")
    assert down["for"] == "1m30s"
    assert "has succeeded for 1m30s: " in down["annotations"]["description"]
    gone = alert("OomcastEngineDown", "critical", "--set", "engine_down_critical=1800", "--set", "kills_window=1200")
    assert gone["for"] == "30m"
    assert gone["annotations"]["summary"].endswith(" has been down for half an hour")
    loop = alert("OomcastOomKillsRepeated", "critical", "--set", "kills_window=1200", "--set", "kills_repeated=4")
    assert loop["expr"].endswith(" >= 4")
    assert " times within 20m for want of memory" in loop["annotations"]["description"]
    full = alert("OomcastGpuExhaustion", "critical", "--set", "exhaustion_critical=900", "--set", "long_prompt=2048")
    assert full["expr"].endswith(" < 900")
    assert "send prompts above 2K tokens elsewhere" in full["annotations"]["description"]


def test_the_last_of_two_values_counts() -> None:
    assert alert("OomcastDown", "critical", "--set", "down=90", "--set", "down=120")["for"] == "2m"
    assert alert("OomcastDown", "critical", "--set", "down=1m30s")["for"] == "1m30s"


def test_a_scale_divides_durations_and_leaves_texts() -> None:
    down = alert("OomcastDown", "critical", "--scale", "20")
    assert (down["for"], down["keep_firing_for"]) == ("3s", "30s")
    assert "has succeeded for a minute: " in down["annotations"]["description"]


def test_thresholds_as_json_are_those_in_force() -> None:
    rows = {row["name"]: row for row in json.loads(rules("--format", "thresholds", "--set", "down=90"))}
    assert (rows["down"]["value"], rows["down"]["unit"]) == (90, "seconds")
    assert rows["crash_prompt"]["value"] == 131072
    assert all(row["why"] and row["source"] for row in rows.values())


def test_tables_have_a_row_for_each_alert() -> None:
    table = rules("--format", "markdown")
    names = {rule["alert"] for rule in every() if "alert" in rule}
    assert {name for name in names if re.search(rf"\b{name}\b", table)} == names


def test_a_job_and_matchers_are_in_every_selector_that_they_are_for() -> None:
    up = alert("OomcastDown", "critical", "--job", "gpu-(a|b)", "--match", 'env="prod", dc!~"x.*"')["expr"]
    assert 'up{job=~"gpu-(a|b)", env="prod", dc!~"x.*"}' in up
    storm = alert("OomcastPreemptionStorm", "warning", "--match", 'env="prod"')["expr"]
    assert 'oomcast_engine_state{oomcast_engine_state="thrashing", env="prod"}' in storm
    bare = [r["expr"] for r in every("--match", 'env="prod"') for _ in _unmatched(r["expr"])]
    assert bare == []


def _unmatched(expr: str) -> Iterator[str]:
    """Selectors without the matcher, but for those of recordings, which have it already."""
    for name, braces in re.findall(
        r"(?<![\w:\"$])((?:oomcast|process|kube)_\w+|up\b)(?![\w:]*[=~\"])(\{[^}]*\})?", expr
    ):
        labels = ("oomcast_engine_state", "oomcast_gpu_state", "process")
        if 'env="prod"' not in braces and name not in labels:
            yield name


def test_nodes_by_another_label_are_named_by_it_everywhere() -> None:
    for rule in every("--node-labels", "instance"):
        text = str(rule)
        assert "$labels.node" not in text
        assert "(cluster" not in rule["expr"].replace("(cluster, instance) (up", "")
        if "alert" in rule and "by (instance" in rule["expr"]:
            assert "{{ $labels.instance }}" in rule["annotations"]["summary"], rule["alert"]
    down = alert("OomcastDown", "critical", "--node-labels", "instance")
    assert down["annotations"]["summary"] == "oomcast on {{ $labels.instance }} does not answer"


def test_addresses_of_ones_own() -> None:
    options = ("--runbooks", "https://wiki.example/{alert}?v={version}", "--grafana", "https://grafana.example/")
    notes = alert("OomcastDown", "critical", *options)["annotations"]
    assert notes["runbook_url"] == "https://wiki.example/OomcastDown?v={version}"
    assert notes["dashboard_url"].startswith("https://grafana.example/d/oomcast-itself")


REFUSED = {
    ("--set", "speed=1"): "no threshold is called 'speed'; known are: healthy_memory, ",
    ("--set", "down"): "argument --set: 'down' should be NAME=NUMBER",
    ("--set", "down=1m30"): "argument --set: 'down=1m30' should be NAME=NUMBER",
    ("--set", "down=soon"): "argument --set: 'down=soon' should be NAME=NUMBER",
    ("--set", "down=0"): "down should be above 0, not 0",
    ("--set", "down=nan"): "down should be above 0, not nan",
    ("--set", "burst=5"): "burst is a ratio and should be at most 1, not 5",
    ("--set", "kill_window=0.0001"): "a duration would be 0.0001 s: Prometheus has none below a millisecond",
    ("--set", "long_prompt=100000"): "long_prompt should be a length that series tell of (2048, 65536, 131072, 200000)",
    ("--set", "exhaustion_critical=7200"): "exhaustion_critical (7200) should not be above exhaustion_warning (3600)",
    ("--set", "down=900"): "down (900) should not be above keep (600)",
    ("--scale", "0"): "the scale should be above 0, not 0",
    ("--scale", "inf"): "the scale should be above 0, not inf",
    ("--job", "["): "'[' is no regular expression: ",
    ("--match", '{env="prod"}'): 'should be matchers without braces, such as env="prod"',
    ("--match", "env=prod"): "'env=prod' should be matchers without braces",
    ("--match", 'env="prod"}) or vector(1'): "should be matchers without braces",
    ("--match", 'env=~"("'): "'(' is no regular expression: ",
    ("--node-labels", ""): "'' is no name of a label",
    ("--node-labels", "cluster, node"): "' node' is no name of a label",
    ("--node-labels", "node,node"): "a label that names a node should be there once",
    ("--node-labels", "engine"): "engine is a label of oomcast's own and cannot name a node",
    ("--runbooks", "https://wiki.example"): "the address of runbooks should contain {alert}",
    ("--grafana", 'https://x/" a'): "is no address: it has spaces, quotes or the like",
    ("--format", "yaml"): "argument --format: invalid choice: 'yaml'",
}


@pytest.mark.parametrize("options", REFUSED, ids=" ".join)
def test_what_cannot_be_meant_is_refused(options: tuple[str, str]) -> None:
    assert REFUSED[options] in refusal(*options)


@needs("prometheus")
@pytest.mark.parametrize(
    "options",
    [
        ("--match", 'env="a \\"b\\", c", path=~"x\\\\.y|z"', "--job", r"a\.b|\w+"),
        ("--node-labels", "region,cluster,engine_group,host", "--set", "serving_memory=7200"),
        ("--scale", "60", "--set", "slo_target=1"),
    ],
    ids=["quotes", "four labels", "extremes"],
)
def test_odd_wishes_are_rules_all_the_same(options: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "rules.yml"
    file.write_text(rules(*options))
    promtool = [str(newest().promtool), "check", "rules", str(file)]
    done = subprocess.run(promtool, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "SUCCESS" in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.1, "100ms"), (90, "1m30s"), (3600, "1h"), (86_400, "1d"), (93_784.005, "1d2h3m4s5ms")],
)
def test_durations_are_as_prometheus_writes_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_strings_of_promql_are_quoted() -> None:
    assert quoted('a\\.b"c') == 'a\\\\.b\\"c'


def test_limits_are_scaled_where_they_are_times_alone() -> None:
    limits = Limits({"down": 90}, scale=30)
    assert (limits["down"], limits["restarts"], limits["burst"], limits["crash_prompt"]) == (3, 3, 0.05, 131_072)
    assert len(limits) == len(list(limits)) > 60


def test_thresholds_in_words() -> None:
    config = Config(Limits({"kv_hold": 75, "long_prompt": 2048, "crash_prompt": 200_000}, scale=5))
    assert [config.said(name) for name in ("down", "kv_hold", "kills_window")] == ["a minute", "1m15s", "half an hour"]
    assert [config.tokens(name) for name in ("long_prompt", "crash_prompt")] == ["2K", "200,000"]
