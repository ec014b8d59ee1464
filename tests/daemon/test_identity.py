import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oomcast.identity import Identity, identify, owner, unescape
from oomcast.podnames import PodName

ID = "0123456789abcdef" * 4
ID2 = "fedcba9876543210" * 4
UID = "17efb6ec-09ab-4eec-8ad6-f953eb1a7466"
UID_ = UID.replace("-", "_")
UID2 = "74c13223-5a00-11e9-b385-42010a80018d"
HASH = "33d556edd3ae8ef21980288cef77ae8b"
KUBE = "/kubepods.slice"
BURST = f"{KUBE}/kubepods-burstable.slice"
POD_SLICE = f"kubepods-burstable-pod{UID_}.slice"
POD = f"{BURST}/{POD_SLICE}"
USER = "/user.slice/user-1000.slice/user@1000.service"

PATHS: dict[str, Identity] = {
    "/": Identity(),
    "": Identity(),
    "/foo/bar": Identity(),
    # systemd
    "/system.slice": Identity(unit="system.slice", slice="system.slice", runtime="systemd"),
    "/init.scope": Identity(unit="init.scope", runtime="systemd"),
    "/system.slice/vllm.service": Identity(unit="vllm.service", slice="system.slice", runtime="systemd"),
    "/system.slice/vllm.service/worker": Identity(unit="vllm.service", slice="system.slice", runtime="systemd"),
    "/system.slice/system-vllm.slice/vllm@gpu\\x2d0.service": Identity(
        unit="vllm@gpu-0.service", slice="system-vllm.slice", runtime="systemd"
    ),
    "/a.slice/a-b.slice": Identity(unit="a-b.slice", slice="a-b.slice", runtime="systemd"),
    "/system.slice/_memory.service": Identity(unit="memory.service", slice="system.slice", runtime="systemd"),
    "/system.slice/dev-hugepages.mount": Identity(unit="dev-hugepages.mount", slice="system.slice", runtime="systemd"),
    "/system.slice/lxc.service": Identity(unit="lxc.service", slice="system.slice", runtime="systemd"),
    "/user.slice/user-1000.slice": Identity(
        unit="user-1000.slice", slice="user-1000.slice", runtime="systemd", uid="1000"
    ),
    "/user.slice/user-1000.slice/session-3.scope": Identity(
        unit="session-3.scope", slice="user-1000.slice", runtime="systemd", uid="1000"
    ),
    f"{USER}/app.slice/x.service": Identity(unit="x.service", slice="app.slice", runtime="systemd", uid="1000"),
    # a .mount unit with a container's id in it is not the container
    f"/system.slice/var-lib-docker-containers-{ID}-mounts-shm.mount": Identity(
        unit=f"var-lib-docker-containers-{ID}-mounts-shm.mount", slice="system.slice", runtime="systemd"
    ),
    f"/system.slice/docker-{ID}.mount": Identity(unit=f"docker-{ID}.mount", slice="system.slice", runtime="systemd"),
    # docker
    f"/docker/{ID}": Identity(container_id=ID, runtime="docker"),
    f"/docker/{ID}/docker/{ID2}": Identity(container_id=ID2, runtime="docker"),
    f"/docker/{ID}/init.scope": Identity(container_id=ID, runtime="docker"),
    f"/docker/{'g' * 64}": Identity(),
    f"/docker/{ID[:63]}": Identity(),
    f"/docker/{ID.upper()}": Identity(),
    f"/parent/{ID}": Identity(container_id=ID),
    f"/system.slice/docker-{ID}.scope": Identity(
        unit=f"docker-{ID}.scope", slice="system.slice", runtime="docker", container_id=ID
    ),
    # systemd inside of a container is the container's business
    f"/system.slice/docker-{ID}.scope/system.slice/nginx.service": Identity(
        unit=f"docker-{ID}.scope", slice="system.slice", runtime="docker", container_id=ID
    ),
    f"/system.slice/nerdctl-{ID}.scope": Identity(
        unit=f"nerdctl-{ID}.scope", slice="system.slice", runtime="containerd", container_id=ID
    ),
    f"/system.slice/backup-{ID}.scope": Identity(unit=f"backup-{ID}.scope", slice="system.slice", runtime="systemd"),
    # Kubernetes, systemd driver
    KUBE: Identity(unit="kubepods.slice", slice="kubepods.slice", runtime="systemd"),
    BURST: Identity(
        unit="kubepods-burstable.slice", slice="kubepods-burstable.slice", runtime="systemd", qos="burstable"
    ),
    POD: Identity(unit=POD_SLICE, slice=POD_SLICE, runtime="systemd", pod_uid=UID, qos="burstable"),
    f"{POD}/cri-containerd-{ID}.scope": Identity(
        unit=f"cri-containerd-{ID}.scope",
        slice=POD_SLICE,
        runtime="containerd",
        container_id=ID,
        pod_uid=UID,
        qos="burstable",
    ),
    f"{POD}/crio-{ID}.scope/container": Identity(
        unit=f"crio-{ID}.scope", slice=POD_SLICE, runtime="crio", container_id=ID, pod_uid=UID, qos="burstable"
    ),
    f"{POD}/crio-conmon-{ID}.scope": Identity(
        unit=f"crio-conmon-{ID}.scope", slice=POD_SLICE, runtime="systemd", pod_uid=UID, qos="burstable"
    ),
    f"{POD}/docker-{ID}.scope": Identity(
        unit=f"docker-{ID}.scope", slice=POD_SLICE, runtime="docker", container_id=ID, pod_uid=UID, qos="burstable"
    ),
    f"{KUBE}/kubepods-pod{UID_}.slice": Identity(
        unit=f"kubepods-pod{UID_}.slice",
        slice=f"kubepods-pod{UID_}.slice",
        runtime="systemd",
        pod_uid=UID,
        qos="guaranteed",
    ),
    f"{KUBE}/kubepods-besteffort.slice/kubepods-besteffort-pod{HASH}.slice": Identity(
        unit=f"kubepods-besteffort-pod{HASH}.slice",
        slice=f"kubepods-besteffort-pod{HASH}.slice",
        runtime="systemd",
        pod_uid=HASH,
        qos="besteffort",
    ),
    f"/system.slice/containerd.service/{POD_SLICE}:cri-containerd:{ID}": Identity(
        unit=POD_SLICE, slice=POD_SLICE, runtime="containerd", container_id=ID, pod_uid=UID, qos="burstable"
    ),
    # Kubernetes, cgroupfs driver
    "/kubepods/besteffort": Identity(qos="besteffort"),
    f"/kubepods/besteffort/pod{UID2}/{ID}": Identity(container_id=ID, pod_uid=UID2, qos="besteffort"),
    f"/kubepods/pod{UID2}": Identity(pod_uid=UID2, qos="guaranteed"),
    f"/kubepods/burstable/pod{HASH}/crio-{ID}": Identity(
        container_id=ID, pod_uid=HASH, qos="burstable", runtime="crio"
    ),
    f"/kubepods/burstable/pod{UID2}/crio-conmon-{ID}": Identity(pod_uid=UID2, qos="burstable"),
    f"/elsewhere/pod{UID2}": Identity(),
    # a node inside of a container (kind): the innermost pod and container
    f"/docker/{ID}/kubelet/kubepods/burstable/pod{UID2}": Identity(pod_uid=UID2, qos="burstable"),
    f"/docker/{ID}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UID_}.slice/cri-containerd-{ID2}.scope": (
        Identity(
            unit=f"cri-containerd-{ID2}.scope",
            slice=f"kubelet-kubepods-pod{UID_}.slice",
            runtime="containerd",
            container_id=ID2,
            pod_uid=UID,
            qos="guaranteed",
        )
    ),
    # podman
    f"/machine.slice/libpod-{ID}.scope/container": Identity(
        unit=f"libpod-{ID}.scope", slice="machine.slice", runtime="podman", container_id=ID
    ),
    f"/machine.slice/libpod-conmon-{ID}.scope": Identity(
        unit=f"libpod-conmon-{ID}.scope", slice="machine.slice", runtime="systemd"
    ),
    f"/machine.slice/machine-libpod_pod_{ID2}.slice/libpod-{ID}.scope": Identity(
        unit=f"libpod-{ID}.scope", slice=f"machine-libpod_pod_{ID2}.slice", runtime="podman", container_id=ID
    ),
    f"{USER}/user.slice/libpod-{ID}.scope": Identity(
        unit=f"libpod-{ID}.scope", slice="user.slice", runtime="podman", container_id=ID, uid="1000"
    ),
    f"/system.slice/vllm.service/libpod-payload-{ID}": Identity(
        unit="vllm.service", slice="system.slice", runtime="podman", container_id=ID
    ),
    f"/libpod_parent/libpod-{ID}": Identity(runtime="podman", container_id=ID),
    # lxc
    "/lxc.payload.web": Identity(runtime="lxc", lxc_name="web"),
    "/lxc.payload.web/system.slice/nginx.service": Identity(runtime="lxc", lxc_name="web"),
    "/lxc.payload/web": Identity(runtime="lxc", lxc_name="web"),
    "/lxc/web": Identity(runtime="lxc", lxc_name="web"),
    "/lxc/101/ns/init.scope": Identity(runtime="lxc", lxc_name="101"),
    "/lxc.monitor.web": Identity(),
    "/lxc.monitor/web": Identity(),
    "/lxc.pivot": Identity(),
    "/lxc": Identity(),
    f"/lxc.payload.web/docker/{ID}": Identity(runtime="docker", container_id=ID, lxc_name="web"),
    # machines
    "/machine.slice/systemd-nspawn@n.service/payload/system.slice/x.service": Identity(
        unit="systemd-nspawn@n.service", slice="machine.slice", runtime="nspawn"
    ),
    "/machine.slice/machine-qemu\\x2d1\\x2dvm.scope/libvirt/emulator": Identity(
        unit="machine-qemu-1-vm.scope", slice="machine.slice", runtime="libvirt"
    ),
    "/machine/qemu-1-vm.libvirt-qemu": Identity(unit="qemu-1-vm.libvirt-qemu", runtime="libvirt"),
    "/machine.slice/machine-dev.scope": Identity(unit="machine-dev.scope", slice="machine.slice", runtime="systemd"),
    # slurm
    "/slurm/uid_1000/job_12/step_0/task_0": Identity(runtime="slurm", slurm_job="12", slurm_step="0", uid="1000"),
    "/slurm_node1/uid_1000/job_12": Identity(runtime="slurm", slurm_job="12", uid="1000"),
    "/system.slice/slurmstepd.scope/job_12/step_batch/user/task_0": Identity(
        unit="slurmstepd.scope", slice="system.slice", runtime="slurm", slurm_job="12", slurm_step="batch"
    ),
    "/system.slice/node1_slurmstepd.scope/job_13/step_extern": Identity(
        unit="node1_slurmstepd.scope", slice="system.slice", runtime="slurm", slurm_job="13", slurm_step="extern"
    ),
    "/system.slice/slurmstepd.scope/system": Identity(unit="slurmstepd.scope", slice="system.slice", runtime="systemd"),
    "/other/job_12": Identity(),
    # seen from a private cgroup namespace
    f"/../../kubepods/burstable/pod{UID2}/{ID}": Identity(container_id=ID, pod_uid=UID2, qos="burstable"),
}


