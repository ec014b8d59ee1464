"""Panics of Rust code: whose, in which thread, and by which calls."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from oomcast.contract import Event
from oomcast_collectors.ebpf import metrics
from oomcast_collectors.ebpf.child.deaths.departed import Departed
from oomcast_collectors.ebpf.child.moment import moment
from oomcast_collectors.ebpf.child.part import Process, Tools
from oomcast_collectors.ebpf.child.program import Program
from oomcast_collectors.ebpf.child.symbols.unwind import Stack, unwound
from oomcast_collectors.ebpf.wire import Row

_GROUP = "main"


class PanicsPart:
    def __init__(self, program: Program, tools: Tools) -> None:
        self._program = program
        self._tools = tools
        self._departed = Departed(tools.clock)
        self._panics: Counter[str] = Counter()
        self._chunk = program.description.constants["CHUNK"]
        tools.events.open(program, "panics", self._take)
        tools.attacher.switch(program, _GROUP, on=True)

    def joined(self, process: Process) -> None:
        self._departed.back(process.pid)

    def left(self, process: Process) -> None:
        self._departed.add(process)

    def tick(self, now: float) -> None:
        return

    def rows(self) -> Iterator[Row]:
        for process in self._tools.targets:
            if self._tools.attacher.points(self._program, _GROUP, process.pid):
                self._panics[process.name] += 0
        for name, number in self._panics.items():
            yield Row(metrics.PANICS.name, (name,), number)
        yield Row(metrics.PROBE_LOST.name, ("panics", "panics"), sum(n for _, n in self._program.rows("lost")))

    def close(self) -> None:
        return

    def _take(self, item: Any) -> None:
        process = self._tools.targets.get(item.pid) or self._departed.get(item.pid)
        if process is None:
            return
        self._panics[process.name] += 1
        thread = item.comm.decode("utf-8", "backslashreplace")
        fields: dict[str, str | int | float] = {
            "pid": item.pid,
            "tid": item.tid,
            "thread": thread,
            "process": process.name,
        }
        if process.cgroup:
            fields["cgroup"] = process.cgroup
        if calls := unwound(Stack.of(item, self._chunk), self._tools.symbols, item.pid):
            fields["stack"] = "\n".join(map(str, calls))
        summary = f"Rust code panicked in the thread {thread} of {process.name}[{item.pid}]"
        self._tools.tell(Event("rust_panic", *moment(self._tools.clock, item.when), summary, fields))
