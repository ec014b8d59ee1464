"""Eight GPUs of the tests' scripted driver, with a process on each, and the programs that are measured on them."""

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import CalledProcessError

from collectors.gpu.driver import FakeDriver, build, uuid

from machine import HERE, background, cpu, free_port, get, wait_for
from oomcast_collectors.all import ALL
from peers import Missing, nvitop_exporter

GPUS = 8
BASE = 60 << 30
"""Bytes that an engine holds on each, of the 140 GiB that there are."""

WINDOW = 15
_MIB = 1 << 20
_GZIP = {"Accept-Encoding": "gzip"}
_TICKS = os.sysconf("SC_CLK_TCK")
_OTHERS = tuple(spec.name for spec in ALL if spec.name != "gpu")
_USED = re.compile(rb'^gpu_memory_used_MiB\{[^}]*uuid="([^"]+)"[^}]*\} (\S+)$', re.M)
_PEAK = re.compile(rb'^oomcast_gpu_memory_used_peak_bytes\{gpu="([^"]+)"\} (\S+)$', re.M)


@dataclass(frozen=True)
class Program:
    """One that is measured. pid, port: of its process, and of its /metrics on loopback."""

    name: str
    pid: int
    port: int

    def scrape(self) -> None:
        """As Prometheus does it."""
        get(self.port, headers=_GZIP)

    def used(self) -> float:
        """CPU seconds so far, children that have ended included."""
        stat = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return cpu(self.pid) + (int(stat[13]) + int(stat[14])) / _TICKS

    def by_thread(self) -> Mapping[str, float]:
        """CPU seconds so far of the threads that are there now, by name; those of one name together."""
        taken: dict[str, float] = {}
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            name = (task / "comm").read_text().strip()
            taken[name] = taken.get(name, 0.0) + int((task / "schedstat").read_text().split()[0]) / 1e9
        return taken


def used(program: Program) -> Mapping[str, float]:
    """Memory in use by GPU, in bytes, as the peer tells it."""
    found = _USED.findall(get(program.port)[1])
    return {gpu.decode(): float(value) * _MIB for gpu, value in found}


def peaks(program: Program) -> Mapping[str, float]:
    """The largest reading of the last `WINDOW` seconds by GPU, in bytes, as the daemon tells it."""
    return {gpu.decode(): float(value) for gpu, value in _PEAK.findall(get(program.port)[1])}


class Node:
    """driver: to be scripted further. uuids: of its GPUs, in order."""

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver
        self.uuids = [uuid(number) for number in range(len(driver.gpus))]

    @contextmanager
    def daemon(self, name: str, *, gpu: bool = True, others: bool = True) -> Iterator[Program]:
        """gpu, others: whether that collector, and all others, are switched on."""
        port = free_port()
        settings = {"OOMCAST_HTTP__LISTEN": f"127.0.0.1:{port}", "OOMCAST_LOG__LEVEL": "error"}
        if gpu:
            settings["OOMCAST_COLLECTORS__GPU__WINDOW"] = str(WINDOW)
        for collector in (*(() if gpu else ("gpu",)), *(() if others else _OTHERS)):
            settings[f"OOMCAST_COLLECTORS__{collector.upper()}__ENABLED"] = "false"
        argv: list[str | Path] = [sys.executable, HERE / "named_threads.py", "run"]
        with background(argv, {**self.driver.environment, **settings}) as pid:
            wait_for(port, "/-/ready")
            yield Program(name, pid, port)

    @contextmanager
    def peer(self) -> Iterator[Program]:
        """nvitop-exporter at its defaults. Raises Missing."""
        port = free_port()
        with background([nvitop_exporter(), "--port", str(port)], self.driver.environment) as pid:
            wait_for(port)
            yield Program("nvitop-exporter 1.7.2", pid, port)


@contextmanager
def node() -> Iterator[Node]:
    """Raises Missing without a compiler."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oomcast-bench-")))
        try:
            library = build(directory)
        except FileNotFoundError as error:
            raise Missing("there is no C compiler for the scripted driver") from error
        except CalledProcessError as error:
            raise Missing("the scripted driver does not compile") from error
        driver = FakeDriver(directory, library, gpus=GPUS)
        for gpu in driver.gpus:
            pid = stack.enter_context(background(["sleep", "infinity"]))
            gpu.set(used=BASE, util=80, memutil=30, proc=[(pid, BASE - (1 << 30))])
        driver.write()
        yield Node(driver)
