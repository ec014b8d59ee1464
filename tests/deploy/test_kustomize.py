"""The Kustomize folders build, and are what the chart makes of the same choices."""

import copy
from pathlib import Path
from typing import Any

import pytest

from deploy.kubernetes import KUSTOMIZE, VERSIONS, Resource, build, container, of, pod, problems, render, settings
from oomcast import __version__
from requires import needs

pytestmark = needs("helm")

SAME: dict[str, dict[str, Any]] = {
    "base": {},
    "overlays/ebpf-kernel": {"ebpf": {"mode": "kernel"}},
    "overlays/ebpf-programs": {"ebpf": {"mode": "programs"}},
    "overlays/gpu": {"gpu": {"enabled": True}},
}


def test_every_folder_is_looked_at() -> None:
    folders = {str(path.parent.relative_to(KUSTOMIZE)) for path in KUSTOMIZE.rglob("kustomization.yaml")}
    assert {folder for folder in folders if not folder.startswith("components/")} == SAME.keys()
    components = {folder.removeprefix("components/") for folder in folders if folder.startswith("components/")}
    assert components == {folder.removeprefix("overlays/") for folder in SAME} - {"base"}


@pytest.mark.parametrize("folder", SAME)
def test_kubernetes_takes_it(folder: str) -> None:
    resources = build(folder)
    assert [one["kind"] for one in resources] == ["Namespace", "ServiceAccount", "ConfigMap", "DaemonSet"]
    for version in VERSIONS[1:]:
        for one in resources:
            assert problems(one, version) == []
    for one in resources[1:]:
        assert one["metadata"]["namespace"] == "oomcast"


@pytest.mark.parametrize("folder", SAME)
def test_it_is_what_the_chart_makes(folder: str, tmp_path: Path) -> None:
    built, charted = build(folder), render(SAME[folder])
    assert _common(of(built, "DaemonSet")) == _common(of(charted, "DaemonSet"))
    assert _common(of(built, "ServiceAccount")) == _common(of(charted, "ServiceAccount"))
    assert settings(built, tmp_path) == settings(charted, tmp_path)


def test_the_image_has_the_version_of_the_daemon() -> None:
    assert container(build("base"))["image"] == f"oomcast:{__version__}"


def test_the_namespace_admits_the_pods() -> None:
    labels = of(build("base"), "Namespace")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"


def test_components_go_together(tmp_path: Path) -> None:
    # A folder of one's own, as the README has it; kustomize wants relative paths.
    own = tmp_path / "own"
    own.mkdir()
    (own / "oomcast.yaml").write_text("log: {level: debug}\n")
    up = "../" * len(own.parts)
    at = f"{up}{str(KUSTOMIZE).lstrip('/')}"
    (own / "kustomization.yaml").write_text(
        "namespace: oomcast\n"
        f"resources: [{at}/base]\n"
        f"components: [{at}/components/gpu, {at}/components/ebpf-kernel]\n"
        "images: [{name: oomcast, newName: registry.example.com/oomcast}]\n"
        "configMapGenerator: [{name: oomcast, behavior: merge, files: [oomcast.yaml]}]\n"
    )
    resources = build(str(own))
    expected = render({"gpu": {"enabled": True}, "ebpf": {"mode": "kernel"}})
    of(expected, "DaemonSet")["spec"]["template"]["spec"]["containers"][0]["image"] = (
        f"registry.example.com/oomcast:{__version__}-ebpf"
    )
    assert _common(of(resources, "DaemonSet")) == _common(of(expected, "DaemonSet"))
    assert settings(resources, tmp_path).log.level == "debug"


def _common(resource: Resource) -> Resource:
    """Without what is the tools' own: names of the release, hashes, and in what order there is no meaning."""
    resource = copy.deepcopy(resource)
    metadata = resource["metadata"]
    del metadata["namespace"]
    for label in ("app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart"):
        metadata["labels"].pop(label, None)
    if resource["kind"] == "DaemonSet":
        resource["spec"]["template"]["metadata"].pop("annotations", None)
        spec = pod([resource])
        (only,) = spec["containers"]
        # Settings are compared as the daemon reads them.
        only["env"] = [one for one in only["env"] if not one["name"].startswith("OOMCAST_COLLECTORS__")]
        for part in (only["env"], only["volumeMounts"], spec["volumes"]):
            part.sort(key=lambda one: str(one["name"]))
        for volume in spec["volumes"]:
            if volume["name"] == "settings":
                (source,) = volume["projected"]["sources"]
                source["configMap"]["name"] = source["configMap"]["name"].split("-")[0]
    return resource
