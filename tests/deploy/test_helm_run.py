"""The chart's pod on this machine: its command, user, capabilities, mounts and settings, under a real runtime."""

import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cgroups import parent
from deploy.containers import Container, Rules, container, tracefs
from deploy.kubernetes import ROOT, Resource, environment, pod, render, settings_file
from deploy.kubernetes import container as chart_container
from host import cache
from requires import needs

pytestmark = needs("helm", "debian", "buildah", "cgroup")

URL = "http://127.0.0.1:19128"
LEFT = {"/var/log/pods", "/var/log/containers"}
"""Of a node with a kubelet; here they are folders of the test."""
UID = "6a4dbd3e-64a5-4a2c-9a2e-0f2f4f6e8d11"
"""Of a pod."""


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A Debian with Python and BCC in place of the image, and this checkout at its place in it."""
    parts = {name: tmp_path / name for name in ("root", "upper", "work")}
    for part in parts.values():
        part.mkdir()
    lower = cache() / "debian" / "node"
    options = f"lowerdir={lower},upperdir={parts['upper']},workdir={parts['work']}"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, parts["root"]], check=True, timeout=60)
    try:
        yield parts["root"]
    finally:
        subprocess.run(["umount", parts["root"]], check=True, timeout=60)


@contextmanager
def started(
    folder: Path, root: Path, resources: list[Resource], places: dict[str, Path], system_calls: Sequence[str] = ()
) -> Iterator[Container]:
    """The pod's container. places: where a path of the node is here. system_calls: that the profile here lacks."""
    spec, own = pod(resources), chart_container(resources)
    etc = folder / "etc"
    etc.mkdir()
    (etc / "oomcast.yaml").write_text(settings_file(resources))
    volumes = {one["name"]: one for one in spec["volumes"]}
    binds = {str(ROOT): str(ROOT)}
    for mount in own["volumeMounts"]:
        host = volumes[mount["name"]].get("hostPath", {}).get("path")
        binds[str(places.get(host, host) if host else etc)] = mount["mountPath"]
    context = own["securityContext"]
    rules = Rules(
        user=f"{context['runAsUser']}:{context['runAsGroup']}",
        capabilities=[f"CAP_{name}" for name in context["capabilities"].get("add", [])],
        system_calls=system_calls,
        binds=binds,
        environment=environment(resources, "127.0.0.1") | {"PYTHONDONTWRITEBYTECODE": "1"},
        host_pids=spec["hostPID"],
        memory=_bytes(own["resources"]["limits"]["memory"]),
        groups=spec["securityContext"].get("supplementalGroups", []),
    )
    image: dict[str, Any] = {
        "Entrypoint": [],
        "Cmd": own["command"],
        "Env": [f"PATH={ROOT}/.venv/bin:/usr/bin:/bin"],
    }
    with container(folder, root, image, rules) as one:
        one.wait_for(f"{URL}/-/ready", 120)
        yield one


def test_without_any_right_it_sees_the_cgroups_of_the_node(root: Path, tmp_path: Path) -> None:
    with parent("helm") as mine, started(tmp_path, root, render(), _pods(tmp_path)) as one:
        leaf = mine.child(f"kubepods-pod{UID.replace('-', '_')}.slice")
        leaf.limit(50 << 20)
        status = Path(f"/proc/{one.pid}/status").read_text()
        assert "Uid:\t10001\t10001\t10001\t10001" in status
        assert re.findall(r"^Cap(?:Prm|Eff|Bnd|Amb):\t(\w+)", status, re.MULTILINE) == ["0" * 16] * 4
        with leaf.run("sleep", "300") as sleeper:
            _until(one, rf'oomcast_cgroup_memory_effective_limit_bytes\{{cgroup="{leaf.path}"\}} 5\.24288e\+07')
            sleeper.kill()
        _until(one, r'oomcast_cgroup_info\{.*k8s_namespace="models",k8s_pod="llama-0"')
        page = _until(one, r'oomcast_collector_up\{collector="host"\} ')
        assert "oomcast_host_memory_total_bytes " in page
        assert _states(page) == {"cgroup": "1.0", "host": "1.0"}
        # Nothing of the host can be written, below its mounts either.
        mounts = [line.split() for line in Path(f"/proc/{one.pid}/mountinfo").read_text().splitlines()]
        below = [(at, options.split(",")) for _, _, _, _, at, options, *_ in mounts if at.startswith("/host/")]
        assert {"/host/proc", "/host/sys", "/host/var/log/pods"} <= {at for at, _ in below}
        assert [at for at, options in below if "ro" not in options] == []
        assert "level=error" not in one.log
        _fits(one, render())
        code, seconds = one.end()
    assert code == 0
    assert seconds < pod(render())["terminationGracePeriodSeconds"]


