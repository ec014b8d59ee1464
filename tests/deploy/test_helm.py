"""The chart: what it makes is valid in each Kubernetes, what is misspelt is refused, and what is packed is whole."""

import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.kubernetes import CHART, CI, ROOT, VERSIONS, documents, helm, of, pod, problems, refused, render
from oomcast import __version__
from requires import needs

pytestmark = needs("helm")

MOST = 1 << 20
"""Bytes that a cluster stores of one object, and of a release."""


def test_lint_finds_nothing() -> None:
    for values in CI:
        done = helm("lint", "--strict", CHART, "--values", values)
        assert done.code == 0, done.out + done.err
        assert not re.search(r"\[(WARNING|ERROR)\]", done.out)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("values", CI, ids=lambda path: path.name.removesuffix("-values.yaml"))
def test_every_kubernetes_takes_what_it_makes(values: Path, version: str) -> None:
    resources = render(values, version)
    assert {one["kind"] for one in resources} >= {"DaemonSet", "ConfigMap"}
    for one in resources:
        assert problems(one, version) == []


def test_fields_that_a_kubernetes_does_not_know_yet_are_left_out() -> None:
    def newer(version: str) -> tuple[bool, bool, str | None]:
        resources = render({"ebpf": {"mode": "programs"}}, version)
        text = json.dumps(pod(resources))
        annotations = of(resources, "DaemonSet")["spec"]["template"]["metadata"]["annotations"]
        named = annotations.get("container.apparmor.security.beta.kubernetes.io/oomcast")
        return "recursiveReadOnly" in text, "appArmorProfile" in text, named

    assert newer("1.29") == (False, False, "unconfined")
    assert newer("1.30") == (False, True, None)
    assert newer("1.31") == (True, True, None)


def test_an_older_kubernetes_is_refused() -> None:
    done = helm("template", "oomcast", CHART, "--kube-version", "1.28")
    assert done.code
    assert "incompatible with Kubernetes" in done.err


