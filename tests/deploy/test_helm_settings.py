"""What the chart makes of `config`, as the daemon reads it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.kubernetes import CHART, CI, environment, helm, of, pod, render, settings, settings_file
from oomcast.settings import SettingsError
from oomcast.webconfig import load as load_web
from requires import needs

pytestmark = needs("helm")


@pytest.mark.parametrize("values", CI, ids=lambda path: path.name.removesuffix("-values.yaml"))
def test_the_daemon_takes_the_settings(values: Path, tmp_path: Path) -> None:
    found = settings(render(values), tmp_path)
    assert found.paths.host == Path("/host")
    assert found.http.address[1] == (yaml.safe_load(values.read_text()) or {}).get("port", 19128)


def test_the_daemon_refuses_a_misspelt_key_of_config(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="unknown key, did you mean 'max_cgroups'"):
        settings(render({"config": {"collectors": {"cgroup": {"max_cgroup": 5}}}}), tmp_path)
    with pytest.raises(SettingsError, match="OOMCAST_LOG__LEVL: no setting has this environment variable"):
        settings(render({"extraEnv": [{"name": "OOMCAST_LOG__LEVL", "value": "debug"}]}), tmp_path)


def test_oomcast_check_says_so_too(tmp_path: Path) -> None:
    def check(config: dict[str, Any]) -> tuple[int, str]:
        (tmp_path / "oomcast.yaml").write_text(settings_file(render({"config": config})))
        command = [sys.executable, "-m", "oomcast", "check", "--config", str(tmp_path / "oomcast.yaml")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        return done.returncode, done.stderr

    # Whether each collector works on this machine is not the question.
    assert check({"log": {"level": "warning"}})[0] in (0, 3)
    code, said = check({"log": {"levle": "warning"}})
    assert code == 2
    assert "did you mean 'level'" in said


def test_whole_numbers_stay_whole(tmp_path: Path) -> None:
    config = {"collectors": {"ebpf": {"allocations": {"leak_bytes": 4294967296}}, "requests": {"uids": [4294967294]}}}
    found = settings(render({"config": config}), tmp_path)
    assert found.collectors["ebpf"].allocations.leak_bytes == 4294967296  # type: ignore[attr-defined] # a collector's own
    assert found.collectors["requests"].uids == (4294967294,)  # type: ignore[attr-defined] # a collector's own


def ebpf(values: dict[str, Any], folder: Path) -> tuple[bool, list[str]]:
    found = settings(render(values), folder).collectors["ebpf"]
    return found.enabled, list(found.probes)  # type: ignore[attr-defined] # a collector's own


def test_the_mode_of_ebpf_switches_on_what_it_can(tmp_path: Path) -> None:
    assert ebpf({}, tmp_path)[0] is False
    assert ebpf({"ebpf": {"mode": "kernel"}}, tmp_path) == (True, ["crashes", "oom_kills"])
    assert ebpf({"ebpf": {"mode": "programs"}}, tmp_path) == (True, ["allocations", "crashes", "oom_kills"])
    chosen = {"collectors": {"ebpf": {"probes": ["major_faults"]}}}
    assert ebpf({"ebpf": {"mode": "kernel"}, "config": chosen}, tmp_path) == (True, ["major_faults"])


def test_a_section_without_a_line_says_nothing(tmp_path: Path) -> None:
    # As in the example file, where all lines are comments.
    config: dict[str, Any] = {"log": None, "collectors": {"ebpf": None, "gpu": {"expected": None}}}
    assert ebpf({"ebpf": {"mode": "kernel"}, "config": config}, tmp_path) == (True, ["crashes", "oom_kills"])
    assert ebpf({"config": {"collectors": None, "http": None}}, tmp_path)[0] is False
    assert "Whoever reaches" in helm("install", "--dry-run=client", "a", CHART, "--set", "config.collectors=null").out


def test_the_socket_is_where_it_is_mounted(tmp_path: Path) -> None:
    values = {
        "requests": {"enabled": True, "directory": "/run/reports"},
        "config": {"collectors": {"requests": {"uids": [7]}}},
    }
    found = settings(render(values), tmp_path).collectors["requests"]
    assert (found.socket, found.uids) == (Path("/run/reports/requests.sock"), (7,))  # type: ignore[attr-defined] # its own
    assert settings(render(), tmp_path).collectors["requests"].socket is None  # type: ignore[attr-defined] # its own


def test_the_web_configuration_lies_beside_the_settings(tmp_path: Path) -> None:
    values = yaml.safe_load((CI[0].parent / "users-values.yaml").read_text())
    resources = render(values)
    assert settings(resources, tmp_path).http.web_config == tmp_path / "web.yml"
    secret = of(resources, "Secret")
    sources = pod(resources)["volumes"][0]["projected"]["sources"]
    assert sources == [
        {"configMap": {"name": "oomcast"}},
        {"secret": {"name": secret["metadata"]["name"]}},
        {"secret": {"name": "oomcast-tls"}},
    ]
    web = yaml.safe_load(secret["stringData"]["web.yml"])
    assert web.pop("tls_server_config") == {"cert_file": "tls.crt", "key_file": "tls.key"}
    # Without the certificate, which is the cluster's.
    (tmp_path / "web.yml").write_text(yaml.safe_dump(web))
    assert [*load_web(tmp_path / "web.yml").users] == ["prometheus"]


def test_a_secret_of_ones_own_is_mounted_and_none_is_made() -> None:
    resources = render({"web": {"existingSecret": "mine"}})
    assert [one for one in resources if one["kind"] == "Secret"] == []
    assert {"secret": {"name": "mine"}} in pod(resources)["volumes"][0]["projected"]["sources"]
    assert yaml.safe_load(settings_file(resources)) == {"http": {"web_config": "web.yml"}}


def test_a_change_rolls_the_pods_and_nothing_else_does() -> None:
    def template(values: dict[str, Any]) -> Any:
        return of(render(values), "DaemonSet")["spec"]["template"]

    assert template({}) == template({"dashboards": {"enabled": True}, "podMonitor": {"enabled": True}})
    one, other = (template({"config": {"log": {"level": level}}}) for level in ("debug", "info"))
    assert one != other
    one["metadata"]["annotations"].clear()
    other["metadata"]["annotations"].clear()
    assert one == other
    users = [{"web": {"config": {"basic_auth_users": {"a": word}}}} for word in ("b", "c")]
    assert template(users[0]) != template(users[1])
    assert template(users[0]) != template(users[0] | {"config": {"log": {"level": "debug"}}})


def test_variables_of_ones_own_come_last() -> None:
    assert [*environment(render({"extraEnv": [{"name": "A", "value": "b"}]}))][-1] == "A"
