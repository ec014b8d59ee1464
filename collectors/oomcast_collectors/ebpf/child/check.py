"""Tries every configured probe once, on the checking process itself, and says what became of each."""

import logging
import os
import time
from pathlib import Path

from oomcast.clock import SystemClock
from oomcast.contract import NotPresent, Roots
from oomcast_collectors.ebpf.child.attacher import Attacher
from oomcast_collectors.ebpf.child.bcc import Bcc, EbpfError
from oomcast_collectors.ebpf.child.events import Events
from oomcast_collectors.ebpf.child.mapped import mapped
from oomcast_collectors.ebpf.child.outlet import Outlet
from oomcast_collectors.ebpf.child.part import Tools
from oomcast_collectors.ebpf.child.points import Points
from oomcast_collectors.ebpf.child.probes import load
from oomcast_collectors.ebpf.child.program import Program
from oomcast_collectors.ebpf.child.symbols.symbols import Symbols
from oomcast_collectors.ebpf.child.targets import Targets
from oomcast_collectors.ebpf.description import DescriptionError
from oomcast_collectors.ebpf.settings import EbpfSettings
from oomcast_collectors.ebpf.wire import Checked, Order


def check(order: Order, outlet: Outlet) -> None:
    """Raises NotPresent where nothing can be had."""
    settings = EbpfSettings.model_validate(order.settings)
    log, clock = logging.getLogger("ebpf"), SystemClock()
    try:
        bcc = Bcc()
    except OSError as error:
        raise NotPresent(str(error)) from error
    points = Points()
    roots = Roots(proc=Path(order.proc), pods=Path(order.pods))
    targets = Targets(settings.targets, tuple(order.serving), roots, clock, lambda process, came: None)
    tools = Tools(
        *(bcc, settings, clock, log, order.proc, Events(bcc, log)),
        *(targets, Attacher(order.proc, points, log), Symbols(order.proc), outlet.send),
    )
    for name in settings.probes:
        began = time.monotonic()
        try:
            program, _ = load(name, tools)
        except (DescriptionError, EbpfError) as error:
            outlet.send(Checked(name, False, str(error)))
            continue
        took = time.monotonic() - began
        try:
            said = _attach(program, points)
            outlet.send(Checked(name, True, f"compiled and loaded in {took:.2f} s, {said}, detached"))
        except (EbpfError, OSError) as error:
            outlet.send(Checked(name, False, str(error)))
        finally:
            program.close()


def _attach(program: Program, points: Points) -> str:
    """What it was attached to. Raises EbpfError."""
    program.attach_tracepoints()
    tracepoints = program.points
    files = {file.identity: file for file in mapped("/proc", os.getpid())}
    absent: dict[str, None] = {}
    functions = 0
    for probe in program.description.uprobes:
        found = False
        for file in files.values():
            if not probe.of(file.name, file.program):
                continue
            for point in points.find(file, probe.symbol):
                found = True
                functions += 1
                program.detach(program.attach(os.getpid(), file.path, point.offset, point.shift, probe))
        if not found:
            absent[probe.library] = None
    said = f"attached to {_many(tracepoints, 'tracepoint')} and {_many(functions, 'function')}"
    return f"{said} (the check itself has no {' or '.join(absent)})" if absent else said


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
