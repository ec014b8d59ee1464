"""The probe unified_memory: what targets ask of CUDA's unified memory, and what the driver counted of its faults."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from oomcast_collectors.ebpf import metrics
from oomcast_collectors.ebpf.child.bcc import table_items
from oomcast_collectors.ebpf.child.cuda.uvm_stats import parse_uvm_stats, uuid_of
from oomcast_collectors.ebpf.child.part import Process, Tools
from oomcast_collectors.ebpf.child.program import Program
from oomcast_collectors.ebpf.wire import Row
from oomcast_collectors.host.files import read_once

_EVERY = 1.0
_LARGEST = 16 << 10
_MOST_GPUS = 64
_CALLS = (
    (metrics.PREFETCHES.name, "prefetches"),
    (metrics.PREFETCHED_BYTES.name, "prefetched_bytes"),
    (metrics.MANAGED_BYTES.name, "managed_bytes"),
)
_Key = tuple[str, tuple[str, ...]]


class UnifiedMemoryPart:
    def __init__(self, program: Program, tools: Tools) -> None:
        self._program = program
        self._tools = tools
        self._counts: Any = program.table("counts")
        self._gone: Counter[_Key] = Counter()
        self._driver = Driver(Path(tools.proc))
        self._due = 0.0
        tools.attacher.switch(program, "main", on=True)

    def joined(self, process: Process) -> None:
        return

    def left(self, process: Process) -> None:
        for pid, values in self._per_process():
            if pid == process.pid:
                self._gone.update(_rows(process.name, values))
                del self._counts[self._counts.Key(pid)]

    def tick(self, now: float) -> None:
        if now >= self._due:
            self._due = now + _EVERY
            self._driver.read()

    def rows(self) -> Iterator[Row]:
        sums = Counter(self._gone)
        for process in self._tools.targets:
            if self._tools.attacher.points(self._program, "main", process.pid):
                sums.update(_rows(process.name, {}))
        for pid, values in self._per_process():
            found = self._tools.targets.get(pid)
            if found is not None:
                sums.update(_rows(found.name, values))
        for (metric, labels), value in {**sums, **self._driver.totals}.items():
            yield Row(metric, labels, value)
        lost = sum(count for _, count in self._program.rows("lost"))
        yield Row(metrics.PROBE_LOST.name, (self._program.name, "counts"), lost)

    def close(self) -> None:
        return

    def _per_process(self) -> Iterator[tuple[int, dict[str, int]]]:
        for key, counts in table_items(self._counts):
            yield key.value, {field: int(getattr(counts, field)) for _, field in _CALLS}


class Driver:
    """What the driver counted since this was made, over the times that it began anew, as it does when nobody uses a GPU
    any more. proc: the root."""

    def __init__(self, proc: Path) -> None:
        self._folder = proc / "driver/nvidia-uvm/gpus"
        self._last: dict[_Key, int] = {}
        self.totals: Counter[_Key] = Counter()
        self._look()
        self.totals.update(dict.fromkeys(self._last, 0))

    def read(self) -> None:
        before = self._last
        self._look()
        for key, count in self._last.items():
            last = before.get(key, 0)
            self.totals[key] += count - last if count >= last else count

    def _look(self) -> None:
        """What could not be read of a GPU that is there stays as it was."""
        folders = self._folders()
        seen = {key: count for key, count in self._last.items() if key[1][0] in folders}
        for uuid, folder in folders.items():
            try:
                data = read_once(f"{self._folder}/{folder}/fault_stats", _LARGEST)
            except OSError:
                continue
            stats = parse_uvm_stats(data.decode("ascii", "replace"))
            seen.update({(metrics.UVM_FAULTS.name, (uuid, access)): count for access, count in stats.faults.items()})
            seen.update({(metrics.UVM_PAGES.name, (uuid, way)): count for way, count in stats.pages.items()})
        self._last = seen

    def _folders(self) -> dict[str, str]:
        """By UUID; none without such a driver, or with one that does not tell."""
        try:
            names = sorted(os.listdir(self._folder))  # noqa: PTH208 - names are all that is wanted
        except OSError:
            return {}
        return {uuid: name for name in names[:_MOST_GPUS] if (uuid := uuid_of(name))}


def _rows(name: str, values: Mapping[str, int]) -> dict[_Key, int]:
    return {(metric, (name,)): values.get(field, 0) for metric, field in _CALLS}
