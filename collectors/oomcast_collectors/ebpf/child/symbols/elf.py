"""What an ELF file (64 bits, little-endian) says of its code: where that is, and what its functions are called.

Anybody can have a file mapped, with tables larger than memory, a million names that are the same megabyte, or debug
information that is said to be in a pipe. So what is read has an end, and names no other file but by its build id.
"""

import os
import re
import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

_DEBUG = Path("/usr/lib/debug/.build-id")
_MOST_HEADERS = 4096
_MOST_SYMBOLS = 1_000_000
_MOST_NAME_BYTES = 128 << 20
_LARGEST_FILE = 1 << 60
_LARGEST_NOTE = 4096
_LONGEST_NAME = 1024
_MOST_TWINS = 50
_HEADER = struct.Struct("<6s26xQQ6x5H")
_SEGMENT = struct.Struct("<IIQQ8xQ16x")
_SECTION = struct.Struct("<II16xQQI20x")
_SYMBOL = struct.Struct("<IBxHQQ")
_BUILD_ID = re.compile(rb"\x04\0\0\0(.)\0\0\0\x03\0\0\0GNU\0(.*)", re.DOTALL)
_LOAD, _EXECUTABLE = 1, 1
_SYMTAB, _NOTE, _DYNSYM = 2, 7, 11
_FUNCTIONS = (2, 10)
"""STT_FUNC, STT_GNU_IFUNC."""


class _Section(NamedTuple):
    kind: int
    offset: int
    size: int
    link: int


class _Table(NamedTuple):
    """Symbols. entries: as they are in the file. strings: where in it their names are; size: bytes of those."""

    entries: bytes
    strings: int
    size: int


class Elf:
    """A file that is none has nothing in it. Every method raises OSError when it cannot be read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._segments: list[tuple[int, int, int]] = []
        self._sections: list[_Section] = []
        head = self._read(0, _HEADER.size)
        if len(head) < _HEADER.size:
            return
        magic, segments, sections, segment_size, segment_count, section_size, section_count, _ = _HEADER.unpack(head)
        if magic != b"\x7fELF\2\1":
            return
        if segment_size == _SEGMENT.size:
            rows = _SEGMENT.iter_unpack(self._rows(min(segments, _LARGEST_FILE), segment_count, _SEGMENT))
            self._segments = [
                (address, size, offset)
                for kind, flags, offset, address, size in rows
                if kind == _LOAD and flags & _EXECUTABLE and offset < _LARGEST_FILE
            ]
        if section_size == _SECTION.size:
            rows = _SECTION.iter_unpack(self._rows(min(sections, _LARGEST_FILE), section_count, _SECTION))
            self._sections = [
                _Section(kind, min(offset, _LARGEST_FILE), size, link) for _, kind, offset, size, link in rows
            ]

    def offset(self, address: int) -> int | None:
        """Where in the file the code is that is meant to be at an address."""
        found = (start + address - at for at, size, start in self._segments if at <= address < at + size)
        return next(found, None)

    def address(self, offset: int) -> int | None:
        """The opposite."""
        found = (at + offset - start for at, size, start in self._segments if start <= offset < start + size)
        return next(found, None)

    def named(self, name: str) -> Iterator[int]:
        """The addresses of the functions of that name."""
        wanted = re.compile(re.escape(name.encode()) + b"\0")
        for table in self._tables():
            # Names may be the ends of others, as linkers have them share their bytes.
            matches = islice(wanted.finditer(self._read(table.strings, table.size)), _MOST_TWINS)
            places = {match.start() for match in matches}
            column = memoryview(table.entries).cast("I")[:: _SYMBOL.size // 4].tolist()
            found = [at for at, place in enumerate(column) if place in places][:_MOST_TWINS]
            for at in found:
                entry = table.entries[at * _SYMBOL.size : (at + 1) * _SYMBOL.size]
                yield from (address for address, _, _ in _functions(table._replace(entries=entry)))

    def names(self) -> Iterator[tuple[str, int]]:
        """All functions: (name, address)."""
        for table in self._tables():
            strings = self._read(table.strings, table.size)
            for address, _, name in _functions(table):
                at = name - table.strings
                yield _text(strings[at : at + _LONGEST_NAME]), address

    def functions(self) -> Iterator[tuple[int, int, int]]:
        """All functions: (address, bytes, what name() takes)."""
        for table in self._tables():
            yield from _functions(table)

    def name(self, place: int) -> str:
        return _text(self._read(place, _LONGEST_NAME))

    def debug(self) -> str | None:
        """The file with the symbols that were taken out of this one, if it is installed."""
        for section in self._sections:
            if section.kind == _NOTE and (found := _BUILD_ID.match(self._read(section.offset, _LARGEST_NOTE))):
                build = found[2][: found[1][0]].hex()
                path = _DEBUG / build[:2] / f"{build[2:]}.debug"
                if path.is_file():
                    return str(path)
        return None

    def _tables(self) -> Iterator[_Table]:
        left = _MOST_SYMBOLS
        for section in self._sections:
            if section.kind not in (_SYMTAB, _DYNSYM) or section.link >= len(self._sections):
                continue
            names = self._sections[section.link]
            entries = self._rows(section.offset, min(section.size // _SYMBOL.size, left), _SYMBOL)
            left -= len(entries) // _SYMBOL.size
            yield _Table(entries, names.offset, min(names.size, _MOST_NAME_BYTES))

    def _rows(self, offset: int, count: int, kind: struct.Struct) -> bytes:
        most = _MOST_SYMBOLS if kind is _SYMBOL else _MOST_HEADERS
        data = self._read(offset, min(count, most) * kind.size)
        return data[: len(data) // kind.size * kind.size]

    def _read(self, offset: int, size: int) -> bytes:
        with open(self._path, "rb", buffering=0) as file:  # noqa: PTH123 - a link that only open() follows
            return os.pread(file.fileno(), size, offset)


class Functions:
    """The functions of a file by address, in arrays: half a million of them are no rarity. Raises OSError."""

    def __init__(self, elf: Elf) -> None:
        self._elf = elf
        rows = sorted(elf.functions())
        self._starts = array("Q", (start for start, _, _ in rows))
        self._sizes = array("Q", (size for _, size, _ in rows))
        self._names = array("Q", (name for _, _, name in rows))

    def at(self, address: int) -> tuple[str, int] | None:
        """(name, address) of the function there."""
        at = bisect_right(self._starts, address) - 1
        # Names of one function follow each other; those without a size reach to the next one, as assembly's do.
        while at >= 0 and self._starts[at] + self._sizes[at] <= address and self._sizes[at]:
            if at == 0 or self._starts[at - 1] != self._starts[at]:
                return None
            at -= 1
        return (self._elf.name(self._names[at]), self._starts[at]) if at >= 0 else None


def _functions(table: _Table) -> Iterator[tuple[int, int, int]]:
    for name, info, section, address, size in _SYMBOL.iter_unpack(table.entries):
        if info & 0xF in _FUNCTIONS and section and address and 0 < name < table.size:
            yield address, size, table.strings + name


def _text(data: bytes) -> str:
    return data.partition(b"\0")[0].decode("utf-8", "replace")
