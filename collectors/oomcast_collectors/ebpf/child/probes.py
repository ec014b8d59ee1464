"""The probes that the settings name: loaded, given their targets, and told of. One that fails costs no other."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from oomcast_collectors.ebpf import metrics
from oomcast_collectors.ebpf.child.bcc import EbpfError
from oomcast_collectors.ebpf.child.generic import GenericPart, check_tables
from oomcast_collectors.ebpf.child.part import Maker, Part, Process, Tools
from oomcast_collectors.ebpf.child.program import Program
from oomcast_collectors.ebpf.child.shipped import SHIPPED, Shipped
from oomcast_collectors.ebpf.description import DescriptionError, is_shipped, read
from oomcast_collectors.ebpf.privileges import lacking_for_programs
from oomcast_collectors.ebpf.wire import Row


class Lacking(EbpfError):
    """The daemon lacks a privilege for it, and has said so itself."""


@dataclass(slots=True, eq=False)
class _Loaded:
    program: Program
    part: Part


def load(name: str, tools: Tools) -> tuple[Program, Maker]:
    """Compiles and loads one probe, attached to nothing. Raises DescriptionError or EbpfError."""
    description, text = read(name, tools.settings.folder)
    if description.uprobes and (lacking := lacking_for_programs()):
        raise Lacking(lacking)
    shipped = SHIPPED.get(name, Shipped(GenericPart))
    if shipped.adapt is not None:
        description, text, constants = shipped.adapt(description, text, tools.settings)
    else:
        constants = {}
    program = Program(tools.bcc, name, description, text, constants, tried=is_shipped(name, tools.settings.folder))
    try:
        check_tables(program)
        program.load()
    except EbpfError:
        program.close()
        raise
    return program, shipped.make


class Probes:
    """Not thread-safe."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._log: logging.Logger = tools.log
        self._loaded: dict[str, _Loaded] = {}
        self._failures: dict[str, int] = dict.fromkeys(tools.settings.probes, 0)

    def load(self) -> None:
        """Loads and attaches all; what fails is logged and stays out."""
        for name in self._tools.settings.probes:
            try:
                program, make = load(name, self._tools)
            except (DescriptionError, EbpfError) as error:
                self._failed(name, error)
                continue
            self._tools.attacher.add(program)
            try:
                self._loaded[name] = _Loaded(program, make(program, self._tools))
                program.attach_tracepoints()
            except Exception as error:  # noqa: BLE001 - one of the folder's with a shipped one's name may lack anything
                self._failed(name, error)
                self._take_out(name, program)

    def part(self, name: str) -> Part | None:
        loaded = self._loaded.get(name)
        return loaded.part if loaded else None

    def joined(self, process: Process) -> None:
        self._each(lambda part: part.joined(process))

    def left(self, process: Process) -> None:
        self._each(lambda part: part.left(process))

    def tick(self, now: float) -> None:
        self._each(lambda part: part.tick(now))

    def rows(self) -> Iterator[Row]:
        own: list[Row] = []
        self._each(lambda part: own.extend(part.rows()))
        for name, failures in self._failures.items():
            loaded = self._loaded.get(name)
            yield Row(metrics.PROBE_ATTACHED.name, (name,), int(loaded is not None))
            yield Row(metrics.PROBE_FAILURES.name, (name,), failures + self._tools.attacher.failures(name))
            if loaded is not None:
                yield Row(metrics.PROBE_POINTS.name, (name,), loaded.program.points)
        yield from own

    def close(self) -> None:
        for loaded in self._loaded.values():
            loaded.part.close()
            loaded.program.close()
        self._loaded.clear()

    def _failed(self, name: str, error: Exception) -> None:
        self._failures[name] += 1
        if not isinstance(error, Lacking):
            self._log.error("the probe %s is not loaded: %s", name, error)

    def _each(self, call: Callable[[Part], None]) -> None:
        for name, loaded in tuple(self._loaded.items()):
            try:
                call(loaded.part)
            except BrokenPipeError:  # the daemon is gone
                raise
            except Exception:  # noqa: BLE001 - whatever is wrong with one probe costs no other
                self._failures[name] += 1
                self._log.exception("the probe %s is taken out", name)
                self._take_out(name, loaded.program)

    def _take_out(self, name: str, program: Program) -> None:
        self._loaded.pop(name, None)
        self._tools.attacher.remove(program)
        program.close()
