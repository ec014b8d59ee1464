"""The configuration of Alertmanager as its own tools see it, and beside the rules whose alerts it routes."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from alerts.alertmanagers import ALERTS, CONFIG, amtool, shipped
from e2e.prometheuses import Prometheus, newest, on_each
from requires import needs

RULES = ALERTS / "oomcast.rules.yml"
EXEMPT = {
    ("empty-receiver", "receivers[log]"): "nobody is to be told",
    ("global-resolve-timeout-missing", "global"): "Prometheus says of each alert when it ends",
}
RECEIVERS = [
    ("alertname=OomcastWatchdog severity=none component=oomcast phase=itself cluster=c", "deadman"),
    ("alertname=OomcastExhaustionSudden severity=warning audience=automation cluster=c node=n", "automation"),
    ("alertname=OomcastExhaustionSudden severity=warning audience=automation engine_group=g node=n", "automation"),
    ("alertname=OomcastGpuExhaustion severity=critical cluster=c node=n resource=gpu_memory", "page"),
    ("alertname=OomcastGpuExhaustion severity=warning cluster=c node=n resource=gpu_memory", "ticket"),
    ("alertname=OomcastEngineDown severity=critical cluster=c node=n engine=e engine_group=g", "page"),
    ("alertname=OomcastEngineDown severity=warning cluster=c node=n engine=e engine_group=g", "ticket"),
    ("alertname=OomcastAbsent severity=critical component=oomcast phase=itself", "page"),
    ("alertname=OomcastNodeUncovered severity=warning node=n", "ticket"),
    ("alertname=OomcastXid severity=info cluster=c node=n xid=31", "log"),
    ("alertname=OomcastTenantOomKill severity=info cluster=c node=n owner=a limit_owner=b", "log"),
    ("alertname=SomebodyElse severity=page", "ticket"),
    ("alertname=SomebodyElse", "ticket"),
]


@needs("prometheus")
@on_each()
def test_each_generation_takes_it(which: Prometheus) -> None:
    said = amtool(which, "check-config", str(CONFIG))
    assert " - 5 inhibit rules\n - 5 receivers\n - 1 templates\n  SUCCESS" in said


@needs("prometheus")
@on_each()
def test_each_generation_takes_the_examples_in_it(which: Prometheus, tmp_path: Path) -> None:
    config = shipped(examples=True)
    receivers = {receiver["name"]: set(receiver) - {"name", "webhook_configs"} for receiver in config["receivers"]}
    assert receivers["page"] == {"pagerduty_configs"}
    assert receivers["ticket"] == {"slack_configs", "email_configs"}
    path = tmp_path / "alertmanager.yml"
    path.write_text(yaml.safe_dump(config))
    assert " - 1 templates\n  SUCCESS" in amtool(which, "check-config", str(path))
    assert _findings(path) == EXEMPT.keys()


@needs("prometheus")
@on_each()
def test_each_alert_finds_its_receiver(which: Prometheus) -> None:
    found = [
        amtool(which, "config", "routes", "test", f"--config.file={CONFIG}", *labels.split()).strip()
        for labels, _ in RECEIVERS
    ]
    assert found == [receiver for _, receiver in RECEIVERS]


def test_a_linter_finds_nothing_else() -> None:
    assert _findings(CONFIG) == EXEMPT.keys()


def test_it_has_no_secrets() -> None:
    every = [config for receiver in shipped(examples=True)["receivers"] for config in _values(receiver)]
    secret = {key for key, _ in every if re.search(r"key|password|token|secret|api_url", key)}
    assert secret == {"routing_key_file", "api_url_file", "auth_password_file"}
    assert {value for key, value in every if key == "url"} == {
        f"http://127.0.0.1:9095/{name}" for name in ("deadman", "automation", "page", "ticket")
    }


def test_no_page_is_later_than_documented() -> None:
    """The 10 s of grouping in the table of docs/alerts.md."""
    waits = {route["receiver"]: route["group_wait"] for route in shipped()["route"]["routes"] if "group_wait" in route}
    assert waits == {"deadman": "0s", "automation": "0s", "page": "10s"}


def test_what_is_silenced_as_less_severe_is_about_the_same_object() -> None:
    """By every label that the rules of an alert with two severities tell objects apart by."""
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    alerts = [rule for rule in rules if "alert" in rule]
    severities: dict[str, set[str]] = {}
    for alert in alerts:
        severities.setdefault(alert["alert"], set()).add(alert["labels"]["severity"])
    twice = [alert for alert in alerts if len(severities[alert["alert"]]) > 1]
    assert len(twice) >= 18
    labels = {label for alert in twice for label in _grouping(alert["expr"])}
    assert {"cluster", "node", "cgroup", "engine", "resource"} <= labels
    assert labels <= set(shipped()["inhibit_rules"][0]["equal"])


def test_every_inhibition_compares_labels() -> None:
    """And where these are a node's, neither side may lack it."""
    for rule in shipped()["inhibit_rules"]:
        assert "cluster" in rule["equal"]
        if "node" in rule["equal"]:
            assert 'node!=""' in rule["source_matchers"]
            assert 'node!=""' in rule["target_matchers"]


@needs("prometheus")
def test_every_rule_keeps_the_label_of_an_engine_that_spans_nodes(tmp_path: Path) -> None:
    path = tmp_path / "rules.yml"
    argv = [sys.executable, "-m", "oomcast", "rules", "--node-labels", "cluster,engine_group,node"]
    path.write_bytes(subprocess.run(argv, capture_output=True, check=True, timeout=60).stdout)
    lost = {
        rule.get("alert", rule.get("record"))
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
        for kept in re.findall(r"\b(?:by|on) \(([^)]*)\)", rule["expr"])
        if not kept.startswith("cluster, engine_group, node")
    }
    # Of what kube-state-metrics tells, and of targets that have no such labels at all.
    assert lost == {"OomcastNodeUncovered", "OomcastTargetUnlabelled"}
    test = tmp_path / "test.yml"
    test.write_text(json.dumps({"rule_files": [str(path)], "evaluation_interval": "15s", "tests": [_SPANNING]}))
    argv = [str(newest().promtool), "test", "rules", str(test)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


_UP = 'up{job="oomcast", cluster="c", engine_group="g", node="a"}'
_SPANNING: Mapping[str, Any] = {
    "interval": "15s",
    "input_series": [{"series": _UP, "values": "1 0x40"}],
    "promql_expr_test": [
        {
            "expr": 'ALERTS{alertname="OomcastDown", alertstate="firing"}',
            "eval_time": "5m",
            "exp_samples": [
                {
                    "labels": 'ALERTS{alertname="OomcastDown", alertstate="firing", severity="critical",'
                    ' component="oomcast", phase="itself", cluster="c", engine_group="g", node="a"}',
                    "value": 1,
                }
            ],
        }
    ],
}


def _findings(path: Path) -> set[tuple[str, str]]:
    """The code and the place of whatever amlint says, be it only information."""
    argv = [
        str(Path(sys.executable).with_name("amlint")),
        "check",
        "--format",
        "json",
        "--rules",
        str(RULES),
        str(path),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return {(one["code"], one["where"]) for one in json.loads(done.stdout)}


def _grouping(expr: str) -> Iterator[str]:
    """The labels of all its `by` and `on`."""
    for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", expr):
        yield from re.findall(r"\w+", labels)


def _values(node: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(node, dict):
        for name, value in node.items():
            yield from _values(value, name)
    elif isinstance(node, list):
        for value in node:
            yield from _values(value, key)
    else:
        yield key, str(node)
