"""The Helm chart and the Kustomize folders as a cluster would get them, and what is wrong with that."""

import functools
import importlib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from host import cache
from oomcast.settings import Settings, load
from oomcast_collectors.all import ALL

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "oomcast"
KUSTOMIZE = ROOT / "deploy" / "kustomize"
CI = sorted((CHART / "ci").glob("*-values.yaml"))
VERSIONS = ("1.29", "1.33", "1.37")
"""The oldest Kubernetes that the chart takes, one before the newest fields, and the newest that helm here knows."""

Resource = dict[str, Any]


class Outcome(NamedTuple):
    """Of a program: its exit status, and what it said on either output."""

    code: int
    out: str
    err: str


def helm(*arguments: str | Path, given: str = "") -> Outcome:
    return _call([cache() / "helm" / "helm", *arguments], given)


def kubectl(*arguments: str | Path, given: str = "") -> Outcome:
    return _call([cache() / "helm" / "kubectl", *arguments], given)


def render(
    values: Path | Mapping[str, Any] | None = None, version: str = "1.37", release: str = "oomcast"
) -> list[Resource]:
    """What a release in the namespace `apps` would make, with these values laid over the chart's."""
    if isinstance(values, Path):
        values = yaml.safe_load(values.read_text())
    return json.loads(_rendered(json.dumps(values or {}), version, release))  # type: ignore[no-any-return] # a fresh copy


def refused(values: Mapping[str, Any]) -> str:
    """What helm says against these values; raises AssertionError if it takes them."""
    done = _template(json.dumps(values), VERSIONS[-1], "oomcast")
    assert done.code, "the chart takes these values"
    return done.err


def build(folder: str) -> list[Resource]:
    """What kubectl makes of a Kustomize folder."""
    done = kubectl("kustomize", KUSTOMIZE / folder)
    assert done.code == 0, done.err
    assert done.err == ""
    return documents(done.out)


def documents(text: str) -> list[Resource]:
    return [one for one in yaml.safe_load_all(text) if one]


def of(resources: Sequence[Resource], kind: str) -> Resource:
    """The only one of its kind."""
    (found,) = (one for one in resources if one["kind"] == kind)
    return found


def pod(resources: Sequence[Resource]) -> Resource:
    """The pod's specification in the DaemonSet."""
    return of(resources, "DaemonSet")["spec"]["template"]["spec"]  # type: ignore[no-any-return] # YAML's


def container(resources: Sequence[Resource]) -> Resource:
    (only,) = pod(resources)["containers"]
    return only  # type: ignore[no-any-return] # YAML's


def environment(resources: Sequence[Resource], host: str = "192.0.2.7") -> dict[str, str]:
    """The container's variables as the kubelet would set them on a node with the address `host`."""
    found: dict[str, str] = {}
    for one in container(resources).get("env", []):
        if "valueFrom" in one:
            assert one["valueFrom"] == {"fieldRef": {"fieldPath": "status.hostIP"}}
            found[one["name"]] = host
        else:
            # Only those that come before are known to it.
            found[one["name"]] = one["value"].replace("$(HOST_IP)", found.get("HOST_IP", "$(HOST_IP)"))
    return found


def settings_file(resources: Sequence[Resource]) -> str:
    """The text of oomcast.yaml, from the ConfigMap that the pod mounts."""
    (volume,) = (one for one in pod(resources)["volumes"] if one["name"] == "settings")
    name = volume["projected"]["sources"][0]["configMap"]["name"]
    (found,) = (one for one in resources if one["kind"] == "ConfigMap" and one["metadata"]["name"] == name)
    return found["data"]["oomcast.yaml"]  # type: ignore[no-any-return] # YAML's


def settings(resources: Sequence[Resource], folder: Path, host: str = "192.0.2.7") -> Settings:
    """What the daemon makes of its settings in the pod. Raises SettingsError as it would."""
    file = folder / "oomcast.yaml"
    file.write_text(settings_file(resources))
    return load(file, environment(resources, host), ALL)


def problems(resource: Resource, version: str) -> list[str]:
    """What a cluster of that version, or the operator of Prometheus, would find wrong; unknown keys too."""
    if resource["apiVersion"].startswith("monitoring.coreos.com/"):
        return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in _operator(resource)]
    # Imported here, as only what `needs("helm")` runs has them.
    validate = importlib.import_module("kubernetes_validate")
    try:
        validate.validate(resource, version, strict=True)
    except validate.ValidationError as error:
        return [f"{'.'.join(map(str, error.path))}: {error.message}"]
    return []


def _operator(resource: Resource) -> Iterator[Any]:
    jsonschema = importlib.import_module("jsonschema")
    schema = json.loads((Path(__file__).parent / "schemas" / "operator.json").read_text())
    yield from jsonschema.Draft202012Validator(schema).iter_errors(resource)


@functools.cache
def _rendered(values: str, version: str, release: str) -> str:
    done = _template(values, version, release)
    assert done.code == 0, done.err
    return json.dumps(documents(done.out))


def _template(values: str, version: str, release: str) -> Outcome:
    arguments = ("template", release, CHART, "--namespace", "apps", "--kube-version", version, "--values", "-")
    return helm(*arguments, given=values)


def _call(command: Sequence[str | Path], given: str) -> Outcome:
    # No cluster of whoever runs the tests is asked.
    own = os.environ | {"KUBECONFIG": os.devnull}
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=120, env=own)
    return Outcome(done.returncode, done.stdout, done.stderr)
