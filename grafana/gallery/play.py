"""What the pictures show: a small fleet under a real Prometheus, before and after one of its engines dies."""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from cgroups import Cgroup, parent
from e2e.stack import free_port, prometheus, rules
from fleet import Fleet, Spec, fleet
from fleet.spec import drawn
from requires import missing

FACTOR = 20.0
"""By which the durations of the rules are divided."""

SEED = 7
"""Of the incident: another would be as good, but pictures are compared with those of before."""

CALM = 75.0
"""Seconds in which all is well."""

NEAR = 30.0
"""Seconds from the first long prompt to the picture in which the crash is near."""

AFTERWARDS = 14.0
"""Seconds in which the engine is seen to be dead, and killed processes are counted."""

LIMIT, RATE = 200 << 20, 6
"""Bytes, the limit of a cgroup; MB a second, by which what is taken for an engine grows in it until it is killed."""

HURT, WELL, LAZY, GONE = "gpu-01", "gpu-02", "gpu-03", "gpu-04"

_OBJECTIVES = {2048: 2.0, 65_536: 30.0, 131_072: 180.0, 200_000: 300.0}
"""Virtual seconds for a whole answer, by the longest prompt in tokens."""

_LOG = (
    "ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.21 GiB.\n",
    "attn_grad_overflow: inf detected in softmax denominator\n",
)
_CONFIG = """\
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: oomcast
    static_configs:
{targets}
"""
_TARGET = '      - {{targets: ["{target}"], labels: {{cluster: prod-1, node: {node}}}}}'


class Played(NamedTuple):
    """prometheus: its address. Seconds since the epoch of the first scrape, of the moment in which all is well, of the
    one in which the crash is near, and of the one after it."""

    prometheus: str
    began: float
    calm: float
    near: float
    crashed: float


@contextmanager
def played() -> Iterator[Played]:
    """All of it is over, and Prometheus still runs. Takes two and a half minutes. Raises incident.programs.Failed."""
    directory = Path(tempfile.mkdtemp(prefix="oomcast-gallery-"))
    with ExitStack() as parts:
        parts.callback(shutil.rmtree, directory, ignore_errors=True)
        log = directory / "engine.log"
        log.touch()
        nodes = parts.enter_context(fleet(directory, _specs(log)))
        targets = "\n".join(_TARGET.format(target=target, node=node) for node, target in _targets(nodes))
        config = _CONFIG.format(rules=rules(directory, "--scale", str(FACTOR)), targets=targets)
        url = parts.enter_context(prometheus(directory / "prometheus", config))
        began = _now()
        nodes.begin()
        cgroup = parts.enter_context(_cgroup())
        nodes[HURT].wait("jobs", CALM + 60)
        calm = _now() - 2
        parts.enter_context(_growing(cgroup))
        time.sleep(NEAR)
        near = _now()
        nodes[HURT].wait("out_of_memory", 180)
        subprocess.run([sys.executable, "-S", "-c", "import os; os.abort()"], check=False)
        log.write_text("".join(_LOG))
        nodes[HURT].wait("died", 60)
        time.sleep(AFTERWARDS)
        yield Played(url, began, calm, near, _now() - 1)


def _specs(log: Path) -> list[Spec]:
    """One whose engine dies and which watches this very machine too, and two that are well."""
    classes = [{"up_to": end, "e2e": seconds} for end, seconds in _OBJECTIVES.items()]
    collectors = {
        "host": {"process_interval": 1},
        "cgroup": {"include": ["*/oomcast-gallery-*"]},
        "kernel_log": {},
        "engine_log": {"files": [{"engine": "vllm", "paths": [str(log)]}]},
        "ebpf": {"enabled": True},
    }
    objectives = json.dumps({"slo": {"classes": [*classes, {}]}})
    everything = json.loads(objectives) | {"serving_processes": ["VLLM*", "grow.py"], "collectors": collectors}
    return [
        replace(drawn(HURT, SEED), calm=CALM, settings=json.dumps(everything)),
        Spec(WELL, "healthy", settings=objectives),
        Spec(LAZY, "no_reuse", settings=objectives),
    ]


def _targets(nodes: Fleet) -> Iterator[tuple[str, str]]:
    for name, member in nodes.items():
        yield name, member.daemon.removeprefix("http://")
    # It does not answer.
    yield GONE, f"127.0.0.1:{free_port()}"


@contextmanager
def _cgroup() -> Iterator[Cgroup | None]:
    """One with a limit and a process in it that does nothing; None where cgroups cannot be made."""
    if missing("cgroup") is not None:
        yield None
        return
    with parent("gallery") as above:
        cgroup = above.child("vllm")
        cgroup.limit(LIMIT)
        with _ended(cgroup.run("sleep", "600")):
            yield cgroup


@contextmanager
def _growing(cgroup: Cgroup | None) -> Iterator[None]:
    """A process that grows in it until the kernel kills it."""
    if cgroup is None:
        yield
        return
    with _ended(cgroup.grow(RATE, "linear")):
        yield


@contextmanager
def _ended(child: "subprocess.Popen[bytes]") -> Iterator[None]:
    try:
        yield
    finally:
        child.kill()
        child.communicate()


def _now() -> float:
    return time.time()  # noqa: TID251 - what Prometheus has, it has at its time of day
