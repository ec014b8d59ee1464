"""A whole node for the fleet: the real daemon on GPUs of the tests' scripted driver, real cgroups that are named as
Kubernetes names them, and engines that are processes in these cgroups and on those GPUs."""

import hashlib
import json
import os
import random
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import CalledProcessError
from typing import NamedTuple

from collectors.gpu.driver import FakeDriver, build

from fleet_pages import MARK
from machine import HERE, child, daemon
from oomcast.client import Client
from owned import LIMIT, Owned, held, limit, parent
from peers import Missing

OBJECTIVES = [
    {"up_to": 512, "ttft": 0.5, "e2e": 10},
    {"up_to": 2048, "ttft": 1, "e2e": 15},
    {"up_to": 65536, "ttft": 10, "e2e": 60},
    {"up_to": 131072, "ttft": 60, "e2e": 120},
    {"ttft": 120, "e2e": 240},
]
"""Those of docs/slo.md."""

_ROOT = "/kubepods.slice"
_ENGINE_BYTES = 1 << 30
_HELD = 60 << 30
_STEP = 64 << 20
_CHANGED = 0.1
_MESSAGES = 5
"""A second to each engine."""


class Shape(NamedTuple):
    """What a node has. objectives: it is told of each request as well, and has objectives for them."""

    gpus: int
    cgroups: int
    engines: int
    objectives: bool = False

    def __str__(self) -> str:
        more = ", objectives and messages" if self.objectives else ""
        return f"{self.gpus} GPU{'s' * (self.gpus > 1)}, {self.cgroups} cgroups, {self.engines} engines{more}"


class Node(NamedTuple):
    """port: of the daemon. path: of the parent of its cgroups, which real nodes do not have."""

    port: int
    path: str

    def page(self, body: bytes) -> bytes:
        """As a node would say it that has these cgroups below the kubelet's."""
        return body.replace(self.path.encode(), _ROOT.encode())


@contextmanager
def node(shape: Shape) -> Iterator[Node]:
    """It lives: some cgroups change each second, GPU memory moves, engines count. Raises peers.Missing, Unusable."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oomcast-bench-")))
        cgroups = stack.enter_context(_cgroups(shape))
        engines = _engines(stack, directory, cgroups, shape)
        driver = _driver(directory, shape)
        names = [name(number) for number in range(shape.engines if shape.objectives else 0)]
        clients = [Client(directory / "requests", name) for name in names]
        stack.enter_context(_World(driver, cgroups, [pid for pid, _ in engines], clients))
        settings = _settings(directory, cgroups, engines, shape)
        _, port = stack.enter_context(daemon({**settings, **driver.environment}))
        yield Node(port, cgroups.path)


def name(number: int) -> str:
    """Of an engine."""
    return f"engine-{number}"


@contextmanager
def _cgroups(shape: Shape) -> Iterator[Owned]:
    """Pods with one container each: two cgroups a pod. `directories` are the containers'."""
    with parent() as above:
        made = Owned(above.parent, above.path, above.version, 0)
        for number in range(shape.cgroups // 2):
            text = hashlib.sha256(str(number).encode()).hexdigest()
            uid = f"{text[:8]}_{text[8:12]}_4{text[13:16]}_9{text[17:20]}_{MARK}{text[28:32]}"
            pod = made.parent / f"kubepods-burstable-pod{uid}.slice"
            container = pod / f"cri-containerd-{text[:24]}{MARK}{text[32:]}.scope"
            container.mkdir(parents=True)
            if made.version == 2:
                (pod / "cgroup.subtree_control").write_text("+memory")
            limit(container, made.version, LIMIT)
            made.directories.append(container)
        with held(made):
            yield made


def _engines(stack: ExitStack, directory: Path, cgroups: Owned, shape: Shape) -> Sequence[tuple[int, int]]:
    """Process id and port of each, in a container of its own."""
    # The kernel names a process for the file that it executes, and by that name the daemon knows engines.
    program = directory / "VLLM::EngineCore"
    program.symlink_to(os.path.realpath(sys.executable))
    found = []
    for container in cgroups.directories[: shape.engines]:
        limit(container, cgroups.version, _ENGINE_BYTES)
        join = ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', str(container / "cgroup.procs")]
        server = stack.enter_context(child([*join, str(program), str(HERE / "serve_engines.py"), "1"], quiet=True))
        found.append((server.pid, json.loads(server.answer())[0]))
    return found


def _driver(directory: Path, shape: Shape) -> FakeDriver:
    try:
        driver = FakeDriver(directory, build(directory), gpus=shape.gpus)
    except FileNotFoundError as error:
        raise Missing("there is no C compiler for the scripted driver") from error
    except CalledProcessError as error:
        raise Missing("the scripted driver does not compile") from error
    for number, gpu in enumerate(driver.gpus):
        gpu.set(uuid=f"GPU-{number:08x}-4b7a-4f10-9c3e-{MARK}{number:04x}", util=80, memutil=30)
    return driver


def _settings(directory: Path, cgroups: Owned, engines: Sequence[tuple[int, int]], shape: Shape) -> Mapping[str, str]:
    endpoints = [{"url": f"http://127.0.0.1:{port}", "name": name(i)} for i, (_, port) in enumerate(engines)]
    settings = {
        # This machine's own are none of a node's. All else is at its default, but that nothing is loading any more.
        "CGROUP__INCLUDE": json.dumps([f"{cgroups.path}/*"]),
        "ENGINE__ENDPOINTS": json.dumps(endpoints),
        "GPU__LOAD_GRACE": "0",
    }
    if shape.objectives:
        settings["REQUESTS__SOCKET"] = str(directory / "requests")
    made = {f"OOMCAST_COLLECTORS__{key}": value for key, value in settings.items()}
    return made | ({"OOMCAST_SLO__CLASSES": json.dumps(OBJECTIVES)} if shape.objectives else {})


class _World:
    """Changes what the daemon looks at, once a second."""

    def __init__(self, driver: FakeDriver, cgroups: Owned, pids: Sequence[int], clients: Sequence[Client]) -> None:
        self._driver = driver
        self._cgroups = cgroups
        self._pids = pids
        self._clients = clients
        self._random = random.Random(1)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._live, name="world", daemon=True)

    def __enter__(self) -> "_World":
        self._move()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _live(self) -> None:
        while not self._over.wait(1):
            self._move()
            self._cgroups.change(_CHANGED)
            for client in self._clients:
                for _ in range(_MESSAGES):
                    self._tell(client)

    def _tell(self, client: Client) -> None:
        length = int(self._random.lognormvariate(7.5, 1.8))
        first, all_of_it = 0.1 + length / 20_000, 5 + length / 2_000
        client.send(
            status=200, prompt_tokens=length, output_tokens=300, cached_tokens=length // 2, empty=False, retries=0,
            trace_id=f"{self._random.getrandbits(127) + 1:032x}", user=True, tenant=True,
            ttft_seconds=first, e2e_seconds=all_of_it,
        )  # fmt: skip

    def _move(self) -> None:
        gpus, pids = self._driver.gpus, self._pids
        for number, gpu in enumerate(gpus):
            several = len(pids) > len(gpus)
            own = pids[number :: len(gpus)] if several else [pids[number % len(pids)]]
            used = _HELD + _STEP * self._random.randrange(16)
            watts = self._random.randrange(300_000, 600_000)
            gpu.set(used=used, power_mw=watts, proc=[(pid, used // len(own) - (1 << 29)) for pid in own])
        self._driver.write()