@pytest.mark.parametrize("path", PATHS)
def test_a_path_is_read(path: str) -> None:
    assert identify(path) == PATHS[path]


NAME = PodName("llm", "vllm-0", ("server", "sidecar"))

OWNERS: list[tuple[str, PodName | None, str, str]] = [
    ("/", None, "", "/"),
    ("", None, "", "/"),
    ("/foo/bar", None, "", "/foo/bar"),
    ("/system.slice/vllm.service", None, "", "vllm.service"),
    ("/system.slice/vllm.service/worker", None, "", "vllm.service"),
    ("/system.slice", None, "", "system.slice"),
    (f"{USER}/app.slice/x.service", None, "", "user:1000/x.service"),
    (USER, None, "", "user@1000.service"),
    ("/user.slice/user-1000.slice/session-3.scope", None, "", "session-3.scope"),
    (f"/docker/{ID}", None, "", "docker:0123456789ab"),
    (f"/system.slice/docker-{ID}.scope/system.slice/nginx.service", None, "", "docker:0123456789ab"),
    (f"/parent/{ID}", None, "", "container:0123456789ab"),
    (f"/machine.slice/libpod-{ID}.scope", None, "", "podman:0123456789ab"),
    (f"/system.slice/vllm.service/libpod-payload-{ID}", None, "", "vllm.service"),
    (f"{USER}/app.slice/vllm.service/libpod-payload-{ID}", None, "", "user:1000/vllm.service"),
    (POD, NAME, "", "llm/vllm-0"),
    (POD, None, "", f"pod:{UID}"),
    (f"{POD}/cri-containerd-{ID}.scope", NAME, "server", "llm/vllm-0/server"),
    (f"{POD}/cri-containerd-{ID}.scope", NAME, "", "llm/vllm-0"),
    (f"{POD}/cri-containerd-{ID}.scope", None, "", f"pod:{UID}/0123456789ab"),
    (f"{POD}/crio-conmon-{ID}.scope", NAME, "server", "llm/vllm-0"),
    (BURST, None, "", "kubepods-burstable.slice"),
    ("/kubepods/burstable", None, "", "/kubepods/burstable"),
    ("/slurm/uid_1000/job_12/step_0", None, "", "slurm:12"),
    ("/system.slice/slurmstepd.scope/job_12/step_0/user/task_0", None, "", "slurm:12"),
    ("/lxc.payload.web/system.slice/nginx.service", None, "", "lxc:web"),
    ("/lxc.monitor.web", None, "", "/lxc.monitor.web"),
    ("/machine.slice/systemd-nspawn@n.service/payload", None, "", "systemd-nspawn@n.service"),
    ("/machine.slice/machine-qemu\\x2d7\\x2dvm\\x2da.scope", None, "", "libvirt:vm-a"),
    ("/machine/vm.libvirt-qemu", None, "", "libvirt:vm"),
]


