"""deploy/compose: what it says, and its Prometheus, Alertmanager and daemon at work together.

There is no docker here, nor any image but oomcast's, which tests/deploy/test_image.py starts by the same file.
Prometheus and Alertmanager are this machine's, in containers with the rules, commands and mounts of the file. Grafana
is not to be had: of it only what the file says is compared with what is mounted.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

import oomcast
from deploy import composed
from deploy.containers import Container, container
from e2e.prometheuses import Prometheus, newest, on_each
from e2e.stack import RULES, process
from oomcast.settings import Http
from requires import needs

ROOT = composed.DIRECTORY.parents[1]
PORT = Http().address[1]
SERVICES = composed.services()
LIBRARIES = {"/usr/lib": "/lib", "/usr/lib64": "/lib64", "/usr/share/prometheus": "/usr/share/prometheus"}
"""What Debian's programs need, and those of the images have in them."""


@needs("helm")  # check-jsonschema is set up with it
@pytest.mark.parametrize("name", ["compose.yaml", "compose.gpu.yaml"])
def test_the_specification_allows_it(name: str) -> None:
    program = Path(sys.executable).with_name("check-jsonschema")
    argv = [str(program), "--builtin-schema", "vendor.compose-spec", str(composed.DIRECTORY / name)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout


def test_with_gpus_nothing_contradicts_the_first_file() -> None:
    # What compose refuses though the specification's schema has no objection: two names for one thing, of two values.
    ((name, gpu),) = composed.services(composed.DIRECTORY / "compose.gpu.yaml").items()
    plain, resources = SERVICES[name], gpu["deploy"]["resources"]
    assert resources.keys() == {"reservations"}
    assert resources["reservations"]["memory"] == plain["mem_reservation"]
    assert not gpu.keys() & plain.keys()


def test_whatever_it_mounts_is_there() -> None:
    for service in SERVICES.values():
        for target, source in composed.binds(service).items():
            assert source.exists(), target
            assert Path(target).suffix == source.suffix, target
    build = SERVICES["oomcast"]["build"]
    assert (
        f"\nFROM base AS {build['target']}\n"
        in (composed.DIRECTORY / build["context"] / build["dockerfile"]).read_text()
    )


def test_nobody_has_more_rights_than_needed() -> None:
    for name, service in SERVICES.items():
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert not {"privileged", "pid", "ipc", "userns_mode"} & set(service)
        assert service.get("cap_add", []) == (["SYSLOG"] if name == "oomcast" else [])
        assert service.get("read_only", False) is (name != "grafana")


def test_it_outlives_what_it_forecasts_as_the_unit_does() -> None:
    unit = (ROOT / "deploy/systemd/oomcast.service").read_text()
    told = dict(re.findall(r"^(\w+)=(\S+)$", unit, re.MULTILINE))
    daemon = SERVICES["oomcast"]
    assert daemon["oom_score_adj"] == int(told["OOMScoreAdjust"])
    assert daemon["pids_limit"] == int(told["TasksMax"])
    limit = composed.megabytes(told["MemoryMax"])
    assert [composed.megabytes(daemon[key]) for key in ("mem_limit", "mem_reservation", "memswap_limit")] == [limit] * 3


def test_versions_are_pinned_and_ours_is_this_one() -> None:
    assert SERVICES["oomcast"]["image"] == f"oomcast:{oomcast.__version__}"
    assert SERVICES["oomcast"]["build"]["args"] == {"VERSION": oomcast.__version__}
    for name, service in SERVICES.items():
        assert re.fullmatch(rf"[\w/]*{name}:v?\d+\.\d+\.\d+", service["image"])
    lines = re.findall(r"^    image: (.*)$", composed.FILE.read_text(), re.MULTILINE)
    assert all("_VERSION:-" in line for line in lines)


def test_addresses_are_loopback_and_fit_each_other() -> None:
    assert all(service["network_mode"] == "host" for service in SERVICES.values())
    daemon = SERVICES["oomcast"]
    assert daemon["environment"]["OOMCAST_HTTP__LISTEN"] == f"127.0.0.1:{PORT}"
    assert f'"http://127.0.0.1:{PORT}/-/healthy"' in daemon["healthcheck"]["test"][-1]
    config = yaml.safe_load((composed.DIRECTORY / "prometheus.yml").read_text())
    assert config["scrape_configs"][0]["static_configs"][0]["targets"] == [f"127.0.0.1:{PORT}"]
    listening = {}
    for name in ("prometheus", "alertmanager"):
        (listening[name],) = re.findall(r"--web.listen-address=(127\.0\.0\.1:\d+)", " ".join(SERVICES[name]["command"]))
        assert f"http://{listening[name]}" in SERVICES[name]["healthcheck"]["test"][-1]
    assert config["alerting"]["alertmanagers"][0]["static_configs"] == [{"targets": [listening["alertmanager"]]}]
    (source,) = yaml.safe_load((ROOT / "grafana/provisioning/datasources/oomcast.yaml").read_text())["datasources"]
    assert source["url"].replace("localhost", "127.0.0.1") == f"http://{listening['prometheus']}"


def test_grafana_finds_the_boards() -> None:
    grafana = SERVICES["grafana"]
    (provider,) = yaml.safe_load((ROOT / "grafana/provisioning/dashboards/oomcast.yaml").read_text())["providers"]
    mounted = composed.binds(grafana)[provider["options"]["path"]]
    home = Path(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert str(home.parent) == provider["options"]["path"]
    assert (mounted / home.name).exists()
    assert "/etc/grafana/provisioning" in composed.binds(grafana)
    assert grafana["environment"]["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
    assert f":{grafana['environment']['GF_SERVER_HTTP_PORT']}/api/health" in grafana["healthcheck"]["test"][-1]


def test_prometheus_differs_from_the_one_for_many_nodes_in_its_targets_only() -> None:
    ours = yaml.safe_load((composed.DIRECTORY / "prometheus.yml").read_text())
    others = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    (job,), (other,) = ours.pop("scrape_configs"), others.pop("scrape_configs")
    assert ours == others
    assert job.keys() <= other.keys()
    assert job["job_name"] == other["job_name"]
    assert job["static_configs"][0]["labels"].keys() == {"cluster", "node"}


@needs("prometheus")
@on_each()
def test_their_own_tools_understand_the_configurations(which: Prometheus, tmp_path: Path) -> None:
    for name in ("prometheus", "alertmanager"):
        for target, source in composed.binds(SERVICES[name]).items():
            (tmp_path / target[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, tmp_path / target[1:])
    rules = sum(len(group["rules"]) for group in yaml.safe_load(RULES.read_text())["groups"])
    said = _tool(which.promtool, "check", "config", tmp_path / "etc/prometheus/prometheus.yml")
    assert f"SUCCESS: {rules} rules found" in said
    _tool(which.amtool, "check-config", tmp_path / "etc/alertmanager/alertmanager.yml")
    templates = f"--template.glob={tmp_path}/etc/alertmanager/templates/*.tmpl"
    text = '--template.text={{ template "oomcast.grafana" . }}'
    assert _tool(which.amtool, "template", "render", templates, text).strip() == "http://localhost:3000"


@needs("prometheus", "buildah")
def test_the_target_is_up_and_alerts_arrive(tmp_path: Path) -> None:
    with _started(tmp_path, "alertmanager", "bin/prometheus-alertmanager", None) as alertmanager:
        network = alertmanager.pid
        with _started(tmp_path, "prometheus", "bin/prometheus", network) as prometheus, _daemon(tmp_path, network):
            (target,) = _until(
                prometheus,
                "9090/api/v1/targets",
                lambda said: said["data"]["activeTargets"],
                lambda one: one["health"] == "up",
            )
            assert target["labels"] == {
                "cluster": "inference",
                "instance": f"127.0.0.1:{PORT}",
                "job": "oomcast",
                "node": "gpu-01",
            }
            groups = json.loads(prometheus.fetch("http://127.0.0.1:9090/api/v1/rules"))["data"]["groups"]
            shipped = yaml.safe_load(RULES.read_text())["groups"]
            assert {group["name"]: len(group["rules"]) for group in groups} == {
                group["name"]: len(group["rules"]) for group in shipped
            }
            watchdog = _until(
                alertmanager,
                "9093/api/v2/alerts",
                lambda said: said,
                lambda alert: alert["labels"]["alertname"] == "OomcastWatchdog",
            )
            assert watchdog[0]["labels"]["cluster"] == "inference"
            for name, one in (("prometheus", prometheus), ("alertmanager", alertmanager)):
                done = one.execute(*SERVICES[name]["healthcheck"]["test"][1:])
                assert done.returncode == 0, done.stderr
            assert alertmanager.end()[0] == 0
            # Each check fails as soon as what it asks is gone.
            assert prometheus.execute("amtool", *SERVICES["alertmanager"]["healthcheck"]["test"][2:]).returncode != 0
            assert prometheus.end()[0] == 0


@contextmanager
def _started(directory: Path, name: str, program: str, network: int | None) -> Iterator[Container]:
    """A service, of which the programs are this machine's; its volumes are empty directories."""
    home, tools = directory / name, newest().prometheus.parent
    root, data = home / "root", home / "data"
    root.mkdir(parents=True)
    data.mkdir()
    os.chown(data, 65534, 65534)
    service = SERVICES[name]
    (volume,) = composed.volumes(service)
    binds = {
        **{str(source): target for target, source in composed.binds(service).items()},
        **LIBRARIES,
        str(tools): "/bin",
    }
    # The user of both images.
    rules = composed.rules(service, user="65534:65534", binds=binds, volumes={str(data): volume}, network=network)
    image = {"Entrypoint": [f"/{program}"], "Cmd": service["command"], "Env": ["PATH=/bin"]}
    with container(home / f"compose-{name}", root, image, rules) as one:
        yield one


@contextmanager
def _daemon(directory: Path, network: int) -> Iterator[None]:
    """That of this checkout, with the settings of the service, in the network of the others."""
    service = SERVICES["oomcast"]
    settings = {
        "OOMCAST_HTTP__LISTEN": service["environment"]["OOMCAST_HTTP__LISTEN"],
        "OOMCAST_CONFIG": str(composed.binds(service)[service["environment"]["OOMCAST_CONFIG"]]),
    }
    argv = ["nsenter", "--net", "--target", str(network), sys.executable, "-m", "oomcast", "run"]
    with process(argv, directory / "oomcast.log", settings):
        yield


def _until(
    one: Container, page: str, part: Callable[[Any], list[Any]], wanted: Callable[[Mapping[str, Any]], bool]
) -> list[Any]:
    """What of a page is as wanted, as soon as something is. A scrape and an evaluation take 15 s each to begin."""
    end = time.monotonic() + 240
    while True:
        said = one.wait_for(f"http://127.0.0.1:{page}")
        found = [entry for entry in part(json.loads(said)) if wanted(entry)]
        if found:
            return found
        assert time.monotonic() < end, f"{said[:2000]}\n{one.log[-2000:]}"
        time.sleep(0.5)


def _tool(program: Path, *arguments: str | Path) -> str:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
