"""Processes of a GPU, told look by look, and a /proc that has some of them."""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from collectors.host.trees import write_process
from fakes import FakeClock
from oomcast.contract import Context, Event, Roots
from oomcast.exposition import Exposition
from oomcast.store import Store
from oomcast_collectors.gpu.driver import ProcessMemory
from oomcast_collectors.gpu.processes import METRICS, Processes
from oomcast_collectors.gpu.settings import GpuSettings

GPU = "GPU-7f3a1b2c-0000-0000-0000-000000000000"
GIB = 1 << 30
MIB = 1 << 20
USABLE = 80 * GIB
LOG = logging.getLogger("oomcast.gpu")


class Bench:
    """look() is an update two seconds after the last one, with used memory that fits, if nothing else is said."""

    def __init__(self, proc: Path, **settings: object) -> None:
        self.clock = FakeClock()
        context = Context(Roots(proc=proc, pods=proc / "pods"), self.clock, LOG, lambda facts: None)
        self.processes = Processes(GpuSettings.model_validate(settings), context)

    def look(
        self,
        held: Mapping[int, int | None] | Iterable[ProcessMemory] | None,
        *,
        used: int | None = -1,
        usable: int | None = USABLE,
        accounting: Mapping[int, int] | None = None,
        gpu: str = GPU,
        seconds: float = 2,
    ) -> list[Event]:
        self.clock.advance(seconds)
        if isinstance(held, Mapping):
            held = [ProcessMemory(pid, value, None) for pid, value in held.items()]
        listed = None if held is None else list(held)
        if used == -1:
            used = sum(one.used or 0 for one in listed or ())
        return self.processes.update(gpu, used, usable, listed, accounting or {}, self.clock.monotonic())

    def values(self, name: str, gpu: str = GPU) -> dict[str, object]:
        """The values of oomcast_gpu_<name> by pid, or by "" where there is no such label."""
        found = [s for s in self.processes.samples() if s.series.metric.name == f"oomcast_gpu_{name}"]
        labelled = [(dict(s.series.labels), s.value) for s in found]
        values: dict[str, object] = {labels.get("pid", ""): value for labels, value in labelled if labels["gpu"] == gpu}
        assert len(values) == sum(labels["gpu"] == gpu for labels, _ in labelled)
        return values

    def value(self, name: str) -> object:
        return self.values(name).get("")

    def shown(self) -> set[str]:
        return set(self.values("process_memory_bytes"))

    def text(self) -> str:
        store = Store(METRICS)
        store.put("gpu", self.processes.samples())
        lines = b"".join(Exposition(store).render(False, False)).decode().splitlines()
        return "\n".join(line for line in lines if not line.startswith("#"))


def write_processes(proc: Path) -> Path:
    """Pids 1 to 9, called p1 .., each in a service of its own."""
    for pid in range(1, 10):
        write_process(proc, pid, f"p{pid}", cgroup=f"0::/system.slice/s{pid}.service\n")
    return proc
