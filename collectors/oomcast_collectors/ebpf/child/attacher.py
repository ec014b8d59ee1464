"""Attaches uprobes to targets, and only to them: each probe to each process that has the library mapped."""

import logging
import time
from collections import Counter
from dataclasses import dataclass, field

from oomcast.logs import OnChange
from oomcast_collectors.ebpf.child.bcc import EbpfError
from oomcast_collectors.ebpf.child.mapped import Mapped, mapped
from oomcast_collectors.ebpf.child.part import Process
from oomcast_collectors.ebpf.child.points import Points
from oomcast_collectors.ebpf.child.program import Program
from oomcast_collectors.ebpf.description import Uprobe

_YOUNG = 60.0
_OFTEN, _SELDOM = 1.0, 10.0
"""Seconds between two looks at the libraries of a process that came lately, and of one that did not."""
_SLICE = 0.2
"""Seconds that new processes may take between two calls of refresh(): each place takes the kernel some 30 ms, and a
storm of forks must not keep the child from everything else."""


@dataclass(slots=True, eq=False)
class _Attached:
    """What is attached to one process. places: what was tried, so that nothing is attached twice."""

    process: Process
    came: float
    due: float
    descriptors: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    places: set[tuple[str, str, int, tuple[str, int]]] = field(default_factory=set)
    stepped: dict[tuple[str, str], int] = field(default_factory=dict)


class Attacher:
    """Not thread-safe. groups: see Uprobe.group; a group is off until it is switched on."""

    def __init__(self, proc: str, points: Points, log: logging.Logger) -> None:
        self._proc = proc
        self._points = points
        self._log = OnChange(log)
        self._failures: Counter[str] = Counter()
        self._programs: list[Program] = []
        self._groups: set[tuple[str, str]] = set()
        self._attached: dict[int, _Attached] = {}
        self._left = _SLICE

    def add(self, program: Program) -> None:
        """Takes a program in; those of its groups that are on go to every target that comes."""
        self._programs.append(program)

    def remove(self, program: Program) -> None:
        """Takes a program out, detached from all targets."""
        for name, group in tuple(self._groups):
            if name == program.name:
                self.switch(program, group, on=False)
        self._programs.remove(program)

    def switch(self, program: Program, group: str, *, on: bool) -> None:
        """Attaches a group of uprobes to all targets, or detaches it from all."""
        key = (program.name, group)
        if on == (key in self._groups):
            return
        if on:
            self._groups.add(key)
            for attached in list(self._attached.values()):
                self._look(attached)
        else:
            self._groups.discard(key)
            for attached in self._attached.values():
                self._detach(attached, program, group)

    def is_on(self, program: Program, group: str) -> bool:
        return (program.name, group) in self._groups

    def join(self, process: Process) -> None:
        now = time.monotonic()
        self._attached[process.pid] = attached = _Attached(process, now, now)
        self._look_in_time(attached)

    def leave(self, pid: int) -> None:
        attached = self._attached.pop(pid, None)
        if attached is None:
            return
        # Taking probes out takes a tenth of a second, for which nobody need wait once the process is gone.
        there = self._is_there(pid)
        for program in self._programs:
            for name, group in list(attached.descriptors):
                if name == program.name:
                    self._detach(attached, program, group, wait=there)

    def refresh(self, now: float) -> None:
        """Looks for libraries that targets have loaded since, the longest due first; for ten calls a second."""
        self._left = _SLICE
        due = [attached for attached in self._attached.values() if now >= attached.due]
        for attached in sorted(due, key=lambda one: one.due):
            self._look_in_time(attached)

    def points(self, program: Program, group: str, pid: int) -> int:
        """In how many places this group is attached to the process."""
        attached = self._attached.get(pid)
        return len(attached.descriptors.get((program.name, group), ())) if attached else 0

    def stepped(self, program: Program, group: str, pid: int) -> float:
        """The share of its functions there at which the kernel has to execute an instruction out of line, see Point."""
        attached = self._attached.get(pid)
        stepped = attached.stepped.get((program.name, group), 0) if attached else 0
        if attached is None or not stepped:
            return 0.0
        entries = _entries(program, group)
        return stepped / sum(place[0] == program.name and place[1] in entries for place in attached.places)

    def failures(self, name: str) -> int:
        """How often this program could not be attached to a process that went on."""
        return self._failures[name]

    def _look_in_time(self, attached: _Attached) -> None:
        if self._left > 0:
            began = time.monotonic()
            self._look(attached)
            self._left -= time.monotonic() - began

    def _look(self, attached: _Attached) -> None:
        now = time.monotonic()
        attached.due = now + (_OFTEN if now < attached.came + _YOUNG else _SELDOM)
        wanted = [(p, probe) for p in self._programs for probe in p.description.uprobes if self._wants(p, probe)]
        if not wanted:
            return
        try:
            files = {file.identity: file for file in mapped(self._proc, attached.process.pid)}
        except OSError:  # it has ended, which its exit tells
            return
        meant: dict[str, list[Mapped]] = {}
        for program, probe in wanted:
            if probe.library not in meant:
                meant[probe.library] = [file for file in files.values() if probe.of(file.name, file.program)]
            for file in meant[probe.library]:
                self._attach(attached, program, probe, file)

    def _wants(self, program: Program, probe: Uprobe) -> bool:
        return (program.name, probe.group) in self._groups

    def _attach(self, attached: _Attached, program: Program, probe: Uprobe, file: Mapped) -> None:
        pid = attached.process.pid
        key = (program.name, probe.group)
        try:
            for point in self._points.find(file, probe.symbol):
                # Two names of one function, which glibc has for several, must not count each call twice.
                place = (program.name, probe.entry or probe.leave or "", point.offset, file.identity)
                if place in attached.places:
                    continue
                shift = point.shift if probe.shift else 0
                fds = program.attach(pid, file.path, point.offset, shift, probe)
                attached.places.add(place)
                attached.descriptors.setdefault(key, []).extend(fds)
                if point.stepped or (point.shift and not probe.shift):
                    attached.stepped[key] = attached.stepped.get(key, 0) + 1
        except (EbpfError, OSError) as error:
            if self._is_there(pid):
                self._failures[program.name] += 1
                text = f"the probe {program.name} is not attached to process {pid}: {error}{_hint(error)}"
                # A line for a process: each function and each file fails anew, and says something else each time.
                self._log.report((program.name, pid), attached.process.start, logging.WARNING, text)

    def _detach(self, attached: _Attached, program: Program, group: str, *, wait: bool = True) -> None:
        program.detach(attached.descriptors.pop((program.name, group), []), wait=wait)
        attached.stepped.pop((program.name, group), None)
        entries = _entries(program, group)
        attached.places = {p for p in attached.places if p[0] != program.name or p[1] not in entries}

    def _is_there(self, pid: int) -> bool:
        """Whether the process has memory that a probe could be in; one that is ending has lost it already."""
        try:
            return bool(mapped(self._proc, pid))
        except OSError:
            return False


def _hint(error: Exception) -> str:
    return "; if it is another user's, that takes CAP_DAC_READ_SEARCH" if isinstance(error, PermissionError) else ""


def _entries(program: Program, group: str) -> set[str | None]:
    """The functions of the program that places of a group go by."""
    return {probe.entry or probe.leave for probe in program.description.uprobes if probe.group == group}
