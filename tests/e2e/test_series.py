"""How many series the whole daemon has on a node of the size that it is meant for."""

import re
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from collectors.cgroup import trees
from collectors.cgroup.support import MIB, v2
from e2e.stack import daemon, fetch

MOST = 1100
"""So that 8 GPUs and 4 engines stay within the 2,000 of a node."""

KERNEL = Path(__file__).parents[1] / "fixtures/host/linux-6.1/proc"


@pytest.fixture
def node(tmp_path: Path) -> trees.Host:
    """100 cgroups on a v2 host: 30 pods of 2 limited containers, and their slices."""
    host = trees.copy("v2-root", tmp_path)
    shutil.copytree(KERNEL, host.proc, dirs_exist_ok=True)
    (host.root / "dev").mkdir()
    (host.root / "dev/kmsg").write_text("")
    for path in ("/init.scope", "/system.slice", "/user.slice", "/kubepods.slice"):
        host.write(path, v2())
    for service in ("kubelet", "containerd", "sshd", "dbus"):
        host.write(f"/system.slice/{service}.service", v2())
    for quality in ("burstable", "besteffort"):
        host.write(f"/kubepods.slice/kubepods-{quality}.slice", v2())
    for i in range(30):
        uid = f"17efb6ec-09ab-4eec-8ad6-{i:012d}"
        (host.pods / f"llm_vllm-{i}_{uid}" / "server").mkdir(parents=True)
        slices = "/kubepods.slice/kubepods-burstable.slice"
        pod = f"{slices}/kubepods-burstable-pod{uid.replace('-', '_')}.slice"
        host.write(pod, v2(limit=900 * MIB))
        for name in ("server", "sidecar"):
            container = f"{i:032d}{name.encode().hex():0>32}"
            (host.pods.parent / "containers").mkdir(exist_ok=True)
            (host.pods.parent / "containers" / f"vllm-{i}_llm_{name}-{container}.log").write_text("")
            host.write(f"{pod}/cri-containerd-{container}.scope", v2(limit=400 * MIB))
    return host


def test_a_hundred_cgroups_stay_within_the_budget(node: trees.Host, tmp_path: Path) -> None:
    settings = tmp_path / "settings"
    settings.mkdir()
    with daemon(settings, environment={"OOMCAST_PATHS__HOST": str(node.root)}) as (url, _):
        deadline = time.monotonic() + 30
        names: Counter[str] = Counter()
        while names["oomcast_time_to_exhaustion_seconds"] < 60 and time.monotonic() < deadline:
            time.sleep(0.5)
            names = Counter(re.findall(r"^(\w+)", fetch(f"{url}/metrics"), re.MULTILINE))
    assert names["oomcast_cgroup_info"] == names["oomcast_cgroup_memory_used_bytes"] == 100
    assert names["oomcast_cgroup_memory_effective_limit_bytes"] == 90
    assert names["oomcast_time_to_exhaustion_seconds"] >= 60
    assert names["oomcast_oom_kills_total"] == 90
    assert names["oomcast_host_memory_available_bytes"] == 1
    assert names.total() <= MOST, names
