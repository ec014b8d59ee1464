"""What docs/scale.md tells people to write into their configurations, tried by real Prometheus."""

import json
import re
import shutil
import subprocess
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from alerts.shipped import KINDS
from e2e.prometheuses import Prometheus, newest, on_each
from e2e.stack import fetch, prometheus, serving
from requires import needs

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "scale.md"
RULES = ROOT / "alerts" / "oomcast.rules.yml"
FLEET = ROOT / "deploy" / "prometheus" / "fleet.rules.yml"
SHARDS = 8
NODES = [f"gpu-{number:03}" for number in range(200)]


def block(begin: str) -> str:
    """The code of the page whose first line begins so."""
    blocks = [
        re.sub(r"^    ", "", found, flags=re.M) for found in re.findall(r"(?:^(?:    .*)?\n)+", PAGE.read_text(), re.M)
    ]
    (one,) = [text.strip("\n") + "\n" for text in blocks if text.strip("\n").startswith(begin)]
    return one


def sharded(shard: int, nodes: list[str]) -> dict[str, Any]:
    """As the page tells to change it for each."""
    text = block("# prometheus.yml of the first of 8")
    config: dict[str, Any] = yaml.safe_load(text.replace("oomcast-0", f"oomcast-{shard}").replace('"0"', f'"{shard}"'))
    for job in config["scrape_configs"]:
        if job["job_name"] == "oomcast":
            job["static_configs"] = [
                {"targets": [f"{node}:19128" for node in nodes], "labels": {"cluster": "inference"}}
            ]
            job.pop("file_sd_configs", None)
    return config