@pytest.mark.parametrize(
    ("kind", "old", "new", "said"),
    [
        ("DaemonSet", '"hostNetwork"', '"hostNetwerk"', "hostNetwerk"),
        ("DaemonSet", '"readOnlyRootFilesystem"', '"readonlyRootFilesystem"', "readonlyRootFilesystem"),
        ("DaemonSet", '"maxUnavailable"', '"maxUnavailible"', "maxUnavailible"),
        ("DaemonSet", '"containerPort": 19128', '"containerPort": "19128"', "19128"),
        ("NetworkPolicy", '"policyTypes"', '"policyType"', "policyType"),
        ("PodMonitor", '"sourceLabels"', '"source_labels"', "source_labels"),
        ("PodMonitor", '"targetLabel"', '"targetlabel"', "targetlabel"),
        ("PodMonitor", '"interval": "30s"', '"interval": "30 s"', "30 s"),
        ("PodMonitor", '"drop"', '"dorp"', "dorp"),
        ("PrometheusRule", '"for"', '"fro"', "fro"),
        ("PrometheusRule", '"keep_firing_for"', '"keepFiringFor"', "keepFiringFor"),
        ("PrometheusRule", '"groups"', '"group"', "group"),
        ("PrometheusRule", '"severity": "critical"', '"severity": 1', "1"),
    ],
)
def test_what_is_misspelt_is_found(kind: str, old: str, new: str, said: str) -> None:
    values: dict[str, Any] = yaml.safe_load((CHART / "ci" / "operator-values.yaml").read_text())
    resource = of(render(values | {"networkPolicy": {"enabled": True}}), kind)
    assert problems(resource, VERSIONS[-1]) == []
    text = json.dumps(resource)
    assert old in text
    found = problems(json.loads(text.replace(old, new)), VERSIONS[-1])
    assert any(said in one for one in found)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"hostNetwerk": True}, "additional properties 'hostNetwerk' not allowed"),
        ({"image": {"Tag": "1"}}, "at '/image': additional properties 'Tag' not allowed"),
        ({"image": {"digest": "sha256:abc"}}, "at '/image/digest'"),
        ({"port": 70000}, "at '/port': maximum: got 70,000, want 65,535"),
        ({"port": "19128"}, "at '/port': got string, want integer"),
        ({"ebpf": {"mode": "full"}}, "at '/ebpf/mode': value must be one of 'off', 'kernel', 'programs'"),
        ({"ebpf": {"mode": True}}, "at '/ebpf/mode'"),
        ({"resources": {"memory": "128 MB"}}, "at '/resources/memory': '128 MB' does not match pattern"),
        ({"resources": {"limits": {"cpu": 1}}}, "at '/resources': additional properties 'limits' not allowed"),
        ({"updateStrategy": {"maxUnavailable": "none"}}, "at '/updateStrategy/maxUnavailable'"),
        ({"updateStrategy": {"maxUnavailable": "0%"}}, "at '/updateStrategy/maxUnavailable'"),
        ({"gpu": None}, "missing property 'gpu'"),
        ({"networkPolicy": {"enabled": True, "namespaceSelector": None}}, "would admit everybody"),
        ({"requests": {"directory": "run/oomcast"}}, "at '/requests/directory'"),
        ({"podMonitor": {"interval": "15"}}, "at '/podMonitor/interval': '15' does not match pattern"),
        ({"podMonitor": {"enabled": "yes"}}, "at '/podMonitor/enabled': got string, want boolean"),
        ({"prometheusRule": {"runbooks": "https://wiki.example.com/"}}, "at '/prometheusRule/runbooks'"),
        ({"labels": {"a": 1}}, "at '/labels/a': got number, want string"),
        ({"listen": "0.0.0.0"}, "at '/listen': value must be one of 'node', 'all'"),
        ({"web": {"config": {"a": 1}, "existingSecret": "b"}}, "web has both config and existingSecret"),
        ({"config": {"http": {"listen": ":1"}}}, "config.http.listen: set port, listen and hostNetwork instead"),
        ({"config": {"http": {"web_config": "a"}}}, "config.http.web_config: set web instead"),
        ({"config": {"paths": {"host": "/"}}}, "config.paths: the chart mounts the node below /host"),
        ({"config": {"collectors": {"ebpf": {"enabled": True}}}}, "config.collectors.ebpf.enabled: set ebpf.mode"),
    ],
    ids=str,
)
def test_wrong_values_are_refused_with_the_reason(values: dict[str, Any], said: str) -> None:
    assert said in refused(values)


@pytest.mark.parametrize("name", ["123", "true", "1e5"])
def test_names_that_yaml_takes_for_something_else_stay_names(name: str) -> None:
    every = {key: {"enabled": True} for key in ("networkPolicy", "prometheusRule", "requests", "gpu")}
    names = {"fullnameOverride": name, "priorityClassName": name, "serviceAccount": {"name": name}}
    web = {"tlsSecret": name, "config": {"http_server_config": {"http2": False}}}
    values = every | names | {"web": web, "podMonitor": {"enabled": True, "namespace": name}}
    done = helm("template", name, CHART, "--namespace", name, "--values", "-", given=json.dumps(values))
    assert done.code == 0, done.err
    for one in documents(done.out):
        assert problems(one, VERSIONS[-1]) == []
        assert one["metadata"]["namespace"] == name
    # The other choice of secrets and of what the name comes from.
    values = {"web": {"existingSecret": name}}
    done = helm("template", name, CHART, "--namespace", name, "--values", "-", given=json.dumps(values))
    assert [found for one in documents(done.out) for found in problems(one, VERSIONS[-1])] == []


@pytest.mark.parametrize("key", ["labels", "annotations", "podLabels", "podAnnotations", "config", "nodeSelector"])
def test_what_is_null_is_empty(key: str) -> None:
    for one in render({key: None}):
        assert problems(one, VERSIONS[-1]) == []


