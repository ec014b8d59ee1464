"""The chart's PodMonitor, rules and boards are those that are shipped."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.kubernetes import CHART, ROOT, VERSIONS, Resource, of, problems, render
from oomcast.rules.config import JOB
from requires import needs

pytestmark = needs("helm")

MOST = 1 << 20
RULES = ROOT / "alerts" / "oomcast.rules.yml"
BOARDS = sorted((ROOT / "grafana" / "dashboards").glob("*.json"))
OPERATOR: dict[str, Any] = yaml.safe_load((CHART / "ci" / "operator-values.yaml").read_text())


def monitor(values: dict[str, Any] | None = None, release: str = "oomcast", **given: Any) -> Resource:
    return of(render((values or {}) | {"podMonitor": {"enabled": True} | given}, release=release), "PodMonitor")


def test_by_default_there_is_nothing_that_takes_an_operator() -> None:
    assert {one["kind"] for one in render()} == {"ServiceAccount", "ConfigMap", "DaemonSet"}


def test_the_podmonitor_is_the_shipped_one() -> None:
    shipped = yaml.safe_load((ROOT / "deploy" / "prometheus" / "podmonitor.yaml").read_text())
    assert problems(shipped, VERSIONS[-1]) == []
    made = monitor({"cluster": "inference"})
    assert made["metadata"]["name"] == shipped["metadata"]["name"]
    assert made["spec"]["podMetricsEndpoints"] == shipped["spec"]["podMetricsEndpoints"]
    selected = of(render(), "DaemonSet")["spec"]["template"]["metadata"]["labels"]
    assert made["spec"]["selector"]["matchLabels"].items() <= selected.items()


def test_without_a_cluster_no_label_is_made_of_it() -> None:
    def targets(values: dict[str, Any]) -> list[str | None]:
        (endpoint,) = monitor(values)["spec"]["podMetricsEndpoints"]
        return [one.get("targetLabel") for one in endpoint["relabelings"]]

    assert targets({}) == [None, "node", "instance"]
    assert targets({"cluster": "a"}) == [None, "node", "instance", "cluster"]


@pytest.mark.parametrize(
    ("release", "override", "name"),
    [
        ("oomcast", "", "oomcast"),
        ("gpu", "", "gpu-oomcast"),
        ("my-oomcast", "", "my-oomcast"),
        ("a" * 53, "", f"{'a' * 53}-oomcast"),
        ("oomcast", "memory-watch", "memory-watch-oomcast"),
        ("oomcast", "b" * 63, f"{'b' * 55}-oomcast"),
    ],
)
def test_the_job_is_one_that_the_rules_ask_for(release: str, override: str, name: str) -> None:
    made = monitor({"fullnameOverride": override}, release=release)["metadata"]["name"]
    assert made == name
    assert len(made) <= 63
    assert re.fullmatch(JOB, f"apps/{made}")


def test_what_a_user_adds_to_the_podmonitor() -> None:
    made = of(render(OPERATOR), "PodMonitor")
    (endpoint,) = made["spec"]["podMetricsEndpoints"]
    assert made["metadata"]["namespace"] == "monitoring"
    assert made["spec"]["namespaceSelector"] == {"matchNames": ["apps"]}
    assert made["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    assert made["spec"]["attachMetadata"] == {"node": True}
    assert (endpoint["interval"], endpoint["scrapeTimeout"], endpoint["honorLabels"]) == ("30s", "10s", False)
    assert [one.get("targetLabel") for one in endpoint["relabelings"]][-2:] == ["cluster", "engine_group"]
    assert endpoint["metricRelabelings"] == OPERATOR["podMonitor"]["metricRelabelings"]
    assert "scheme" not in endpoint


def test_tls_is_scraped_as_tls() -> None:
    def scheme(web: dict[str, Any]) -> str | None:
        (endpoint,) = monitor({"web": web}, tlsConfig={"insecureSkipVerify": True})["spec"]["podMetricsEndpoints"]
        assert endpoint["tlsConfig"] == {"insecureSkipVerify": True}
        found: str | None = endpoint.get("scheme")
        return found

    assert scheme({}) is None
    assert scheme({"tlsSecret": "a"}) == scheme({"existingSecret": "a"}) == "https"
    assert scheme({"existingSecret": "a", "scheme": "http"}) is None


def test_the_rules_are_the_shipped_ones() -> None:
    shipped = yaml.safe_load(RULES.read_text())
    made = of(render({"prometheusRule": {"enabled": True}}), "PrometheusRule")
    assert made["spec"] == shipped
    # Templates of Prometheus, in braces like those of helm.
    texts = json.dumps(made)
    assert texts.count("{{ $labels.node }}") == json.dumps(shipped).count("{{ $labels.node }}") > 50
    operator = yaml.safe_load((ROOT / "alerts" / "prometheusrule.yaml").read_text())
    assert made["spec"] == operator["spec"]
    assert problems(operator, VERSIONS[-1]) == []


@needs("prometheus")
def test_prometheus_takes_the_rules(tmp_path: Path) -> None:
    for values in ({"prometheusRule": {"enabled": True}}, OPERATOR):
        file = tmp_path / "rules.yml"
        file.write_text(yaml.safe_dump(of(render(values), "PrometheusRule")["spec"]))
        done = subprocess.run(
            ["promtool", "check", "rules", file], capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        assert "SUCCESS" in done.stdout


def test_labels_and_addresses_of_ones_own_are_those_of_the_command() -> None:
    made = of(render(OPERATOR), "PrometheusRule")
    addresses = ["--runbooks", "https://wiki.example.com/oomcast/{alert}", "--grafana", "https://grafana.example.com"]
    command = [sys.executable, "-m", "oomcast", "rules", "--format", "prometheusrule", *addresses]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    expected = yaml.safe_load(done.stdout)["spec"]
    alerts = [rule for group in expected["groups"] for rule in group["rules"] if "alert" in rule]
    assert len(alerts) > 50
    for rule in alerts:
        rule["labels"]["team"] = "inference"
    assert made["spec"] == expected


def test_a_label_of_the_rules_stays() -> None:
    values = {"prometheusRule": {"enabled": True, "alertLabels": {"severity": "none"}}}
    assert of(render(values), "PrometheusRule")["spec"] == yaml.safe_load(RULES.read_text())


def test_the_boards_are_the_shipped_ones() -> None:
    values = {"dashboards": {"enabled": True, "namespace": "grafana", "annotations": {"grafana_folder": "x"}}}
    made = [one for one in render(values) if one["kind"] == "ConfigMap" and "oomcast.yaml" not in one["data"]]
    assert len(BOARDS) == len(made) == 5
    texts = {name: text for one in made for name, text in one["data"].items()}
    assert texts == {path.name: path.read_text().rstrip("\n") for path in BOARDS}
    for one in made:
        assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert one["metadata"]["namespace"] == "grafana"
        assert one["metadata"]["annotations"] == {"grafana_folder": "x"}
        assert len(json.dumps(one)) < MOST
    names = [one["metadata"]["name"] for one in made]
    assert len(set(names)) == 5
    assert max(map(len, names)) <= 63


def test_copies_in_the_chart_are_what_they_are_copies_of() -> None:
    files = CHART / "files"
    copies = {path.relative_to(files): path.read_bytes() for path in files.rglob("*") if path.is_file()}
    originals = {Path("oomcast.rules.yml"): RULES} | {Path("dashboards") / path.name: path for path in BOARDS}
    assert copies == {name: path.read_bytes() for name, path in originals.items()}, "make generate writes them"
