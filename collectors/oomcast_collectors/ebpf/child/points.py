"""Where in a file a function is, and at which instruction it is cheap to probe."""

import os
import re
import stat
from collections.abc import Iterator
from typing import NamedTuple

from oomcast_collectors.ebpf.child.mapped import Mapped
from oomcast_collectors.ebpf.child.symbols.elf import Elf

_MOST_MATCHES = 50
_PROLOGUE = 32
_MOST_KNOWN = 20_000


class Point(NamedTuple):
    """offset: in the file. shift: instructions' bytes before the one to probe on entry. stepped: the kernel has to
    execute that one out of line, which costs a single-step trap more."""

    symbol: str
    offset: int
    shift: int
    stepped: bool


class Points:
    """Finds functions by name and remembers them per file. Not thread-safe."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[str, int], int, int, str], tuple[Point, ...]] = {}

    def find(self, file: Mapped, symbol: str) -> tuple[Point, ...]:
        """The functions in the file of that name, or whose names match /expression/; none for a stripped one.

        Two names of one function are one point. Raises OSError when the file cannot be read.
        """
        # An inode number is given out again: the wrong place in another file would be the end of the process.
        status = os.stat(file.path)  # noqa: PTH116 - a link that leads to the mapped file itself
        if not stat.S_ISREG(status.st_mode):  # to open a device does something
            return ()
        key = (file.identity, status.st_ctime_ns, status.st_size, symbol)
        if key not in self._known:
            if len(self._known) > _MOST_KNOWN:
                self._known.clear()
            self._known[key] = self._look(file.path, symbol)
        return self._known[key]

    def _look(self, path: str, symbol: str) -> tuple[Point, ...]:
        elf = Elf(path)
        by_offset: dict[int, Point] = {}
        for name, address in _matching(elf, symbol):
            offset = elf.offset(address)
            if offset is not None and offset not in by_offset:
                shift, stepped = cheap_entry(_code(path, offset))
                by_offset[offset] = Point(name, offset, shift, stepped)
                if len(by_offset) == _MOST_MATCHES:
                    break
        return tuple(by_offset.values())


def _matching(elf: Elf, symbol: str) -> Iterator[tuple[str, int]]:
    """(name, address) of each function that is meant; one may come twice."""
    if symbol.startswith("/"):
        wanted = re.compile(symbol.strip("/"))
        yield from (found for found in elf.names() if wanted.search(found[0]))
    else:
        yield from ((symbol, address) for address in elf.named(symbol))


def cheap_entry(code: bytes) -> tuple[int, bool]:
    """(bytes to skip, stepped) for the first instructions of a function (x86-64).

    The kernel emulates pushes of registers, no-ops, jumps and calls; anything else it executes out of line, by a
    single-step trap: 12 us in place of 4. What is skipped changes no register, so arguments are still where they were.
    """
    at = 0
    for _ in range(4):
        c = code[at : at + 8]
        if len(c) < 8:
            break
        if c[:4] == b"\xf3\x0f\x1e\xfa":  # endbr64
            at += 4
        elif _emulated(c):
            return at, False
        elif c[:2] == b"\x48\x85" and c[2] >= 0xC0:  # test between registers
            at += 3
        else:
            break
    return 0, not _emulated(code[:8])


def _emulated(c: bytes) -> bool:
    if len(c) < 3:
        return False
    push = 0x50 <= c[0] <= 0x57 or (c[0] == 0x41 and 0x50 <= c[1] <= 0x57)
    jump = c[0] in (0xE8, 0xE9, 0xEB) or 0x70 <= c[0] <= 0x7F or (c[0] == 0x0F and 0x80 <= c[1] <= 0x8F)
    nothing = c[0] == 0x90 or (c[0] == 0x0F and c[1] == 0x1F)
    return push or jump or nothing


def _code(path: str, offset: int) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123 - a link that only open() follows
        file.seek(offset)
        return file.read(_PROLOGUE)
