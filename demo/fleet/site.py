"""What a node is made of: driver, daemon, and one engine after the other at the same address."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from collectors.gpu.driver import FakeDriver, Section
from fleet.spec import Spec
from fleet.worker import Worker
from incident.memory import BLOCK, RESERVED, TOTAL, WEIGHTS, WORKSPACE, Gpu, describe
from incident.node import BLOCKS, CONFIG, MODEL, Memory, Node
from incident.programs import daemon, free_port
from incident.story import Users
from oomcast.client import Client
from simulator import Config, Request
from simulator.blocks import Pool

ENGINE = "vllm"
"""The same at all nodes: nothing but the node tells two of them apart."""

LONELY_PROMPT, LONELY_ANSWER = 6_000, 200
"""Tokens of a prompt that is like no other, and of its answer."""

USABLE = TOTAL - RESERVED
FULL = int(0.999 * USABLE)
"""Bytes that an engine reserved which takes almost all there is."""

RESERVED_CONFIG = Config(4_500, BLOCK, 32_768, model=MODEL)
"""A small pool, that a few users keep busy."""


class Reserved:
    """Memory that was taken at the start, and does not change."""

    def __init__(self, driver: FakeDriver, pid: int) -> None:
        self.pool = Pool(RESERVED_CONFIG.blocks)
        self._driver = driver
        describe(driver.gpus[0])
        driver.gpus[0].set(used=FULL, proc=(pid, FULL))
        driver.write()

    def tell(self) -> None:
        """Nothing changes."""

    def empty(self) -> None:
        self._driver.gpus[0].set(used=0, proc=None)
        self._driver.write()


class Site:
    """url: of the daemon. stopping: the node is to end. Raises what incident.programs does."""

    def __init__(self, spec: Spec, directory: Path, library: Path, parts: ExitStack, stopping: threading.Event) -> None:
        self.spec = spec
        self.stopping = stopping
        self.directory = directory
        self.driver = FakeDriver(directory, library, gpus=2 if spec.play == "load" else 1)
        for gpu in self.driver.gpus:
            describe(gpu)
        self.driver.write()
        self._port = free_port()
        self.engine = f"http://127.0.0.1:{self._port}"
        self.url = parts.enter_context(daemon(directory, self._settings(), self.driver.environment))
        if spec.cgroup:
            # The daemon stays outside.
            (Path(spec.cgroup) / "cgroup.procs").write_text("0")
        self._everybody = Users(spec.turns)
        self._worker: Worker | None = None
        self.life = self._begin()
        parts.callback(self.end)

    def end(self) -> None:
        """The engine and its process are gone, if they were not already."""
        self.life.stop()
        self._client.close()
        self._memory.empty()
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.end()

    def load(self) -> None:
        """The process of a new engine comes, and takes its first memory in the time of the spec; nobody answers yet.

        Afterwards `restart` brings the engine.
        """
        self._worker = Worker()
        used = WEIGHTS + WORKSPACE
        fill(self.driver, self.driver.gpus[0], self._worker.pid, used, self.spec.loading)
        self.stopping.wait(self.spec.loading)

    def restart(self) -> None:
        """A new engine answers at the address of the one before, and its users ask."""
        self.life = self._begin()
        self.life.start()

    def _begin(self) -> Node:
        spec = self.spec
        worker = self._worker = self._worker or Worker()
        self._memory: Memory
        if spec.play == "pool":
            self._memory, config = Reserved(self.driver, worker.pid), RESERVED_CONFIG
        else:
            self._memory, config = Gpu(self.driver, BLOCKS, first_tokens=spec.first_tokens, pid=worker.pid), CONFIG
        users = [_lonely() if spec.play == "no_reuse" else self._everybody.requests() for _ in range(spec.users)]
        self._client = Client(self.directory / "requests", ENGINE)
        life = Node(self._memory, self._client, spec.speed, users=users, config=config, port=self._port)
        life.serve()
        return life

    def _settings(self) -> dict[str, object]:
        off = {name: {"enabled": False} for name in ("ebpf", "kernel_log", "engine_log", "host")}
        cgroup = {"include": [f"*/{Path(self.spec.cgroup).name}"]} if self.spec.cgroup else {"enabled": False}
        more = json.loads(self.spec.settings)
        return {
            **more,
            "collectors": {
                **off,
                "cgroup": cgroup,
                "gpu": {"load_grace": self.spec.load_grace},
                "engine": {
                    "endpoints": [{"url": self.engine, "name": ENGINE}],
                    "hit_window": self.spec.hit_window,
                },
                "requests": {"socket": str(self.directory / "requests")},
                **more.get("collectors", {}),
            },
        }


def fill(driver: FakeDriver, gpu: Section, pid: int, used: int, seconds: float) -> None:
    """A process takes so many bytes, evenly, beginning now."""
    # The driver knows the time of day only.
    now = time.time()  # noqa: TID251
    gpu.set(used=0, proc=(pid, used), ramp=(used / seconds, f"{now:.3f}", used))
    driver.write()


def _lonely() -> Iterator[Request]:
    """Prompts that have nothing in common with any other."""
    while True:
        yield Request(0, LONELY_PROMPT, LONELY_ANSWER)
