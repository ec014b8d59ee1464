"""The shipped scrape configurations: that Prometheus takes them, and the labels that its series get by them.

What a discovery in Kubernetes would tell of a pod is told by a file, and the real daemon is scraped.
"""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
import yaml

from e2e.prometheuses import Prometheus, found, on_each
from e2e.stack import ROOT, daemon, fetch, host, prometheus
from requires import needs

DEPLOY = ROOT / "deploy" / "prometheus"
RULES = ROOT / "alerts" / "oomcast.rules.yml"

HOSTS = {"127.0.0.1": "127.0.0.1", "localhost": "localhost", "[::ffff:127.0.0.1]": "::ffff:127.0.0.1"}
"""The node of a target by the host in its address."""

IDENTITY = {"cluster": "inference", "node": "gpu-01", "instance": "gpu-01"}
POD = {
    "__meta_kubernetes_namespace": "monitoring",
    "__meta_kubernetes_pod_name": "oomcast-x7k2p",
    "__meta_kubernetes_pod_uid": "5c8e7f0e-1b7c-4b0f-9a51-1e0a9f1f4f6d",
    "__meta_kubernetes_pod_ip": "10.0.0.7",
    "__meta_kubernetes_pod_phase": "Running",
    "__meta_kubernetes_pod_ready": "true",
    "__meta_kubernetes_pod_node_name": "gpu-01",
    "__meta_kubernetes_pod_container_name": "oomcast",
    "__meta_kubernetes_pod_container_port_name": "metrics",
    "__meta_kubernetes_pod_container_port_number": "19128",
    "__meta_kubernetes_pod_label_app_kubernetes_io_name": "oomcast",
    "__meta_kubernetes_pod_labelpresent_app_kubernetes_io_name": "true",
    "__meta_kubernetes_pod_label_pod_template_generation": "1",
}
"""As the role pod of Prometheus documents it, beside the address."""
OTHERS = [
    {"__meta_kubernetes_pod_label_app_kubernetes_io_name": "vllm"},
    {"__meta_kubernetes_pod_container_port_name": "health"},
    {"__meta_kubernetes_pod_phase": "Succeeded"},
]
"""Pods and ports that are not to be scraped, by what differs."""