def check(which: Prometheus, *arguments: str) -> str:
    done = subprocess.run(
        [which.promtool, "check", *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@needs("prometheus")
@on_each()
def test_each_generation_takes_it_with_the_rules_beside_it(which: Prometheus, tmp_path: Path) -> None:
    for file in (RULES, FLEET):
        shutil.copy(file, tmp_path)
    (tmp_path / "nodes.json").write_text("[]")
    path = tmp_path / "prometheus.yml"
    path.write_text(block("# prometheus.yml of the first of 8"))
    assert check(which, "config", str(path)).count("rules found") == 2


@needs("prometheus")
def test_each_node_is_scraped_by_one_shard(tmp_path: Path) -> None:
    every: list[str] = []
    for shard in range(SHARDS):
        path = tmp_path / f"{shard}.yml"
        config = sharded(shard, NODES)
        config["rule_files"] = []
        path.write_text(yaml.safe_dump(config))
        said = check(newest(), "service-discovery", "--timeout=1s", str(path), "oomcast")
        kept = [one["labels"] for one in json.loads(said[said.index("[") :]) if one.get("labels")]
        assert {labels["cluster"] for labels in kept} == {"inference"}
        own = [labels["node"] for labels in kept]
        # 25 each, more or less: a shard with half as many again would be an uneven hash.
        assert 12 <= len(own) <= 38
        every += own
    assert sorted(every) == NODES


class Kubernetes(BaseHTTPRequestHandler):
    """What kube-state-metrics tells of nodes with GPUs."""

    def do_GET(self) -> None:
        lines = [f'kube_node_status_capacity{{node="{node}",resource="nvidia_com_gpu"}} 8\n' for node in NODES]
        body = "".join(lines).encode()
        self.send_response(200)
        self.send_header("content-type", "text/plain; version=0.0.4")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@needs("prometheus")
@pytest.mark.parametrize("divided", [True, False])
def test_nodes_of_other_shards_are_not_uncovered(divided: bool, tmp_path: Path) -> None:
    """Without the same division of kube-state-metrics each shard would tell of the nodes of all others."""
    config = sharded(3, NODES)
    config["rule_files"] = []
    config["remote_write"] = []
    config["global"]["scrape_interval"] = "1s"
    nodes, kubernetes = config["scrape_configs"]
    # Nobody listens there: that they are known to it is what counts.
    nodes["relabel_configs"].append({"target_label": "__address__", "replacement": "127.0.0.1:9"})
    if not divided:
        del kubernetes["metric_relabel_configs"]
    with serving(Kubernetes) as url:
        kubernetes["static_configs"] = [{"targets": [url.removeprefix("http://").rstrip("/")]}]
        with prometheus(tmp_path, yaml.safe_dump(config), newest()) as asked:
            mine = wait_for_value(asked, 'count(group by (node) (up{job="oomcast"}))')
            told = wait_for_value(asked, "count(kube_node_status_capacity)")
            assert ask(asked, 'count({__tmp_shard!=""})') == 0
            uncovered = ask(asked, f"count({expression('OomcastNodeUncovered')})")
    assert 12 <= mine <= 38
    assert (told, uncovered) == ((mine, 0) if divided else (len(NODES), len(NODES) - mine))


@pytest.mark.parametrize(
    "begin", ["# metric_relabel_configs: nothing reads these", "# metric_relabel_configs: without the detail"]
)
def test_what_is_dropped_is_read_by_no_rule(begin: str) -> None:
    dropped = [name for name in names() if drops(yaml.safe_load(block(begin)), name)]
    read = RULES.read_text() + FLEET.read_text()
    assert dropped
    assert not [name for name in dropped if re.search(rf"\b{name}\b", read)]


def test_nothing_at_all_reads_when_counters_began() -> None:
    (rule,) = yaml.safe_load(block("# metric_relabel_configs: nothing reads these"))
    dropped = {name for name in names() if drops([rule], name)}
    assert dropped == {name for name in names() if name.endswith("_created")}
    boards = "".join(file.read_text() for file in (ROOT / "grafana" / "dashboards").glob("*.json"))
    assert not [name for name in dropped if name in boards]
    assert rule in sharded(0, NODES)["scrape_configs"][0]["metric_relabel_configs"]


def test_the_command_names_all_that_rules_read(tmp_path: Path) -> None:
    for file in (RULES, FLEET):
        shutil.copy(file, tmp_path)
    command = block("grep ").replace("\\\n", " ")
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    kept = re.compile(done.stdout.strip())
    read = {
        name for name in KINDS for text in (RULES.read_text(), FLEET.read_text()) if re.search(rf"\b{name}\b", text)
    }
    assert len(read) > 50
    assert not [name for name in read | {"process_start_time_seconds"} if not kept.fullmatch(name)]
    assert not kept.fullmatch("oomcast_cgroup_memory_used_bytes")


def names() -> set[str]:
    """Of all series that there can be."""
    ends = {"counter": ("_created",), "histogram": ("_bucket", "_count", "_sum", "_created")}
    return {
        f"{name.removesuffix('_total')}{end}" if end else name
        for name, kind in KINDS.items()
        if name.startswith("oomcast_")
        for end in ("", *ends.get(kind, ()))
    }


def drops(rules: list[dict[str, Any]], name: str) -> bool:
    """As Prometheus has it: a regex is of the whole name."""
    (rule,) = rules
    assert (rule["source_labels"], rule["action"]) == (["__name__"], "drop")
    return re.fullmatch(rule["regex"], name) is not None


def expression(alert: str) -> str:
    every = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    (expr,) = [rule["expr"] for rule in every if rule.get("alert") == alert]
    text: str = expr
    return text


def ask(url: str, expr: str) -> float:
    """0 where there is no series."""
    data = json.loads(fetch(f"{url}/api/v1/query?{urlencode({'query': expr})}"))["data"]["result"]
    return float(data[0]["value"][1]) if data else 0.0


def wait_for_value(url: str, expr: str, seconds: float = 60) -> float:
    """The first one above 0, once it stays."""
    until = time.monotonic() + seconds
    last = 0.0
    while not last or ask(url, expr) != last:
        assert time.monotonic() < until, expr
        last = ask(url, expr)
        time.sleep(3)
    return last
