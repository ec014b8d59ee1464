"""One crash, one event: what an eBPF probe, the kernel's log and systemd-coredump tell of the same death.

They know different things. The probe has the signal, the process and its stack; the log has the address that was
accessed, and knows the thread alone; a core file has everything, but comes seconds later. So each crash is kept for
that long, and what belongs to the same thread or process within a few seconds is put together. Nothing is counted
here: each witness has a counter of its own.
"""

import logging
import os
import re
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from oomcast.clock import Clock
from oomcast.contract import Event
from oomcast.logs import OnChange
from oomcast.metric import Sample

GATHER = 10.0  # seconds until a crash goes to the timeline; a core file is there by then unless it is huge
NEAR = 3.0  # seconds at most between what two witnesses tell of one crash
MAX_OPEN = 1000
MAX_FILES = 10_000

_WITNESSES = {"crash": "ebpf", "segfault": "kernel_log"}
_CORE = re.compile(r"core\..*\.\d{1,10}\.[0-9a-f]{32}\.(\d{1,10})\.(\d{1,20})(?:\.\w{1,5})?\Z", re.S)
_FIELDS = ("process", "signal", "code", "cause", "module", "address", "ip", "cgroup", "stack")


@dataclass(slots=True, eq=False)
class _Crash:
    """at: monotonic, when the first report was heard. reports: by witness."""

    at: float
    reports: dict[str, Event]

    def is_also(self, witness: str, event: Event) -> bool:
        """Whether a report of another witness is of this crash."""
        if witness in self.reports:
            return False
        near = (other for other in self.reports.values() if abs(other.monotonic - event.monotonic) <= NEAR)
        return any(_thread(other) == _thread(event) or _unnumbered(other, event) for other in near)


@dataclass(frozen=True, slots=True)
class _Core:
    """A file of systemd-coredump. time: UTC seconds."""

    pid: int
    time: float
    path: str


class CrashReconciler:
    """Takes the reports of all witnesses. Every method may be called from any thread.

    coredumps: where systemd-coredump keeps its files; need not be there.
    """

    def __init__(self, clock: Clock, coredumps: Path, log: logging.Logger) -> None:
        self._clock = clock
        self._coredumps = coredumps
        self._troubles = OnChange(log, clock=clock)
        self._lock = threading.Lock()
        self._open: list[_Crash] = []

    def see(self, events: Iterable[Event]) -> None:
        """Takes reports; kinds that tell of no crash are ignored."""
        with self._lock:
            for event in events:
                if event.kind in _WITNESSES:
                    self._take(_WITNESSES[event.kind], event)

    def settle(self) -> list[Event]:
        """A `crash_joined` event for each crash whose witnesses had their time; to be called about once a second."""
        with self._lock:
            ripe = self._clock.monotonic() - GATHER
            due = [crash for crash in self._open if crash.at <= ripe]
            self._open = [crash for crash in self._open if crash.at > ripe]
        if not due:
            return []
        cores = self._cores()
        return [_event(crash, cores) for crash in due]

    def samples(self) -> list[Sample]:
        """None: see above."""
        return []

    def _take(self, witness: str, event: Event) -> None:
        crash = next((crash for crash in self._open if crash.is_also(witness, event)), None)
        if crash is not None:
            crash.reports[witness] = event
        elif len(self._open) < MAX_OPEN:
            self._open.append(_Crash(self._clock.monotonic(), {witness: event}))

    def _cores(self) -> list[_Core]:
        try:
            with os.scandir(self._coredumps) as files:
                found = [_core(file.path) for file in islice(files, MAX_FILES)]
        except FileNotFoundError:
            found = []
        except OSError as error:
            message = f"{self._coredumps} cannot be read: {error.strerror}"
            self._troubles.report("coredumps", message, logging.WARNING, message)
            return []
        self._troubles.forget("coredumps")
        return [core for core in found if core is not None]


def _thread(event: Event) -> object:
    """The number of the thread that died, None if unknown: the kernel's log calls it a pid."""
    return event.fields.get("tid", event.fields.get("pid"))


def _unnumbered(one: Event, other: Event) -> bool:
    """Whether only the name of the thread can tell, and does: some lines of the log have no number."""
    return None in (_thread(one), _thread(other)) and _name(one) == _name(other) != ""


def _name(event: Event) -> str:
    return str(event.fields.get("thread", event.fields.get("comm", "")))


def _core(path: str) -> _Core | None:
    match = _CORE.match(path.rpartition("/")[2])
    return _Core(int(match[1]), int(match[2]) / 1e6, _printable(path)) if match else None


def _event(crash: _Crash, cores: Sequence[_Core]) -> Event:
    # The probe's last, as what it says of module and process is the better.
    reports = [crash.reports[witness] for witness in sorted(crash.reports, reverse=True)]
    best, witnesses = reports[-1], sorted(crash.reports)
    fields: dict[str, str | int | float] = {}
    for report in reports:
        fields |= {name: value for name in _FIELDS if (value := report.fields.get(name, "")) != ""}
        thread = _thread(report)
        fields |= {"thread": _name(report)} | ({"tid": thread} if isinstance(thread, int) else {})
    pid = best.fields.get("pid", "")
    if "ebpf" in crash.reports:
        fields["pid"] = pid
    # Of the log alone only the first thread's number is the process'.
    core = next((core for core in cores if core.pid == pid and abs(core.time - best.time) <= NEAR), None)
    if core is not None:
        fields |= {"pid": core.pid, "core": core.path}
        witnesses.append("coredump")
    fields["witnesses"] = ",".join(witnesses)
    return Event("crash_joined", best.time, best.monotonic, best.summary, fields)


def _printable(text: str) -> str:
    """A file is called what a process was called."""
    return "".join(c if c.isprintable() else "?" for c in text)
