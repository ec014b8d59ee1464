"""The metric table against what it promises: its document is current, and every metric in it has been seen."""

import json
import logging
import os
import re
import threading
import time
import typing
from collections.abc import Iterable, Iterator
from contextlib import closing
from math import exp
from pathlib import Path
from statistics import NormalDist

import pytest

from collectors.cgroup import trees
from collectors.gpu.driver import FakeDriver, build
from e2e.engines import PAGES, endpoint, serving, watching
from e2e.gpus import gpus
from e2e.program import oomcast, plugins, program, until
from e2e.stack import fetch
from fakes import FakeClock
from oomcast.client import Client
from oomcast.contract import Context, NotPresent, Roots
from oomcast.core import CORE_METRICS
from oomcast_collectors import ebpf, engine, gpu
from oomcast_collectors.all import ALL
from requires import needs
from simulator import Config, Engine, Request

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "metrics.md"
FIXTURES = ROOT / "tests" / "fixtures"
TABLE = {metric.name for metric in CORE_METRICS} | {m.name for spec in ALL for m in spec.metrics}

GIB = 1 << 30
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."

OF_GPUS = {metric.name for metric in gpu.SPEC.metrics}
OF_ENGINES = {metric.name for metric in engine.SPEC.metrics}
OF_EBPF = {metric.name for metric in ebpf.SPEC.metrics}
_PLATEAU = "takes memory that has stood for a minute, as in tests/e2e/test_gpu_forecast.py"

NOT_HERE = {
    "oomcast_userspace_oom_kills_total": "needs systemd-oomd or another killer in userspace that has killed",
    "oomcast_gpu_memory_plateau_bytes": _PLATEAU,
    "oomcast_gpu_memory_plateau_headroom_bytes": _PLATEAU,
}
"""Metrics that neither the fixtures nor this machine produce, and why."""


def test_the_document_is_current(request: pytest.FixtureRequest) -> None:
    done = oomcast("metrics", "--format", "markdown")
    assert (done.returncode, done.stderr) == (0, "")
    if request.config.getoption("--update-golden"):
        DOCUMENT.write_text(done.stdout)
    assert DOCUMENT.read_text() == done.stdout, f"{DOCUMENT.name} is not current: pytest --update-golden"


def test_the_table_has_no_metric_that_nothing_produces(tmp_path: Path) -> None:
    seen = set(on_this_machine(tmp_path / "here"))
    for name in typing.get_args(trees.TreeName):
        (tmp_path / name).mkdir()
        host = trees.copy(name, tmp_path / name)
        for high in host.root.rglob("memory.high"):
            high.write_text("1048576\n")  # nobody had set one where these were recorded
        seen |= set(over("cgroup", Roots(proc=host.proc, sys=host.sys, pods=host.pods, host=host.root), full=["*"]))
    for kernel in ("linux-4.18", "linux-5.15", "linux-6.1", "linux-6.18"):
        seen |= set(over("host", Roots(proc=FIXTURES / "host" / kernel / "proc")))
    assert sorted(TABLE - OF_GPUS - OF_ENGINES - OF_EBPF - seen - NOT_HERE.keys()) == []
    assert NOT_HERE.keys() - TABLE == set()


@needs("cc")
def test_the_table_has_no_metric_of_gpus_that_no_driver_produces(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path, build(tmp_path), gpus=5)
    busy, mig, hung, garbled, silent = driver.gpus
    processes = [(os.getpid(), 9 * GIB), (os.getppid(), 2 * GIB), (1, GIB)]
    busy.set(used=13 * GIB, proc=processes, accounting=1, acct=(os.getpid(), 10 * GIB))
    mig.set(mig=1, migdev=(1, 0, "MIG-1", "3g.71gb", 76 * GIB, 20 * GIB))
    hung.set(hang=1)
    garbled.set(mem_garbage="sum_mismatch")
    silent.set({"fail.nvmlDeviceGetUtilizationRates": 999})
    driver.write()
    wanted, seen = OF_GPUS - NOT_HERE.keys(), set[str]()
    with gpus(driver, tmp_path, "slow_period: 1, processes: 1, expected: 5") as node:
        end = time.monotonic() + 10
        while wanted - seen and time.monotonic() < end:
            time.sleep(0.2)
            seen |= {name for name, _ in node.scrape()}
    assert sorted(wanted - seen) == []


