"""The labels of the info series: unit, container, pod, and names that come later."""

from pathlib import Path

from collectors.cgroup import trees
from collectors.cgroup.conftest import MakeBench
from collectors.cgroup.support import Bench, v2


def kubernetes(tmp_path: Path) -> trees.Host:
    return trees.copy("v2-k8s", tmp_path)


def names(at: Bench, cgroup: str) -> list[str | None]:
    info = at.info(cgroup)
    return [info.get(label) for label in ("k8s_namespace", "k8s_pod", "k8s_container")]


def test_a_unit(tmp_path: Path, bench: MakeBench) -> None:
    at = bench(trees.copy("v2-systemd", tmp_path)).run()
    core = {"version": "v2", "tier": "core", "runtime": "systemd"}
    assert at.info("/system.slice/vllm.service") == core | {"unit": "vllm.service"}
    nested = "/system.slice/system-llama.slice/llama@gpu\\x2d0.service"
    assert at.info(nested) == core | {"unit": "llama@gpu-0.service"}


def test_a_docker_container(tmp_path: Path, bench: MakeBench) -> None:
    at = bench(trees.copy("v1-docker", tmp_path)).run()
    assert at.info(f"/docker/{trees.SERVER_ID}") == {
        "version": "v1", "tier": "core", "runtime": "docker", "container_id": trees.SERVER_ID,
    }  # fmt: skip


def test_a_pod_and_its_container(tmp_path: Path, bench: MakeBench) -> None:
    at = bench(kubernetes(tmp_path)).run()
    assert names(at, trees.POD) == ["llm", "vllm-0", None]
    assert names(at, trees.SERVER) == ["llm", "vllm-0", "server"]
    info = at.info(trees.SERVER)
    assert (info["pod_uid"], info["container_id"], info["runtime"]) == (trees.POD_UID, trees.SERVER_ID, "containerd")


def test_the_name_of_a_container_comes_with_the_kubelets_link(tmp_path: Path, bench: MakeBench) -> None:
    host = kubernetes(tmp_path)
    links = host.pods.parent / "containers"
    link = next(links.iterdir())
    link.rename(tmp_path / "later")
    at = bench(host).run()
    assert names(at, trees.SERVER) == ["llm", "vllm-0", None]
    (tmp_path / "later").rename(link)
    at.run(1)
    assert names(at.run(1), trees.SERVER) == ["llm", "vllm-0", "server"]


def test_the_name_of_a_pod_comes_with_its_directory(tmp_path: Path, bench: MakeBench) -> None:
    host = kubernetes(tmp_path)
    host.pods.rename(tmp_path / "later")
    at = bench(host).run()
    assert names(at, trees.SERVER) == [None, None, None]
    (tmp_path / "later").rename(host.pods)
    assert names(at.run(2), trees.SERVER) == ["llm", "vllm-0", "server"]


def test_a_new_container_has_its_name_at_once(tmp_path: Path, bench: MakeBench) -> None:
    host = kubernetes(tmp_path)
    at = bench(host).run()
    new = "ab" * 32
    (host.pods.parent / "containers" / f"vllm-0_llm_sidecar-{new}.log").write_text("")
    host.write(f"{trees.POD}/cri-containerd-{new}.scope", v2())
    assert names(at.run(), f"{trees.POD}/cri-containerd-{new}.scope") == ["llm", "vllm-0", "sidecar"]


def test_what_never_has_a_name_is_forgotten_with_its_cgroup(tmp_path: Path, bench: MakeBench) -> None:
    host = kubernetes(tmp_path)
    pause = f"{trees.POD}/cri-containerd-{'a' * 64}.scope"
    at = bench(host).run()
    assert names(at, pause) == ["llm", "vllm-0", None]
    sweep = at.collector._sweep
    assert sweep
    assert [node.path for node in sweep._belongings._unnamed] == [pause]
    host.remove(pause)
    at.run().run()
    assert list(sweep._belongings._unnamed) == []


def test_processes_that_cannot_be_listed_cost_nothing_else(root: trees.Host, bench: MakeBench, tmp_path: Path) -> None:
    root.write("/a", v2(used=5))
    at = bench(root, serving=("vllm*",))
    assert at.run().value("memory_used_bytes", "/a") == 5
    root.proc.rename(tmp_path / "away")
    at.run(10)
    assert (at.value("memory_used_bytes", "/a"), at.value("read_errors_total")) == (5, 1)
    (tmp_path / "away").rename(root.proc)
    assert at.run(10).value("read_errors_total") == 1
