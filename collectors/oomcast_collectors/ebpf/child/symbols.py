"""Names for addresses: function and file, also of a process that has just died."""

import ctypes
import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import rust_demangler

from oomcast_collectors.ebpf.child.bcc import Bcc
from oomcast_collectors.ebpf.child.mapped import Mapped, mapped

_MOST_PROCESSES = 200
_UNKNOWN = "[unknown]"
_LONGEST_NAME = 1024
_HASH = re.compile(r"::h[0-9a-f]{16}\Z")


class Frame(NamedTuple):
    """function: demangled, "[unknown]" without a name. module: the file's name, "" where no file is mapped. offset: in
    the function; without one, in the file."""

    function: str
    module: str
    offset: int

    def __str__(self) -> str:
        return f"{self.function}+{self.offset:#x} ({self.module})" if self.module else f"{self.function}"


class _Known(NamedTuple):
    cache: Any
    files: Sequence[Mapped]


class Symbols:
    """Not thread-safe. A process must be primed while it lives: what it had mapped then is known after its death."""

    def __init__(self, bcc: Bcc, proc: str) -> None:
        self._lib = bcc.lib
        self._proc = proc
        self._known: OrderedDict[int, _Known] = OrderedDict()

    def prime(self, pid: int) -> None:
        """Remembers what the process has mapped now, in place of what it had. Nothing comes of one that is gone."""
        try:
            files = mapped(self._proc, pid)
        except OSError:
            return
        self.forget(pid)
        cache = self._lib.bcc_symcache_new(pid, None)
        self._resolve(cache, 0)
        self._known[pid] = _Known(cache, files)
        while len(self._known) > _MOST_PROCESSES:
            self.forget(next(iter(self._known)))

    def forget(self, pid: int) -> None:
        known = self._known.pop(pid, None)
        if known is not None:
            self._lib.bcc_free_symcache(known.cache, pid)

    def frames(self, addresses: Iterable[int], pid: int) -> list[Frame]:
        """The stack from its innermost function outwards, cut at the first address that no file is mapped at: what
        comes behind one is no stack but whatever a function without frame pointer left there."""
        if pid not in self._known:
            self.prime(pid)
        known = self._known.get(pid)
        if known is None:
            return []
        found: list[Frame] = []
        for depth, address in enumerate(addresses):
            # A return address may lie behind the end of a function that never returns, so look one byte earlier.
            frame = self._frame(known, address - (depth > 0))
            if not frame.module and depth > 0:
                break
            found.append(frame)
        return found

    def close(self) -> None:
        for pid in tuple(self._known):
            self.forget(pid)

    def _frame(self, known: _Known, address: int) -> Frame:
        file = next((file for file in known.files if file.start <= address < file.end), None)
        name, offset = self._resolve(known.cache, address)
        if file is None:
            # Code made at run time has a name where its maker writes a map (/tmp/perf-PID.map), else none.
            return Frame(name or _UNKNOWN, "", offset)
        if not name:
            return Frame(_UNKNOWN, file.name, address - file.start + file.offset)
        return Frame(name, file.name, offset)

    def _resolve(self, cache: Any, address: int) -> tuple[str, int]:
        from bcc.libbcc import bcc_symbol  # there once Bcc has been made

        symbol = bcc_symbol()
        if self._lib.bcc_symcache_resolve(cache, address, ctypes.byref(symbol)) < 0:
            return "", 0
        name = (symbol.demangle_name or b"").decode("utf-8", "replace")
        self._lib.bcc_symbol_free_demangle_name(ctypes.byref(symbol))
        return demangled(name), int(symbol.offset)


def demangled(name: str) -> str:
    """A Rust name as it is written, without the hash of its crate or of itself; any other name as it is."""
    if not name.startswith("_R") or len(name) > _LONGEST_NAME:
        return _HASH.sub("", name)
    try:
        return str(rust_demangler.demangle(name))
    except Exception:  # noqa: BLE001 - the library raises its own classes, IndexError and RecursionError; names are data
        return name