@pytest.mark.parametrize(("path", "pod", "container", "expected"), OWNERS)
def test_a_cgroup_has_an_owner(path: str, pod: PodName | None, container: str, expected: str) -> None:
    assert owner(identify(path), path, pod, container) == expected


def test_a_restarted_container_keeps_its_owner_where_its_name_is_known() -> None:
    before, after = (f"{POD}/cri-containerd-{i}.scope" for i in (ID, ID2))
    assert owner(identify(before), before, NAME, "server") == owner(identify(after), after, NAME, "server")
    assert owner(identify(before), before, NAME) == owner(identify(after), after, NAME)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a\\x2db", "a-b"),
        ("caf\\xc3\\xa9", "café"),
        ("a\\x0ab", "a\\x0ab"),
        ("a\\xffb", "a\\xffb"),
        ("a\\x2", "a\\x2"),
        ("plain", "plain"),
    ],
)
def test_only_what_can_be_printed_is_unescaped(name: str, expected: str) -> None:
    assert unescape(name) == expected


PIECES = st.sampled_from(
    [
        *("kubepods", "kubepods.slice", "burstable", POD_SLICE, f"pod{UID2}", f"pod{HASH}", "docker", ID, ID2, "lxc"),
        *(f"docker-{ID}.scope", f"crio-conmon-{ID}.scope", "lxc.payload.a", "slurm", "uid_1", "job_1", "step_1"),
        *("slurmstepd.scope", "user@5.service", "user-5.slice", "machine-qemu\\x2d1\\x2dv.scope", "..", "x.service"),
    ]
)