def test_every_object_that_the_schema_describes_is_closed() -> None:
    open_ones = {"global", "config", "affinity", "tlsConfig", "basicAuth", "authorization"}

    def check(schema: dict[str, Any], name: str) -> None:
        if "properties" in schema:
            assert schema["additionalProperties"] is False, name
            for key, inner in schema["properties"].items():
                check(inner, key)
        elif schema.get("type") == "object":
            assert name in open_ones, name

    schema = json.loads((CHART / "values.schema.json").read_text())
    check(schema, "")
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    assert [*schema["properties"]] == ["global", "enabled", *defaults]
    for name, section in defaults.items():
        if "properties" in schema["properties"][name] and name not in ("seccompProfile", "seLinuxOptions"):
            assert [*schema["properties"][name]["properties"]] == [*section]


def test_the_chart_is_part_of_another() -> None:
    # What a parent chart hands down must not be refused.
    assert render({"global": {"imageRegistry": "x"}, "enabled": True})


def test_the_readme_has_every_value_with_its_default() -> None:
    text = (CHART / "README.md").read_text()
    rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \| .*\|$", text[text.index("## Values") :], re.MULTILINE)
    assert [(name, json.loads(value)) for name, value in rows] == [*_leaves(json.loads(_defaults()))]


def test_what_the_readme_links_to_is_there() -> None:
    for file in (CHART / "README.md", ROOT / "deploy" / "kustomize" / "README.md"):
        links = re.findall(r"\]\(([^)#]+)", file.read_text())
        assert len(links) >= 3
        for link in links:
            assert (file.parent / link).exists(), link


def test_the_chart_has_the_version_of_the_daemon() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__


def test_what_is_packed_is_all_that_is_needed(tmp_path: Path) -> None:
    done = helm("package", CHART, "--destination", tmp_path)
    assert done.code == 0, done.err
    (package,) = tmp_path.iterdir()
    assert package.name == f"oomcast-{__version__}.tgz"
    with tarfile.open(package) as archive:
        names = {name.removeprefix("oomcast/") for name in archive.getnames()}
    there = {str(path.relative_to(CHART)) for path in CHART.rglob("*") if path.is_file()}
    assert names == {name for name in there if not name.startswith(("ci/", "."))}
    assert "files/oomcast.rules.yml" in names
    from_package = helm("template", "oomcast", package, "--values", CHART / "ci" / "all-on-values.yaml")
    from_folder = helm("template", "oomcast", CHART, "--values", CHART / "ci" / "all-on-values.yaml")
    assert from_package == from_folder
    # A release is kept in one object: the chart and what came of it, packed and then in base64.
    assert (package.stat().st_size + len(from_package.out) / 4) * 4 / 3 < MOST


def test_the_notes_say_what_a_release_lacks() -> None:
    def notes(*settings: str) -> str:
        given = [part for one in settings for part in ("--set", one)]
        done = helm("install", "--dry-run=client", "oomcast", CHART, *given)
        assert done.code == 0, done.err
        return done.out[done.out.index("NOTES:") :]

    plain = notes()
    assert "pod-security.kubernetes.io/enforce=privileged" in plain
    assert "names no registry" in plain
    assert "Without privileges.kernelLog" in plain
    assert "Nothing scrapes it yet" in plain
    assert "takes privileges.otherUsers" in notes("config.collectors.engine.discover=true")
    assert "likely without effect" in notes("networkPolicy.enabled=true")
    settled = notes(
        "image.repository=registry.example.com/oomcast", "privileges.kernelLog=true", "podMonitor.enabled=true",
        "web.tlsSecret=tls", "config.collectors.engine.discover=true", "hostNetwork=false",
        "networkPolicy.enabled=true",
    )  # fmt: skip
    assert "by https" in settled
    for text in ("no registry", "Without privileges", "Nothing scrapes", "otherUsers", "without effect", "Whoever"):
        assert text not in settled


def _defaults() -> str:
    return json.dumps(yaml.safe_load((CHART / "values.yaml").read_text()))


def _leaves(values: dict[str, Any], above: str = "") -> Any:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield above + key, value