def test_the_table_has_no_metric_of_engines_that_no_engine_produces(tmp_path: Path) -> None:
    pages = ["vllm-cpu-0.32.0-idle", "sglang-cpu-0.5.23-prefix"]
    pages += [f"written/{path.stem}" for path in sorted((PAGES / "written").glob("*.prom"))]
    wanted, seen = OF_ENGINES - NOT_HERE.keys(), set[str]()
    prompts, spread = Engine(Config(blocks=10_000)), NormalDist(7, 1)
    with serving(*pages, "", "") as engines:
        ends = [endpoint(one, f"e{number}") for number, one in enumerate(engines)]
        with watching(tmp_path, *ends, slo="{classes: [{ttft: 0.3, e2e: 0.3}]}", hit_min_queries=1) as node:
            end = time.monotonic() + 10
            while wanted - seen and time.monotonic() < end:
                engines[0].counts("vllm:prefix_cache_queries_total", 5)
                for number in range(200):
                    prompts.submit(Request(0, round(exp(spread.inv_cdf((number + 0.5) / 200))), 1))
                prompts.advance(prompts.now + 300)
                engines[-1].pages["/metrics"] = prompts.page()
                time.sleep(0.2)
                seen |= set(re.findall(r"^# TYPE (\S+) ", node.text(), re.MULTILINE))
    assert sorted(wanted - seen) == []


def over(collector: str, roots: Roots, **settings: object) -> Iterator[str]:
    """The metrics that a collector of ours produces over a fixture in three seconds."""
    spec = next(spec for spec in ALL if spec.name == collector)
    clock = FakeClock()
    context = Context(roots, clock, logging.getLogger("test"), lambda facts: None, ("*",))
    made = spec.create(spec.settings.model_validate(settings), context)
    try:
        for _ in range(3):
            clock.advance(1)
            yield from (sample.series.metric.name for sample in made.collect().samples)
    except NotPresent:
        pass
    finally:
        stop = getattr(made, "stop", None)
        if stop:
            stop(clock.monotonic())


def on_this_machine(directory: Path) -> Iterable[str]:
    """The metrics of the real program here, with every cgroup in full, a process that it serves, a flood of series,
    and a kernel log in which all that was recorded happens again."""
    dev = directory / "dev"
    dev.mkdir(parents=True)
    os.mkfifo(dev / "kmsg")
    log = directory / "engine.log"
    log.write_text("")
    logs = f"{{interval: 0.5, files: [{{engine: vllm, paths: ['{log}']}}]}}"
    address = directory / "requests"
    slo = "{classes: [{ttft: 0.5, e2e: 0.5}]}"
    settings = (
        f'slo: {slo}\nhttp: {{listen: "127.0.0.1:{{port}}"}}\npaths: {{dev: {dev}}}\nserving_processes: ["*"]\n'
        f'collectors: {{cgroup: {{full: ["*"]}}, kernel_log: {{interval: 0.5}}, engine_log: {logs}, '
        f"requests: {{interval: 0.5, socket: {address}}}}}\n"
    )
    with program(directory, settings, plugins(directory, {"flood": "FLOOD"})) as daemon:
        threading.Thread(target=happen, args=(dev / "kmsg",), daemon=True).start()
        until(address.exists)
        with closing(Client(address, "vllm")) as client:
            for _ in range(10):
                client.send(prompt_tokens=5000, status=200, output_tokens=1, ttft_seconds=1.0, e2e_seconds=1.0)
            assert client.sent == 10
        until(lambda: "oomcast_slo_calibration_ratio{" in fetch(f"{daemon.url}/metrics"))
        until(lambda: "oomcast_kernel_log_xids_total{" in fetch(f"{daemon.url}/metrics"))
        until(lambda: "oomcast_oom_kill_last_timestamp_seconds{" in fetch(f"{daemon.url}/metrics"), 30)
        until(lambda: "oomcast_xid_last_timestamp_seconds{" in fetch(f"{daemon.url}/metrics"), 30)
        until(lambda: "oomcast_time_to_exhaustion_seconds{" in fetch(f"{daemon.url}/metrics"), 30)
        text = fetch(f"{daemon.url}/metrics")
    names = re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE)
    table = json.loads(oomcast("metrics", "--format", "json").stdout)
    assert {row["name"] for row in table} == TABLE
    return names


def happen(log: Path) -> None:
    with log.open("wb", buffering=0) as written:
        for capture in sorted((FIXTURES / "kmsg" / "6.18").iterdir()):
            for record in capture.read_bytes().splitlines(keepends=True):
                written.write(record)
        written.write(f"4,900001,900001,-;{XID}\n".encode())