OPERATOR: list[dict[str, Any]] = [
    {"source_labels": ["job"], "target_label": "__tmp_prometheus_job_name"},
    {"source_labels": ["__meta_kubernetes_pod_phase"], "regex": "(Failed|Succeeded)", "action": "drop"},
    {
        "source_labels": [
            "__meta_kubernetes_pod_label_app_kubernetes_io_name",
            "__meta_kubernetes_pod_labelpresent_app_kubernetes_io_name",
        ],
        "regex": "(oomcast);true",
        "action": "keep",
    },
    {"source_labels": ["__meta_kubernetes_pod_container_port_name"], "regex": "metrics", "action": "keep"},
    {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
    {"source_labels": ["__meta_kubernetes_pod_container_name"], "target_label": "container"},
    {"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "pod"},
    {"target_label": "endpoint", "replacement": "metrics"},
]
"""What the operator puts before the relabelings of a PodMonitor, beside the name of the job."""


@needs("prometheus")
@on_each()
@pytest.mark.parametrize("name", ["prometheus.yml", "kubernetes.yml"])
def test_each_generation_takes_it_with_the_rules_beside_it(which: Prometheus, name: str, tmp_path: Path) -> None:
    shutil.copy(RULES, tmp_path)
    text = (DEPLOY / name).read_text()
    code, said = _check(which, tmp_path, text)
    if "field kubernetes_sd_configs not found" in said:
        # Debian built some without that discovery. All else of the file is checked all the same.
        assert code == 1
        config = yaml.safe_load(text)
        del config["scrape_configs"][0]["kubernetes_sd_configs"]
        code, said = _check(which, tmp_path, yaml.safe_dump(config))
    assert (code, "SUCCESS: " in said, "rules found" in said) == (0, True, True), said


@needs("prometheus")
def test_one_generation_at_least_knows_the_discovery(tmp_path: Path) -> None:
    shutil.copy(RULES, tmp_path)
    codes = {which.version: _check(which, tmp_path, (DEPLOY / "kubernetes.yml").read_text())[0] for which in found()}
    assert 0 in codes.values(), codes


def test_all_say_what_the_documented_times_assume() -> None:
    for name in ("prometheus.yml", "kubernetes.yml"):
        config = yaml.safe_load((DEPLOY / name).read_text())
        assert (config["global"]["scrape_interval"], config["global"]["evaluation_interval"]) == ("15s", "15s")
        assert "scrape_interval" not in config["scrape_configs"][0]
        assert config["scrape_configs"][0]["job_name"] == "oomcast"
        assert config["global"]["external_labels"] == {"cluster": "inference"}
    (endpoint,) = _monitor()["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["interval"], endpoint["honorLabels"]) == ("metrics", "15s", False)


def test_all_take_the_port_of_the_daemon() -> None:
    text = (ROOT / "docs" / "oomcast.example.yaml").read_text()
    assert re.findall(r"#listen: 127\.0\.0\.1:(\d+)", text) == ["19128"]
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    targets = config["scrape_configs"][0]["static_configs"][0]["targets"]
    assert targets == ["gpu-01.example.com:19128", "gpu-02.example.com:19128"]


class Scraped(NamedTuple):
    """A Prometheus whose jobs are named for what they test, the daemon that all scrape, and where pods are told."""

    url: str
    address: str
    discovered: Path


@pytest.fixture(scope="module", params=found(), ids=[one.version for one in found()])
def scraped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    directory = tmp_path_factory.mktemp("scraped")
    pods, grouped = directory / "pods.json", directory / "grouped.json"
    with daemon(directory) as (daemon_url, _):
        address = host(daemon_url)
        _discover(pods, address, POD)
        group = {"__meta_kubernetes_node_label_oomcast_engine_group": "large"}
        _discover(grouped, address, POD | group, POD | {"__meta_kubernetes_pod_node_name": "gpu-02"})
        jobs = [
            _listed([f"{name}:{address.rpartition(':')[2]}" for name in HOSTS]),
            _kubernetes("kubernetes", pods),
            _kubernetes("kubernetes-examples", grouped, examples=True),
            _operator("operator", pods),
            _operator("operator-examples", grouped, examples=True),
        ]
        with prometheus(directory, _config(jobs), request.param) as url:
            _becomes(lambda: _up(url) == [1] * (len(HOSTS) + 6))
            yield Scraped(url, address, pods)


@needs("prometheus")
def test_the_node_of_a_listed_target_is_its_host(scraped: Scraped) -> None:
    port = scraped.address.rpartition(":")[2]
    assert _targets(scraped.url, "listed") == [
        {"cluster": "inference", "node": node, "instance": f"{name}:{port}", "job": "listed"}
        for name, node in sorted(HOSTS.items(), key=lambda both: both[1])
    ]
    assert _common(scraped.url, "listed") == {"cluster": "inference", "job": "listed"}


@needs("prometheus")
@pytest.mark.parametrize("job", ["kubernetes-examples", "operator-examples"])
def test_a_label_of_the_node_tells_the_engine_that_spans_it(scraped: Scraped, job: str) -> None:
    """By the example that is commented out; a node without the label has none."""
    assert _targets(scraped.url, job) == [
        {**IDENTITY, "job": job, "engine_group": "large"},
        {**IDENTITY, "job": job, "node": "gpu-02", "instance": "gpu-02"},
    ]


@needs("prometheus")
@pytest.mark.parametrize("job", ["kubernetes", "operator"])
def test_a_pod_becomes_its_node_and_a_rollout_no_new_series(scraped: Scraped, job: str) -> None:
    url, expected = scraped.url, {**IDENTITY, "job": job}
    assert _targets(url, job) == [expected]
    assert _common(url, job) == expected
    other = scraped.address.replace("127.0.0.1", "localhost")
    _discover(scraped.discovered, other, POD | {"__meta_kubernetes_pod_name": "oomcast-zz9qq"})
    _becomes(lambda: _addresses(url, job) == [other])
    scraped_until = _last(url, job)
    _becomes(lambda: _last(url, job) > scraped_until + 1)
    assert _targets(url, job) == [expected]
    assert _common(url, job) == expected
    assert len(_query(url, f'count_over_time(up{{job="{job}"}}[1h])')) == 1


def _check(which: Prometheus, directory: Path, text: str) -> tuple[int, str]:
    path = directory / "prometheus.yml"
    path.write_text(text)
    argv = [str(which.promtool), "check", "config", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout + done.stderr


def _listed(targets: list[str]) -> dict[str, Any]:
    job: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"][0]
    job["static_configs"][0]["targets"] = targets
    return job | {"job_name": "listed"}


def _kubernetes(name: str, discovered: Path, *, examples: bool = False) -> dict[str, Any]:
    """The job that is shipped, with a file for its discovery."""
    text = (DEPLOY / "kubernetes.yml").read_text()
    job: dict[str, Any] = yaml.safe_load(_uncommented(text) if examples else text)["scrape_configs"][0]
    del job["kubernetes_sd_configs"]
    return job | {"job_name": name, "file_sd_configs": [{"files": [str(discovered)]}]}


def _operator(name: str, discovered: Path, *, examples: bool = False) -> dict[str, Any]:
    """What the operator makes of the PodMonitor, with a file for its discovery."""
    (endpoint,) = _monitor(examples=examples)["spec"]["podMetricsEndpoints"]
    own = [{_snake(key): value for key, value in rule.items()} for rule in endpoint["relabelings"]]
    return {
        "job_name": f"podMonitor/{name}/0",
        "honor_labels": endpoint["honorLabels"],
        "file_sd_configs": [{"files": [str(discovered)]}],
        "relabel_configs": [*OPERATOR, {"target_label": "job", "replacement": name}, *own],
    }


def _monitor(*, examples: bool = False) -> dict[str, Any]:
    text = (DEPLOY / "podmonitor.yaml").read_text()
    monitor: dict[str, Any] = yaml.safe_load(_uncommented(text) if examples else text)
    return monitor


def _uncommented(text: str) -> str:
    """With the rule that is an example: its lines are the commented ones that begin like YAML."""
    return re.sub(r"^( +)# (- source_?[lL]abels: |  target_?[lL]abel: )", r"\1\2", text, flags=re.MULTILINE)


def _snake(name: str) -> str:
    return re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


def _config(jobs: list[dict[str, Any]]) -> str:
    return yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs})


def _discover(path: Path, address: str, *pods: dict[str, str]) -> None:
    """Writes what is discovered, all at once, with pods that are not to be scraped."""
    every = [*pods, *(POD | other for other in OTHERS)]
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps([{"targets": [address], "labels": labels} for labels in every]))
    fresh.rename(path)


def _api(url: str, path: str, **parameters: str) -> Any:
    return json.loads(fetch(f"{url}/api/v1/{path}?{urlencode(parameters)}"))["data"]


def _query(url: str, expr: str) -> list[tuple[dict[str, str], float]]:
    return [(one["metric"], float(one["value"][1])) for one in _api(url, "query", query=expr)["result"]]


def _up(url: str) -> list[float]:
    return [value for _, value in _query(url, "up")]


def _last(url: str, job: str) -> float:
    """When it was scraped for the last time, in seconds since the epoch."""
    return max(value for _, value in _query(url, f'timestamp(up{{job="{job}"}})'))


def _active(url: str, job: str) -> list[dict[str, Any]]:
    every = _api(url, "targets", state="active")["activeTargets"]
    return [one for one in every if one["labels"]["job"] == job]


def _targets(url: str, job: str) -> list[dict[str, str]]:
    """The labels of all that is scraped, sorted by node."""
    return sorted((one["labels"] for one in _active(url, job)), key=lambda labels: labels["node"])


def _addresses(url: str, job: str) -> list[str]:
    return [host(one["scrapeUrl"]).split("/")[0] for one in _active(url, job)]


def _common(url: str, job: str) -> dict[str, str]:
    """The labels that all series have alike; no series has one of those that an orchestrator knows."""
    every: list[dict[str, str]] = _api(url, "series", **{"match[]": f'{{job="{job}"}}'})
    assert len(every) > 50
    names = {label for labels in every for label in labels}
    assert not names & {"pod", "container", "endpoint", "namespace"}
    assert not [label for label in names if label.startswith("exported_")]
    return {key: value for key, value in every[0].items() if all(one.get(key) == value for one in every)}


def _becomes(true: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)
