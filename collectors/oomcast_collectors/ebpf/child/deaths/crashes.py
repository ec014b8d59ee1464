"""Fatal signals: whose, where in the code, and by which calls it came there."""

import platform
import signal
from collections import Counter, OrderedDict
from collections.abc import ItemsView, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from oomcast.contract import Event
from oomcast_collectors.ebpf import metrics
from oomcast_collectors.ebpf.child.deaths.blame import blamed
from oomcast_collectors.ebpf.child.deaths.departed import Departed
from oomcast_collectors.ebpf.child.moment import moment
from oomcast_collectors.ebpf.child.part import Process, Tools
from oomcast_collectors.ebpf.child.program import Program
from oomcast_collectors.ebpf.child.symbols.unwind import Call, Stack, unwound
from oomcast_collectors.ebpf.child.targets import OTHER, Names
from oomcast_collectors.ebpf.description import Description
from oomcast_collectors.ebpf.settings import EbpfSettings
from oomcast_collectors.ebpf.wire import Row

_FIRST_REGISTERS = (5, 15)
"""The first kernel that tells a program the registers of user space, given its own type information."""
_BTF = Path("/sys/kernel/btf/vmlinux")
_SAME_DEATH = 1.0
_SAME_FAULT = 10.0
_MOST_THREADS = 1000
_MOST_SERIES, _MOST_OF_STRANGERS = 250, 150

_V = TypeVar("_V")


def adapt(description: Description, text: str, _: EbpfSettings) -> tuple[Description, str, Mapping[str, int]]:
    numbers = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2] if part.isdigit())
    return description, text, {"REGISTERS": int(numbers >= _FIRST_REGISTERS and _BTF.exists())}


@dataclass(frozen=True, slots=True)
class _Fault:
    """One signal. sent: by kill() or abort(), not by the CPU."""

    when: int
    pid: int
    tid: int
    signal: int
    code: int
    thread: str
    stack: Stack

    @property
    def sent(self) -> bool:
        return self.code <= 0


class Crashes:
    """How many there were, by process, signal and module. A file may be called anything: what is too much is `other`,
    and what those call theirs that are no targets leaves room for targets."""

    def __init__(self) -> None:
        self._numbers: Counter[tuple[str, str, str]] = Counter()

    def add(self, process: str, name: str, module: str, *, target: bool) -> None:
        """name: of the signal."""
        most = _MOST_SERIES if target else _MOST_OF_STRANGERS
        if (process, name, module) not in self._numbers and len(self._numbers) >= most:
            process, module = process if target else OTHER, OTHER
        self._numbers[process, name, module] += 1

    def items(self) -> ItemsView[tuple[str, str, str], int]:
        return self._numbers.items()