@needs("ebpf")
@pytest.mark.parametrize(
    ("mode", "attached"),
    [("kernel", {"crashes", "oom_kills"}), ("programs", {"allocations", "crashes", "oom_kills"})],
)
def test_ebpf_has_what_it_takes(mode: str, attached: set[str], root: Path, tmp_path: Path) -> None:
    resources = render({"ebpf": {"mode": mode}})
    with tracefs(tmp_path) as folder:
        places = _pods(tmp_path) | {"/sys/kernel/tracing": folder}
        # containerd's profile allows these with their capabilities since 2022; podman's, which is here, since 2025.
        calls = ("bpf", "perf_event_open") if mode == "kernel" else ()
        with started(tmp_path, root, resources, places, calls) as one:
            page = _until(one, r'oomcast_ebpf_probe_attached\{probe="oom_kills"\} 1\.0', 180)
            found = dict(re.findall(r'^oomcast_ebpf_probe_attached\{probe="(\w+)"\} (\S+)$', page, re.MULTILINE))
            assert found == dict.fromkeys(attached, "1.0"), one.log
            subprocess.run(["sh", "-c", "kill -SEGV $$"], check=False, timeout=60)
            _until(one, r'oomcast_crashes_total\{.*signal="SIGSEGV".*\} [1-9]')
            assert "level=error" not in one.log
            _fits(one, resources)


@pytest.mark.parametrize(("others", "before"), [(False, 0), (True, 0), (True, 10001)])
def test_the_directory_of_the_socket_becomes_the_daemons(others: bool, before: int, tmp_path: Path) -> None:
    resources = render({"requests": {"enabled": True}, "privileges": {"otherUsers": others}})
    (first,) = pod(resources)["initContainers"]
    folder = tmp_path / "requests"
    folder.mkdir(mode=0o755)
    os.chown(folder, before, before)
    kept = ",".join(f"+{name.lower()}" for name in first["securityContext"]["capabilities"]["add"])
    command = ["setpriv", f"--bounding-set=-all,{kept}", "--no-new-privs", *first["command"][:-1], str(folder)]
    subprocess.run(command, check=True, timeout=60)
    user = chart_container(resources)["securityContext"]["runAsUser"]
    assert (folder.stat().st_uid, folder.stat().st_gid, folder.stat().st_mode & 0o777) == (user, user, 0o755)


def _pods(folder: Path) -> dict[str, Path]:
    """Folders in place of those that a kubelet makes, of its modes, with a pod in them."""
    made = {}
    for path in sorted(LEFT):
        made[path] = folder / os.path.basename(path)  # noqa: PTH119 - of a path that is not here
        made[path].mkdir()
    made["/var/log/pods"].chmod(0o750)
    (made["/var/log/pods"] / f"models_llama-0_{UID}" / "engine").mkdir(parents=True)
    return made


def _until(one: Container, series: str, seconds: float = 60) -> str:
    """The page once it has a line that begins like that."""
    pattern = re.compile(f"^{series}", re.MULTILINE)
    end = time.monotonic() + seconds
    while not pattern.search(page := one.fetch(f"{URL}/metrics")):
        assert time.monotonic() < end, f"no {series}\n{one.log[-3000:]}"
        time.sleep(0.2)
    return page


def _fits(one: Container, resources: list[Resource]) -> None:
    """What all processes of the container hold that nobody can reclaim leaves a third of the limit."""
    page = one.fetch(f"{URL}/metrics")
    for path in set(re.findall(r"^[^:]*:[^:]*:(.*)$", Path(f"/proc/{one.pid}/cgroup").read_text(), re.MULTILINE)):
        pattern = rf'^oomcast_cgroup_memory_unreclaimable_bytes\{{cgroup="{re.escape(path)}"\}} (\S+)$'
        if found := re.search(pattern, page, re.MULTILINE):
            assert float(found[1]) < _bytes(chart_container(resources)["resources"]["limits"]["memory"]) * 2 / 3
            return
    pytest.fail(f"the daemon does not tell of its own cgroup\n{page[-2000:]}")


def _states(page: str) -> dict[str, str]:
    return dict(re.findall(r'^oomcast_collector_up\{collector="(\w+)"\} (\S+)$', page, re.MULTILINE))


def _bytes(quantity: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(Mi|Gi)", quantity).groups()  # type: ignore[union-attr] # or the test fails
    return int(number) << {"Mi": 20, "Gi": 30}[unit]
