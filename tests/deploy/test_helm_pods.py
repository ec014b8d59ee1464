"""What the chart's pod may do, sees and is called; its network is in test_helm_network.py."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from deploy.kubernetes import CI, container, environment, of, pod, render
from requires import needs

pytestmark = needs("helm")

WRITABLE = {"requests"}
MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "gpu": {"gpu": {"enabled": True}},
    "kernel": {"ebpf": {"mode": "kernel"}},
    "programs": {"ebpf": {"mode": "programs"}},
    "others": {"privileges": {"otherUsers": True}},
    "log": {"privileges": {"kernelLog": True}},
    "requests": {"requests": {"enabled": True}},
}
UNPRIVILEGED = {
    "runAsNonRoot": True,
    "runAsUser": 10001,
    "runAsGroup": 10001,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
ROOT_USER = {"runAsUser": 0, "runAsGroup": 0, "readOnlyRootFilesystem": True}
CONTEXTS: dict[str, dict[str, Any]] = {
    "default": UNPRIVILEGED,
    "gpu": UNPRIVILEGED,
    "requests": UNPRIVILEGED,
    "kernel": ROOT_USER
    | {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"], "add": ["BPF", "PERFMON"]}},
    # Kubernetes takes no allowPrivilegeEscalation: false beside what implies it.
    "programs": ROOT_USER
    | {
        "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN", "SYS_PTRACE", "DAC_READ_SEARCH"]},
        "appArmorProfile": {"type": "Unconfined"},
    },
    "others": ROOT_USER
    | {"allowPrivilegeEscalation": False, "appArmorProfile": {"type": "Unconfined"}}
    | {"capabilities": {"drop": ["ALL"], "add": ["DAC_READ_SEARCH", "SYS_PTRACE"]}},
    "log": ROOT_USER | {"privileged": True, "capabilities": {"drop": ["ALL"]}},
}
MOUNTED = {
    "/proc": "/host/proc",
    "/sys": "/host/sys",
    "/var/log/pods": "/host/var/log/pods",
    "/var/log/containers": "/host/var/log/containers",
}


@pytest.mark.parametrize("mode", MODES)
def test_what_the_container_may_do(mode: str) -> None:
    resources = render(MODES[mode])
    assert container(resources)["securityContext"] == CONTEXTS[mode]
    user = container(resources)["securityContext"]["runAsUser"]
    # Root reads settings and names of pods as their owner, another user as one of their groups.
    group = {} if user == 0 else {"fsGroup": user, "supplementalGroups": [0]}
    assert pod(resources)["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}} | group


def test_the_most_of_all_is_root_with_what_each_takes() -> None:
    context = container(render({"ebpf": {"mode": "programs"}, "privileges": {"kernelLog": True, "otherUsers": True}}))[
        "securityContext"
    ]
    assert context["capabilities"]["add"] == ["SYS_ADMIN", "SYS_PTRACE", "DAC_READ_SEARCH"]
    assert context["privileged"] is True
    assert "allowPrivilegeEscalation" not in context


def test_no_token_of_the_api_server() -> None:
    for values in CI:
        resources = render(values)
        assert pod(resources)["automountServiceAccountToken"] is False
        assert pod(resources)["enableServiceLinks"] is False
        for one in resources:
            assert one["kind"] not in ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
            assert one["kind"] != "ServiceAccount" or one["automountServiceAccountToken"] is False


@pytest.mark.parametrize("mode", MODES)
def test_what_is_mounted_of_the_node(mode: str) -> None:
    resources = render(MODES[mode])
    more = {"kernel": {"/sys/kernel/tracing"}, "programs": {"/sys/kernel/tracing"}, "log": {"/dev/kmsg"}}
    expected = MOUNTED | {path: f"/host{path}" if mode == "log" else path for path in more.get(mode, ())}
    if mode == "requests":
        expected |= {"/run/oomcast": "/run/oomcast"}
    volumes = {one["name"]: one for one in pod(resources)["volumes"]}
    mounts = {one["name"]: one for one in container(resources)["volumeMounts"]}
    assert volumes.keys() == mounts.keys()
    host = {name: one["hostPath"] for name, one in volumes.items() if "hostPath" in one}
    assert {host[name]["path"]: mounts[name]["mountPath"] for name in host} == expected
    # Without a type, what is missing on a node would be made there, as an empty directory.
    assert all(one["type"] in ("Directory", "CharDevice", "DirectoryOrCreate") for one in host.values())
    assert {name for name, one in host.items() if one["type"] == "DirectoryOrCreate"} == set(host) & WRITABLE


@pytest.mark.parametrize("values", CI, ids=lambda path: path.name.removesuffix("-values.yaml"))
def test_nothing_of_the_node_can_be_written_but_the_directory_of_the_socket(values: Path) -> None:
    resources = render(values)
    for one in container(resources)["volumeMounts"]:
        assert (one.get("readOnly") is True) != (one["name"] in WRITABLE), one
        # What is mounted below the host's /sys is no part of a mount that is read-only by itself.
        if one["mountPath"] in MOUNTED.values():
            assert one["recursiveReadOnly"] == "IfPossible"
            # Kubernetes refuses the one beside the other.
            assert "mountPropagation" not in one


@pytest.mark.parametrize("mode", ["default", "kernel", "others", "log"])
def test_the_directory_of_the_socket_is_given_to_the_daemon(mode: str) -> None:
    resources = render(MODES["requests"] | MODES[mode])
    (first,) = pod(resources)["initContainers"]
    user = container(resources)["securityContext"]["runAsUser"]
    assert f"{user}, {user}" in first["command"][3]
    assert first["command"][-1] == "/run/oomcast"
    assert first["image"] == container(resources)["image"]
    assert first["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["CHOWN"]}
    assert first["securityContext"]["allowPrivilegeEscalation"] is False
    assert first["resources"]["requests"]["memory"] == first["resources"]["limits"]["memory"]
    assert "initContainers" not in pod(render(MODES[mode]))


def test_pids_of_the_host_only_where_they_are_named() -> None:
    assert {mode: pod(render(MODES[mode]))["hostPID"] for mode in MODES} == {
        mode: mode in ("gpu", "kernel", "programs") for mode in MODES
    }
    assert pod(render({"hostPID": True}))["hostPID"] is True
    assert pod(render(MODES["gpu"] | {"hostPID": False}))["hostPID"] is False


@pytest.mark.parametrize("values", CI, ids=lambda path: path.name.removesuffix("-values.yaml"))
def test_memory_is_promised_and_cpu_is_not_limited(values: Path) -> None:
    resources = container(render(values))["resources"]
    assert resources["requests"]["memory"] == resources["limits"]["memory"]
    assert resources["requests"]["cpu"]
    assert resources["limits"].keys() == {"memory"}


def test_ebpf_takes_more_memory() -> None:
    assert {mode: container(render(MODES[mode]))["resources"]["limits"]["memory"] for mode in MODES} == {
        mode: "512Mi" if mode in ("kernel", "programs") else "128Mi" for mode in MODES
    }


def test_it_outlives_what_it_watches_and_runs_on_every_linux() -> None:
    found = pod(render())
    assert found["priorityClassName"] == "system-node-critical"
    assert found["tolerations"] == [{"operator": "Exists"}]
    # Nodes with Windows have a taint at most, and all are tolerated.
    assert found["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert pod(render({"nodeSelector": {"a": "b"}}))["nodeSelector"] == {"a": "b", "kubernetes.io/os": "linux"}
    assert found["terminationGracePeriodSeconds"] <= 10
    strategy = of(render(), "DaemonSet")["spec"]["updateStrategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}}


def test_a_daemon_that_is_late_in_a_thrash_is_not_killed_for_it() -> None:
    probe = container(render())["livenessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 120


def test_gpus_are_looked_at_and_not_taken() -> None:
    resources = render(MODES["gpu"])
    assert pod(resources)["runtimeClassName"] == "nvidia"
    assert "runtimeClassName" not in pod(render())
    assert "runtimeClassName" not in pod(render({"gpu": {"enabled": True, "runtimeClassName": ""}}))
    found = environment(resources)
    assert (found["NVIDIA_VISIBLE_DEVICES"], found["NVIDIA_DRIVER_CAPABILITIES"]) == ("all", "utility")
    assert "NVIDIA_VISIBLE_DEVICES" not in environment(render())
    assert not any("nvidia" in name for part in container(resources)["resources"].values() for name in part)


def test_the_image_follows_version_and_ebpf() -> None:
    def image(**values: Any) -> str:
        mode = values.pop("mode", "off")
        found: str = container(render({"image": values, "ebpf": {"mode": mode}}))["image"]
        return found

    version = of(render(), "DaemonSet")["metadata"]["labels"]["app.kubernetes.io/version"]
    assert image() == f"oomcast:{version}"
    assert image(mode="kernel") == image(mode="programs") == f"oomcast:{version}-ebpf"
    assert image(tag="2.0", mode="kernel", repository="r/o") == "r/o:2.0-ebpf"
    assert image(tag="2.0", digest=f"sha256:{'a' * 64}", mode="kernel") == f"oomcast@sha256:{'a' * 64}"
    # An off without quotes is a false by the time it is here.
    assert image(mode=False) == f"oomcast:{version}"


def test_pods_of_two_releases_are_told_apart() -> None:
    one, other = (of(render(release=name), "DaemonSet")["spec"] for name in ("gpu", "cpu"))
    for spec, another in itertools.permutations((one, other)):
        selector = spec["selector"]["matchLabels"].items()
        assert selector <= spec["template"]["metadata"]["labels"].items()
        assert not selector <= another["template"]["metadata"]["labels"].items()


def test_labels_of_ones_own_join_and_cannot_replace_those_that_select() -> None:
    given = {"team": "a", "app.kubernetes.io/name": "else"}
    found = of(render({"labels": given, "podLabels": given | {"tier": "node"}}), "DaemonSet")
    for labels in (found["metadata"]["labels"], found["spec"]["template"]["metadata"]["labels"]):
        assert labels["app.kubernetes.io/name"] == "oomcast"
        assert labels["team"] == "a"
    assert found["spec"]["template"]["metadata"]["labels"]["tier"] == "node"
