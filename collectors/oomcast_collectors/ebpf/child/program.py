"""One probe's program in the kernel: compiled, loaded, attached, and taken out again."""

import ctypes
import errno
import os
from collections.abc import Iterator, Mapping
from typing import Any

from oomcast_collectors.ebpf.child.bcc import Bcc, EbpfError, NotPermitted, captured, table_items
from oomcast_collectors.ebpf.child.uprobes import ATTACH_TYPE, Uprobes
from oomcast_collectors.ebpf.description import Description, Tracepoint, Uprobe

_KPROBE, _TRACEPOINT = 2, 5  # BPF_PROG_TYPE_*


class Program:
    """All descriptors it holds are closed by close(), and by the kernel when the process ends, however it ends."""

    def __init__(
        self,
        bcc: Bcc,
        name: str,
        description: Description,
        text: str,
        constants: Mapping[str, int] | None = None,
        *,
        tried: bool = True,
    ) -> None:
        """constants: macros that override the description's. tried: it is known that the compiler survives it. Raises
        EbpfError when it does not compile."""
        self.name = name
        self.description = description
        self._bcc = bcc
        macros = {**description.constants, **(constants or {})}
        head = "".join(f"#define {macro} {value}\n" for macro, value in macros.items())
        if not tried:
            bcc.try_out(f"{head}{text}")
        self._bpf = bcc.compile(f"{head}{text}")
        self._functions: dict[tuple[str, int], int] = {}
        self._tracepoints: dict[str, int] = {}
        self._uprobes: set[int] = set()
        self._places = Uprobes()

    @property
    def points(self) -> int:
        """In how many places it is attached now."""
        return len(self._tracepoints) + len(self._uprobes)

    def table(self, name: str) -> Any:
        """A table as BCC has it. Raises KeyError without one of that name."""
        return self._bpf[name]

    def rows(self, name: str) -> Iterator[tuple[Any, int]]:
        """(key, value) of a table of numbers; those of several CPUs are added up."""
        for key, value in table_items(self.table(name)):
            yield key, (sum(value) if isinstance(value, list | ctypes.Array) else getattr(value, "value", value))

    def load(self) -> None:
        """Loads every function that the description names. Raises EbpfError when the kernel refuses one."""
        for point in self.description.tracepoints:
            if not point.optional:
                self._function(point.function, _TRACEPOINT)
        for probe in self.description.uprobes:
            for function in filter(None, (probe.entry, probe.leave)):
                self._function(function, _KPROBE)

    def attach_tracepoints(self) -> None:
        """Raises EbpfError when one that is not optional cannot be attached."""
        for point in self.description.tracepoints:
            if point.event in self._tracepoints:
                continue
            try:
                self._tracepoints[point.event] = self._attach_tracepoint(point)
            except EbpfError:
                if not point.optional:
                    raise

    def attach(self, pid: int, path: str, offset: int, shift: int, probe: Uprobe) -> list[int]:
        """Attaches to one place of one process; the descriptors, for detach(). Raises EbpfError, with nothing left."""
        attached: list[int] = []
        try:
            if probe.entry is not None:
                attached.append(self._attach(probe.entry, path, offset + (shift if probe.shift else 0), pid))
            if probe.leave is not None:
                attached.append(self._attach(probe.leave, path, offset, pid, leave=True))
        except EbpfError:
            self.detach(attached)
            raise
        return attached

    def detach(self, descriptors: list[int], *, wait: bool = True) -> None:
        """wait: until they are out; else they go behind the caller's back."""
        held = self._uprobes.intersection(descriptors)
        self._uprobes -= held
        self._places.detach(list(held), wait=wait)
        descriptors.clear()

    def close(self) -> None:
        self.detach(list(self._uprobes))
        for fd in self._tracepoints.values():
            self._bcc.lib.bpf_close_perf_event_fd(fd)
        self._tracepoints.clear()
        self._bpf.cleanup()

    def _function(self, name: str, kind: int) -> int:
        if (name, kind) not in self._functions:
            attach_type = ATTACH_TYPE if kind == _KPROBE else -1
            self._functions[name, kind] = self._bcc.load(self._bpf, name, kind, attach_type)
        return self._functions[name, kind]

    def _attach_tracepoint(self, point: Tracepoint) -> int:
        function = self._function(point.function, _TRACEPOINT)
        category, event = point.event.split(":")
        with captured() as said:
            fd = int(self._bcc.lib.bpf_attach_tracepoint(function, category.encode(), event.encode()))
            why = said()
        if fd >= 0:
            return fd
        text = f"tracepoint {point.event} cannot be attached: {why or 'nothing says why'}"
        if any(os.strerror(number) in why for number in (errno.EACCES, errno.EPERM)):
            raise NotPermitted(text)
        raise EbpfError(f"{text}; this kernel may not have it" if os.strerror(errno.ENOENT) in why else text)

    def _attach(self, function: str, path: str, offset: int, pid: int, *, leave: bool = False) -> int:
        try:
            fd = self._places.attach(self._function(function, _KPROBE), path, offset, pid, leave=leave)
        except EbpfError as error:
            raise EbpfError(f"{function} cannot be attached to process {pid}: {error}") from error
        self._uprobes.add(fd)
        return fd
