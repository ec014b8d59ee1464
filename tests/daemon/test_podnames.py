import logging
import os
from pathlib import Path

import pytest

from fakes import FakeClock
from oomcast.podnames import PodName, PodNames

ID = "0123456789abcdef" * 4
ID2 = "fedcba9876543210" * 4
PAUSE = "a" * 64
UID = "17efb6ec-09ab-4eec-8ad6-f953eb1a7466"
HASH = "33d556edd3ae8ef21980288cef77ae8b"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    (tmp_path / "pods").mkdir()
    return tmp_path


def add(logs: Path, pod: str, *containers: str) -> Path:
    for container in containers:
        directory = logs / "pods" / pod / container
        directory.mkdir(parents=True)
        (directory / "0.log").write_text("")
    (logs / "pods" / pod).mkdir(exist_ok=True)
    return logs / "pods" / pod


def link(logs: Path, namespace: str, pod: str, container: str, container_id: str) -> None:
    (logs / "containers").mkdir(exist_ok=True)
    (logs / "containers" / f"{pod}_{namespace}_{container}-{container_id}.log").symlink_to("/var/log/pods/x/0.log")


def test_a_pod_has_the_names_in_its_directory(logs: Path, clock: FakeClock) -> None:
    add(logs, f"llm_vllm-0.a_{UID}", "server", "init")
    names = PodNames(logs / "pods", clock)
    assert names.pod(UID) == PodName("llm", "vllm-0.a", ("init", "server"))
    assert names.pod("74c13223-5a00-11e9-b385-42010a80018d") is None
    assert names.pod("") is None


def test_a_static_pod_has_a_hash_for_its_uid(logs: Path, clock: FakeClock) -> None:
    add(logs, f"kube-system_etcd-node1_{HASH}", "etcd")
    names = PodNames(logs / "pods", clock)
    assert names.pod(HASH) == PodName("kube-system", "etcd-node1", ("etcd",))
    assert names.container(HASH, ID) == "etcd"


@pytest.mark.parametrize(
    "directory",
    ["", "_", "__", "a_b", "a__" + UID, f"_b_{UID}", f"a_b_c_{UID}", f"A_b_{UID}", f"a_b_{UID}_", f"a\n_b_{UID}"],
)
def test_a_malformed_directory_is_passed_over(logs: Path, clock: FakeClock, directory: str) -> None:
    (logs / "pods" / directory).mkdir(exist_ok=True)
    os.mkdir(os.fsencode(logs / "pods") + b"/\xff\xfe_b_" + UID.encode())  # noqa: PTH102 - a name that is not text
    add(logs, f"llm_good_{HASH}", "server")
    names = PodNames(logs / "pods", clock)
    assert names.pod(UID) is None
    assert names.pod(HASH) == PodName("llm", "good", ("server",))


def test_a_link_of_the_kubelet_names_the_container(logs: Path, clock: FakeClock) -> None:
    add(logs, f"llm_vllm-0_{UID}", "server", "side-car")
    link(logs, "llm", "vllm-0", "server", ID)
    link(logs, "llm", "vllm-0", "side-car", ID2)
    names = PodNames(logs / "pods", clock)
    assert names.container(UID, ID) == "server"
    assert names.container(UID, ID2) == "side-car"


def test_the_sandbox_of_a_pod_is_not_its_only_container(logs: Path, clock: FakeClock) -> None:
    add(logs, f"llm_vllm-0_{UID}", "server")
    link(logs, "llm", "vllm-0", "server", ID)
    names = PodNames(logs / "pods", clock)
    assert names.container(UID, PAUSE) == ""
    assert names.container(UID, "") == ""


def test_a_link_of_another_pod_names_nothing(logs: Path, clock: FakeClock) -> None:
    add(logs, f"llm_vllm-0_{UID}", "server", "other")
    link(logs, "llm", "vllm-1", "server", ID)
    assert PodNames(logs / "pods", clock).container(UID, ID) == ""


def test_docker_links_its_own_log_file(logs: Path, clock: FakeClock) -> None:
    pod = add(logs, f"llm_vllm-0_{UID}", "server", "sidecar")
    (pod / "server" / "1.log").symlink_to(f"/var/lib/docker/containers/{ID}/{ID}-json.log")
    (pod / "sidecar" / "0.log").unlink()
    (pod / "sidecar" / "0.log").symlink_to(f"/var/lib/docker/containers/{ID2}/{ID2}-json.log")
    names = PodNames(logs / "pods", clock)
    assert names.container(UID, ID) == "server"
    assert names.container(UID, ID2) == "sidecar"
    assert names.container(UID, PAUSE) == ""


def test_without_links_only_a_pod_with_one_container_says_which(logs: Path, clock: FakeClock) -> None:
    add(logs, f"llm_one_{UID}", "server")
    add(logs, f"llm_two_{HASH}", "server", "sidecar")
    names = PodNames(logs / "pods", clock)
    assert names.container(UID, ID) == "server"
    assert names.container(HASH, ID) == ""
    assert names.container("unknown", ID) == ""


def test_an_unknown_pod_is_looked_for_once_a_second(logs: Path, clock: FakeClock) -> None:
    names = PodNames(logs / "pods", clock)
    assert names.pod(UID) is None
    add(logs, f"llm_vllm-0_{UID}", "server")
    clock.advance(0.9)
    assert names.pod(UID) is None
    clock.advance(0.2)
    assert names.pod(UID) == PodName("llm", "vllm-0", ("server",))


def test_an_unknown_container_is_looked_for_once_a_second(logs: Path, clock: FakeClock) -> None:
    add(logs, f"llm_vllm-0_{UID}", "server")
    link(logs, "llm", "vllm-0", "server", ID)
    names = PodNames(logs / "pods", clock)
    assert names.container(UID, ID2) == ""
    link(logs, "llm", "vllm-0", "server", ID2)
    assert names.container(UID, ID2) == ""
    clock.advance(1.0)
    assert names.container(UID, ID2) == "server"


def test_a_known_pod_is_listed_again_after_ten_seconds(logs: Path, clock: FakeClock) -> None:
    pod = add(logs, f"llm_vllm-0_{UID}", "server")
    names = PodNames(logs / "pods", clock)
    assert names.pod(UID) == PodName("llm", "vllm-0", ("server",))
    (pod / "server" / "0.log").unlink()
    (pod / "server").rmdir()
    pod.rmdir()
    clock.advance(9.9)
    assert names.pod(UID) == PodName("llm", "vllm-0", ("server",))
    clock.advance(0.2)
    assert names.pod(UID) is None


def test_a_machine_without_pods_is_nothing_to_warn_of(
    tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    for root in (tmp_path / "absent", tmp_path / "file"):
        assert PodNames(root, clock).pod(UID) is None
    assert caplog.messages == []


def test_what_cannot_be_read_is_said_once(tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    names = PodNames(loop, clock, logging.getLogger("test"))
    for _ in range(3):
        assert names.pod(UID) is None
        clock.advance(20)
    assert caplog.messages == [f"{loop}: pods go without names: Too many levels of symbolic links"]


def test_a_huge_directory_is_read_in_part(logs: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(10_050):
        (logs / "pods" / f"llm_pod-{number}_{number:032x}").mkdir()
    names = PodNames(logs / "pods", clock)
    found = sum(names.pod(f"{number:032x}") is not None for number in range(10_050))
    assert found == 10_000
    assert caplog.messages == [f"{logs / 'pods'} has more than 10000 entries: the rest goes without names"]