@settings(deadline=None)
@given(st.lists(PIECES | st.text(max_size=80), max_size=30).map(lambda parts: "/" + "/".join(parts)))
@example("/\udcff.service")
@example("/" + ":" * 200)
def test_no_path_fails_or_invents(path: str) -> None:
    found = identify(path)
    for value in (found.container_id, found.pod_uid.replace("-", "_"), found.slurm_job, found.uid, found.qos):
        assert value in path.replace("-", "_") or value == "guaranteed"
    assert found.container_id == "" or len(found.container_id) == 64
    for pod, container in ((None, ""), (NAME, ""), (NAME, "server")):
        name = owner(found, path, pod, container)
        assert name
        assert name == owner(identify(path), path, pod, container)


@pytest.mark.parametrize(
    "path",
    [
        "/" * 4096,
        "/a" * 2048,
        "/" + "kubepods-" * 455,
        "/" + "kubepods-pod" * 340 + ".slice",
        "/" + "machine-qemu-1-" * 270,
        "/" + "\\x2d" * 1000 + ".service",
        "/" + "user-1000.slice/" * 256,
        "/" + "x.slice" * 100_000,
    ],
)
def test_a_hostile_path_costs_little(path: str) -> None:
    start = time.process_time()
    identify(path)
    assert time.process_time() - start < 0.1
