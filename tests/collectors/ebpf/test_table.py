"""The metric table of the collector: each metric in it has been seen, on the page of the real daemon, and is valid."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from collectors.ebpf.test_generic import COUNTING, MALLOC, probe
from e2e.program import OUR_OWN_OFF, Program, program, until
from e2e.stack import fetch
from ebpf_lab.lab import Target, build
from oomcast_collectors.ebpf import metrics
from requires import missing, needs

pytestmark = needs("ebpf", "cc", "rustc")

NOT_HERE = {
    metrics.UVM_FAULTS.name: "needs the nvidia-uvm driver, see test_uvm_stats.py",
    metrics.UVM_PAGES.name: "the same",
    metrics.GROWTH.name: "takes a minute, see test_allocations_lives.py",
}
PROBES = "allocations, crashes, oom_kills, panics, major_faults, unified_memory, cuda_streams, counts, values"
NAMES = "[cuda, panics, crash, leak]"


@pytest.fixture
def settings(tmp_path: Path) -> str:
    folder = tmp_path / "probes"
    folder.mkdir()
    table = "\ntables:\n  calls: {{table: pids, key: {{pid: process}}, kind: {}}}\n"
    uprobes = MALLOC.partition("tables:")[0]
    probe(folder, "counts", uprobes + table.format("counter"), COUNTING)
    probe(folder, "values", uprobes + table.format("gauge"), COUNTING)
    own = f"enabled: true, probes: [{PROBES}], folder: {folder}, allocations: {{pairs: [cuda], libc: full}}"
    ebpf = f"{own}, targets: {{processes: {NAMES}}}"
    off = OUR_OWN_OFF.replace("ebpf: {enabled: false}", f"ebpf: {{{ebpf}}}")
    return f'http: {{listen: "127.0.0.1:{{port}}"}}\n{off}\n'


def names(daemon: Program) -> Iterator[str]:
    for line in fetch(f"{daemon.url}/metrics").splitlines():
        if line.startswith("oomcast_"):
            yield line.split("{")[0].split(" ")[0]


def test_the_table_has_no_metric_that_nothing_produces(tmp_path: Path, settings: str) -> None:
    wanted, seen = {metric.name for metric in metrics.METRICS} - NOT_HERE.keys(), set[str]()
    with program(tmp_path, settings) as daemon, ExitStack() as targets:
        cuda, leak, panics = (
            targets.enter_context(Target(*command))
            for command in ((build("cuda"),), (build("leak"),), (build("panics"), "thread"))
        )
        crashes = [targets.enter_context(Target(build("crash"), kind)) for kind in ("null_read", "handled")]
        followed = 'process="crash"'
        until(lambda: (daemon.value("oomcast_ebpf_targets", followed) or 0) == 2, 60)
        until(lambda: (daemon.value("oomcast_ebpf_probe_points", 'probe="cuda_streams"') or 0) > 0, 30)
        for target in crashes:
            target.go()
        for _ in range(2):
            leak.step()
            panics.step()
        while cuda.step()["phase"] != "closed":
            seen |= set(names(daemon))
        end = time.monotonic() + 20
        while wanted - seen and time.monotonic() < end:
            time.sleep(0.2)
            seen |= set(names(daemon))
        text = fetch(f"{daemon.url}/metrics")
    assert sorted(wanted - seen) == []
    if missing("prometheus") is None:
        done = subprocess.run(
            ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False, timeout=60
        )
        assert (done.returncode, done.stdout + done.stderr) == (0, "")
