"""What one probed call costs the process that makes it, on this machine, measured with the real program."""

import logging
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Self

from oomcast_collectors.ebpf.child.bcc import Bcc, EbpfError
from oomcast_collectors.ebpf.child.cost.meter import ASSUMED, CallCost
from oomcast_collectors.ebpf.child.mapped import mapped
from oomcast_collectors.ebpf.child.points import Point, Points
from oomcast_collectors.ebpf.child.program import Program
from oomcast_collectors.ebpf.description import Uprobe

_CALLER = Path(__file__).with_name("caller.py")
_PATIENCE = 2.0
_CALLS = 100
_ROUNDS = 40
"""Short ones, so that one in which nothing else came between is among them."""

_FUNCTIONS = {"malloc": "free", "mmap": "munmap"}


class NotMeasured(Exception):
    """Why there is no measurement."""


class _Round(NamedTuple):
    """Seconds of a call."""

    allocate: float
    free: float


class _Place(NamedTuple):
    """Where a described function is in the caller."""

    path: str
    point: Point
    probe: Uprobe


def measure(
    program: Program,
    bcc: Bcc,
    log: logging.Logger,
    enrol: Callable[[int], None],
    dismiss: Callable[[int], None],
    group: str,
    allocate: str = "malloc",
) -> CallCost | None:
    """Takes a quarter of a second, two at most. None, with a line in the log, where it cannot be measured.

    enrol, dismiss: have the program follow a process, and forget it and what it did. group: of uprobes, with one for
    `allocate`, malloc or mmap, and one for what undoes that.
    """
    try:
        with _Caller(allocate) as caller:
            enrol(caller.pid)
            try:
                return _measure(program, Points(), caller, group, allocate)
            finally:
                dismiss(caller.pid)
    except (EbpfError, NotMeasured, OSError, ValueError) as error:
        log.warning("what a probed %s costs could not be measured: %s", allocate, error)
        return None


def _measure(program: Program, points: Points, caller: "_Caller", group: str, allocate: str) -> CallCost:
    plain = caller.best()
    allocating = _find(program, points, caller.pid, group, allocate)
    freeing = _find(program, points, caller.pid, group, _FUNCTIONS[allocate])
    attached = _attach(program, caller.pid, allocating)
    try:
        stepped = None
        if freeing.point.shift:
            first = _attach(program, caller.pid, freeing, shifted=False)
            stepped = caller.best()
            program.detach(first)
        attached += _attach(program, caller.pid, freeing)
        probed = caller.best()
    finally:
        program.detach(attached)
    if stepped is not None:
        step = max(stepped.free - probed.free, 0.0)
    else:
        step = 0.0 if freeing.point.stepped else ASSUMED.step
    cost = CallCost(probed.allocate - plain.allocate, probed.free - plain.free, step)
    if min(cost.allocate, cost.free) <= 0:
        raise NotMeasured("a probed call took no longer than another")
    return cost


def _find(program: Program, points: Points, pid: int, group: str, symbol: str) -> _Place:
    """Raises NotMeasured, or OSError when the process is gone."""
    for file in mapped("/proc", pid):
        for probe in program.description.uprobes:
            if probe.group == group and probe.of(file.name, file.program):
                for point in points.find(file, probe.symbol):
                    if point.symbol == symbol:
                        return _Place(file.path, point, probe)
    raise NotMeasured(f"there is no {symbol} to probe")


def _attach(program: Program, pid: int, place: _Place, *, shifted: bool = True) -> list[int]:
    """shifted: at the instruction that the description's probes are put at, and not at the first."""
    shift = place.point.shift if shifted else 0
    return program.attach(pid, place.path, place.point.offset, shift, place.probe)


class _Caller:
    """The process that makes the calls. A context manager that ends it. Raises OSError when it cannot be started."""

    def __init__(self, allocate: str) -> None:
        self._deadline = time.monotonic() + _PATIENCE
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_CALLER), allocate, str(_CALLS)],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        self._line()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def best(self) -> _Round:
        """The quickest of the rounds, allocations and frees each for themselves. Raises NotMeasured."""
        rounds = [self._round() for _ in range(_ROUNDS)]
        return _Round(min(one.allocate for one in rounds), min(one.free for one in rounds))

    def _round(self) -> _Round:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        allocate, free = (int(ns) * 1e-9 / _CALLS for ns in self._line().split())
        return _Round(allocate, free)

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        pipe, said = self._process.stdout.fileno(), b""
        while not said.endswith(b"\n"):
            if not select.select([pipe], [], [], max(self._deadline - time.monotonic(), 0.0))[0]:
                raise NotMeasured(f"it takes more than {_PATIENCE:g} s")
            read = os.read(pipe, 4096)
            if not read:
                raise NotMeasured("the process that makes the calls has ended")
            said += read
        return said
