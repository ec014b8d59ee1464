"""A file with code, kept open: what its functions are called, long after its process and its name are gone."""

import ctypes
import os
from array import array
from bisect import bisect_right
from typing import Any, NamedTuple

_MOST_SYMBOLS = 2_000_000
_LONGEST_NAME = 1024
_STT_FUNC, _STT_GNU_IFUNC = 2, 10
_SYMBOL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p)
_SEGMENT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p)


class Function(NamedTuple):
    """name: as it is in the file. start: its offset in the file."""

    name: str
    start: int


class CodeFile:
    """fd: its descriptor, to be closed by the owner. The table of symbols is read when a name is first asked for."""

    def __init__(self, lib: Any, path: str) -> None:
        """lib: libbcc, whose reader of ELF files also looks for those with debug information that belong to one.
        Raises OSError."""
        self._lib = lib
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._table: _Table | None = None

    def function(self, offset: int) -> Function | None:
        """The function at an offset in the file; none if there is none, or the file has no names."""
        if self._table is None:
            self._table = _Table(self._lib, f"/proc/self/fd/{self.fd}".encode())
        return self._table.function(offset)

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the file; fewer than asked for at its end. Raises OSError."""
        return os.pread(self.fd, size, max(offset, 0))


class _Table:
    """The functions of a file by address, in arrays: half a million of them are no rarity."""

    def __init__(self, lib: Any, path: bytes) -> None:
        self._segments = _segments(lib, path)
        symbols = sorted(_symbols(lib, path))
        self._starts = array("Q", (start for start, _, _ in symbols))
        self._sizes = array("Q", (size for _, size, _ in symbols))
        self._ends = array("Q")
        names = bytearray()
        for _, _, name in symbols:
            names += name
            self._ends.append(len(names))
        self._names = bytes(names)

    def function(self, offset: int) -> Function | None:
        for address, size, start in self._segments:
            if start <= offset < start + size:
                return self._at(offset + address - start, address - start)
        return None

    def _at(self, address: int, shift: int) -> Function | None:
        at = bisect_right(self._starts, address) - 1
        # Names of one function follow each other; those without a size reach to the next one, as assembly's do.
        while at >= 0 and self._starts[at] + self._sizes[at] <= address and self._sizes[at]:
            if at == 0 or self._starts[at - 1] != self._starts[at]:
                return None
            at -= 1
        if at < 0:
            return None
        name = self._names[self._ends[at - 1] if at else 0 : self._ends[at]]
        return Function(name.decode("utf-8", "replace"), self._starts[at] - shift)


def _segments(lib: Any, path: bytes) -> list[tuple[int, int, int]]:
    """(address, bytes, offset in the file) of what the file wants mapped to execute."""
    found: list[tuple[int, int, int]] = []

    def take(address: int, size: int, offset: int, _: object) -> int:
        found.append((address, size, offset))
        return 0

    lib.bcc_elf_foreach_load_section(path, _SEGMENT(take), None)
    return found


def _symbols(lib: Any, path: bytes) -> set[tuple[int, int, bytes]]:
    """(address, bytes, name) of the functions."""
    from bcc.libbcc import bcc_symbol_option  # there once Bcc has been made

    found: set[tuple[int, int, bytes]] = set()

    def take(name: bytes, address: int, size: int, _: object) -> int:
        found.add((address, size, name[:_LONGEST_NAME]))
        return -1 if len(found) >= _MOST_SYMBOLS else 0

    option = bcc_symbol_option(
        use_debug_file=1, check_debug_file_crc=1, lazy_symbolize=0, use_symbol_type=1 << _STT_FUNC | 1 << _STT_GNU_IFUNC
    )
    lib.bcc_elf_foreach_sym(path, _SYMBOL(take), ctypes.byref(option), None)
    return found
