"""Names for addresses: function and file, also of a process that has just died."""

import os
import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakValueDictionary, finalize

from oomcast_collectors.ebpf.child.mapped import Mapped, mapped
from oomcast_collectors.ebpf.child.symbols.codefile import CodeFile, Function
from oomcast_collectors.ebpf.child.symbols.demangle import demangled
from oomcast_collectors.ebpf.child.symbols.perfmap import PerfMap

_MOST_PROCESSES = 1200
_MOST_FILES, _MOST_FILES_OF_ONE = 4000, 1500
UNKNOWN = "[unknown]"
_YOUNG = 60.0
_OFTEN, _SELDOM = 1.0, 10.0
"""Seconds between two looks at what a process has mapped, while it is young and later."""
_KEPT = 30.0
"""Seconds for which a process that ended is known: as long as its files are open, what they are on cannot go."""
_ALLOWED, _ALLOWED_SHARE = 5.0, 0.05
"""Seconds in which tables of symbols may be read at once, and the share of the time in which they may in the long run:
a million functions take a second, and anybody can crash with such files again and again."""


class Frame(NamedTuple):
    """function: demangled, "[unknown]" without a name. module: the file's name, "" where no file is mapped. offset: in
    the function; without one, in the file."""

    function: str
    module: str
    offset: int

    def __str__(self) -> str:
        return f"{self.function}+{self.offset:#x} ({self.module})" if self.module else f"{self.function}"


@dataclass(slots=True, eq=False)
class _Known:
    """What a process has mapped. starts: of the files, for searching. code: those that could be opened, by identity."""

    files: Sequence[Mapped]
    starts: Sequence[int]
    code: Mapping[tuple[str, int], CodeFile]
    names: PerfMap
    came: float
    due: float
    ended: bool = False

    def at(self, address: int) -> Mapped | None:
        at = bisect_right(self.starts, address) - 1
        return self.files[at] if at >= 0 and address < self.files[at].end else None


class Symbols:
    """Not thread-safe. A process must be primed while it lives: what it had mapped then is known after its death.

    Files are held open as long as a known process has them mapped, each once for all processes.
    """

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._known: dict[int, _Known] = {}
        self._code: WeakValueDictionary[tuple[str, int], CodeFile] = WeakValueDictionary()
        self._allowed, self._asked = _ALLOWED, time.monotonic()

    def prime(self, pid: int) -> bool:
        """Remembers what the process has mapped now, in place of what it had. Nothing comes of one that is gone: False,
        and what was known of it stays."""
        try:
            files = mapped(self._proc, pid)
        except OSError:
            return False
        if not files:  # it is dying: its memory is gone before it is
            return False
        now = time.monotonic()
        before = self._known.pop(pid, None)
        came = before.came if before else now
        code = self._opened(files)
        names = PerfMap(self._proc, pid)
        due = now + (_OFTEN if now < came + _YOUNG else _SELDOM)
        self._known[pid] = _Known(files, [file.start for file in files], code, names, came, due)
        while len(self._known) > _MOST_PROCESSES:
            self.forget(self._least_wanted())
        return True

    def refresh(self, now: float) -> None:
        """Looks anew at processes that were not looked at for a while, as they load libraries, and forgets those that
        ended. now: monotonic."""
        for pid in [pid for pid, known in self._known.items() if now >= known.due]:
            if self.prime(pid):
                continue
            known = self._known[pid]
            if known.ended:
                self.forget(pid)
            known.ended, known.due = True, now + _KEPT

    def forget(self, pid: int) -> None:
        self._known.pop(pid, None)

    def frames(self, addresses: Iterable[int], pid: int) -> list[Frame]:
        """The stack from its innermost function outwards, cut at the first address that no file is mapped at: what
        comes behind one is no stack but whatever a function without frame pointer left there."""
        if pid not in self._known:
            self.prime(pid)
        found: list[Frame] = []
        for depth, address in enumerate(addresses):
            # A return address may lie behind the end of a function that never returns, so look one byte earlier.
            frame = self.frame(address - (depth > 0), pid)
            if frame is None or (depth > 0 and not frame.module and frame.function == UNKNOWN):
                break
            found.append(frame)
        return found

    def frame(self, address: int, pid: int) -> Frame | None:
        """What is at one address; none of a process that is not known."""
        known = self._known.get(pid)
        if known is None:
            return None
        file = known.at(address)
        if file is None:
            # Code made at run time has a name where its maker writes a map (/tmp/perf-PID.map), else none.
            name, offset = known.names.at(address) or (UNKNOWN, 0)
            return Frame(name, "", offset)
        offset = address - file.start + file.offset
        code = known.code.get(file.identity)
        function = self._function(code, offset) if code is not None else None
        if function is None:
            return Frame(UNKNOWN, file.name, offset)
        return Frame(demangled(function.name), file.name, offset - function.start)

    def _function(self, code: CodeFile, offset: int) -> Function | None:
        if code.is_read:
            return code.function(offset)
        now = time.monotonic()
        self._allowed = min(self._allowed + (now - self._asked) * _ALLOWED_SHARE, _ALLOWED)
        self._asked = now
        if self._allowed <= 0:
            return None
        found = code.function(offset)
        self._allowed -= time.monotonic() - now
        return found

    def code(self, address: int, size: int, pid: int) -> bytes:
        """Bytes of code from an address on, as they are in the file; none where no file is mapped."""
        known = self._known.get(pid)
        file = known.at(address) if known else None
        code = known.code.get(file.identity) if known and file else None
        if file is None or code is None:
            return b""
        try:
            return code.read(address - file.start + file.offset, size)
        except OSError:
            return b""

    def close(self) -> None:
        self._known.clear()

    def _opened(self, files: Iterable[Mapped]) -> dict[tuple[str, int], CodeFile]:
        code: dict[tuple[str, int], CodeFile] = {}
        for file in files:
            # A descriptor each, and every probe in a process takes one as well.
            if len(code) < _MOST_FILES_OF_ONE and (found := self._open(file)) is not None:
                code[file.identity] = found
        return code

    def _open(self, file: Mapped) -> CodeFile | None:
        code = self._code.get(file.identity)
        if code is None and len(self._code) < _MOST_FILES:
            try:
                code = CodeFile(file.path)
            except OSError:  # too many open files, or gone since
                return None
            finalize(code, os.close, code.fd)
            self._code[file.identity] = code
        return code

    def _least_wanted(self) -> int:
        """One that is dead if there is one, else the one that was looked at longest ago."""
        dead = (pid for pid in self._known if not os.path.exists(f"{self._proc}/{pid}"))  # noqa: PTH110 - many
        return next(dead, next(iter(self._known)))