class CrashesPart:
    """A signal that a thread handled and then sent to itself again, as crash reporters do, is told with the stack of
    the first time."""

    def __init__(self, program: Program, tools: Tools) -> None:
        self._program = program
        self._tools = tools
        self._departed = Departed(tools.clock)
        self._crashes = Crashes()
        self._handled: Counter[tuple[str, str]] = Counter()
        self._names: dict[int, str] = {}
        self._strangers = Names()
        self._deaths: OrderedDict[int, float] = OrderedDict()
        self._faults: OrderedDict[int, _Fault] = OrderedDict()
        self._chunk = program.description.constants["CHUNK"]
        tools.events.open(program, "faults", self._take)

    def joined(self, process: Process) -> None:
        self._departed.back(process.pid)

    def left(self, process: Process) -> None:
        self._departed.add(process)

    def tick(self, now: float) -> None:
        return

    def rows(self) -> Iterator[Row]:
        for labels, number in self._crashes.items():
            yield Row(metrics.CRASHES.name, labels, number)
        self._keep_handled()
        totals = self._handled.copy()
        for key, count in self._program.rows("handled"):
            totals[self._name(key.pid), _signal(key.signal)] += count
        for handled, number in totals.items():
            yield Row(metrics.HANDLED_SIGNALS.name, handled, number)
        for cause, count in self._program.rows("lost"):
            yield Row(metrics.PROBE_LOST.name, ("crashes", ("faults", "handled")[cause.value]), count)

    def close(self) -> None:
        return

    def _take(self, item: Any) -> None:
        fault = _Fault(
            *(item.when, item.pid, item.tid, item.signal, item.code),
            item.comm.decode("utf-8", "backslashreplace"),
            Stack.of(item, self._chunk),
        )
        if item.handler:
            self._name(fault.pid, fault.thread)
            _keep(self._faults, fault.tid, fault)
        else:
            self._on_death(fault)

    def _on_death(self, fault: _Fault) -> None:
        now = fault.when / 1e9
        # Two threads may both have got as far as this before the first one's signal ended the other.
        if now - self._deaths.get(fault.pid, float("-inf")) < _SAME_DEATH:
            return
        _keep(self._deaths, fault.pid, now)
        first = self._faults.pop(fault.tid, None)
        if first and fault.sent and first.signal == fault.signal and fault.when - first.when < _SAME_FAULT * 1e9:
            fault = first
        process = self._tools.targets.get(fault.pid) or self._departed.get(fault.pid)
        if process is None:
            # Of one that had this pid before.
            self._tools.symbols.forget(fault.pid)
            self._tools.symbols.prime(fault.pid)
        calls = unwound(fault.stack, self._tools.symbols, fault.pid)
        if process is None:
            self._tools.symbols.forget(fault.pid)
        name, module = self._name(fault.pid, fault.thread), blamed(calls, sent=fault.sent)
        self._crashes.add(name, _signal(fault.signal), module, target=process is not None)
        self._tools.tell(self._event(fault, process, name, module, calls))

    def _event(self, fault: _Fault, process: Process | None, name: str, module: str, calls: list[Call]) -> Event:
        fields: dict[str, str | int | float] = {
            "pid": fault.pid,
            "tid": fault.tid,
            "thread": fault.thread,
            "signal": _signal(fault.signal),
            "code": fault.code,
            "process": name,
        }
        if process is not None and process.cgroup:
            fields["cgroup"] = process.cgroup
        if module:
            fields["module"] = module
        if fault.stack.addresses:
            fields["ip"] = f"{fault.stack.addresses[0]:x}"
        if calls:
            fields["stack"] = "\n".join(map(str, calls))
        where = f" in {module}" if module else ""
        summary = f"{name}[{fault.pid}] died of {_signal(fault.signal)}{where}"
        return Event("crash", *moment(self._tools.clock, fault.when), summary, fields)

    def _name(self, pid: int, thread: str = "") -> str:
        """What the process is called: as a target, else by its own name, else by that of its thread."""
        process = self._tools.targets.get(pid) or self._departed.get(pid)
        if process is not None:
            return process.name
        if pid not in self._names:
            self._names[pid] = self._strangers.label(self._comm(pid) or thread)
        return self._names[pid]

    def _comm(self, pid: int) -> str:
        try:
            data = Path(self._tools.proc, str(pid), "comm").read_bytes()
        except OSError:
            return ""
        return data.decode("utf-8", "backslashreplace").removesuffix("\n")

    def _keep_handled(self) -> None:
        """Moves the counts of processes that are gone under their names; their pids may soon be others'."""
        table = self._program.table("handled")
        for key, count in list(self._program.rows("handled")):
            if not self._comm(key.pid):
                self._handled[self._name(key.pid), _signal(key.signal)] += count
                del table[key]
        self._names = {pid: name for pid, name in self._names.items() if self._comm(pid)}


def _keep(kept: OrderedDict[int, _V], key: int, value: _V) -> None:
    """As the newest of the newest thousand."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > _MOST_THREADS:
        kept.popitem(last=False)


def _signal(number: int) -> str:
    return signal.Signals(number).name
