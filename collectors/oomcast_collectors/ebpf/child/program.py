"""One probe's program in the kernel: compiled, loaded, attached, and taken out again."""

import ctypes
from collections.abc import Iterator, Mapping
from typing import Any

from oomcast_collectors.ebpf.child.bcc import Bcc, EbpfError, table_items
from oomcast_collectors.ebpf.description import Description, Uprobe

_KPROBE, _TRACEPOINT = 2, 5  # BPF_PROG_TYPE_*
_ENTRY, _RETURN = 0, 1


class Program:
    """All descriptors it holds are closed by close(), and by the kernel when the process ends, however it ends."""

    def __init__(
        self, bcc: Bcc, name: str, description: Description, text: str, constants: Mapping[str, int] | None = None
    ) -> None:
        """constants: macros that override the description's. Raises EbpfError when it does not compile."""
        self.name = name
        self.description = description
        self._bcc = bcc
        macros = {**description.constants, **(constants or {})}
        head = "".join(f"#define {macro} {value}\n" for macro, value in macros.items())
        self._bpf = bcc.compile(f"{head}{text}")
        self._functions: dict[tuple[str, int], int] = {}
        self._tracepoints: dict[str, int] = {}
        self._uprobes: set[int] = set()

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
            category, event = point.event.split(":")
            try:
                function = self._function(point.function, _TRACEPOINT)
                fd = self._bcc.lib.bpf_attach_tracepoint(function, category.encode(), event.encode())
            except EbpfError:
                if point.optional:
                    continue
                raise
            if fd >= 0:
                self._tracepoints[point.event] = fd
            elif not point.optional:
                raise EbpfError(f"tracepoint {point.event} cannot be attached; this kernel may not have it")

    def attach(self, pid: int, path: str, offset: int, shift: int, probe: Uprobe) -> list[int]:
        """Attaches to one place of one process; the descriptors, for detach(). Raises EbpfError, with nothing left."""
        attached: list[int] = []
        try:
            if probe.entry is not None:
                attached.append(self._attach(_ENTRY, probe.entry, path, offset + (shift if probe.shift else 0), pid))
            if probe.leave is not None:
                attached.append(self._attach(_RETURN, probe.leave, path, offset, pid))
        except EbpfError:
            self.detach(attached)
            raise
        return attached

    def detach(self, descriptors: list[int]) -> None:
        for fd in descriptors:
            if fd in self._uprobes:
                self._uprobes.remove(fd)
                self._bcc.lib.bpf_close_perf_event_fd(fd)
        descriptors.clear()

    def close(self) -> None:
        self.detach(list(self._uprobes))
        for fd in self._tracepoints.values():
            self._bcc.lib.bpf_close_perf_event_fd(fd)
        self._tracepoints.clear()
        self._bpf.cleanup()

    def _function(self, name: str, kind: int) -> int:
        if (name, kind) not in self._functions:
            self._functions[name, kind] = self._bcc.load(self._bpf, name, kind)
        return self._functions[name, kind]

    def _attach(self, kind: int, function: str, path: str, offset: int, pid: int) -> int:
        # The kernel knows such an event by its descriptor alone; the name is for its older interface.
        name = f"oomcast_{self.name}_{function}_{offset:x}_{pid}".encode()
        loaded = self._function(function, _KPROBE)
        fd = self._bcc.lib.bpf_attach_uprobe(loaded, kind, name, path.encode(), offset, pid, 0)
        if fd < 0:
            raise EbpfError(f"{function} cannot be attached to process {pid}")
        self._uprobes.add(fd)
        return int(fd)
