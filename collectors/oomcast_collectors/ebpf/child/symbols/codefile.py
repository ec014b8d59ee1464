"""A file with code, kept open: what its functions are called, long after its process and its name are gone."""

import os
import stat
from typing import NamedTuple

from oomcast_collectors.ebpf.child.symbols.elf import Elf, Functions


class Function(NamedTuple):
    """name: as it is in the file. start: its offset in the file."""

    name: str
    start: int


class CodeFile:
    """fd: its descriptor, to be closed by the owner. The table of symbols is read when a name is first asked for."""

    def __init__(self, path: str) -> None:
        """Raises OSError."""
        # To open a device does something.
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - a link that leads to the mapped file itself
            raise OSError(f"{path} is no regular file")
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._tables: _Tables | None = None

    @property
    def is_read(self) -> bool:
        """Whether the table of symbols is there already."""
        return self._tables is not None

    def function(self, offset: int) -> Function | None:
        """The function at an offset in the file; none if there is none, or the file has no names."""
        try:
            if self._tables is None:
                self._tables = _Tables(f"/proc/self/fd/{self.fd}")
            return self._tables.function(offset)
        except OSError:  # what it is on cannot be read
            return None

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the file; fewer than asked for at its end. Raises OSError."""
        return os.pread(self.fd, size, max(offset, 0))


class _Tables:
    """The file's own and that of its debug information. Raises OSError."""

    def __init__(self, path: str) -> None:
        self._elf = Elf(path)
        debug = self._elf.debug()
        self._functions = [Functions(elf) for elf in ((Elf(debug), self._elf) if debug else (self._elf,))]

    def function(self, offset: int) -> Function | None:
        address = self._elf.address(offset)
        if address is None:
            return None
        found = next((name for one in self._functions if (name := one.at(address)) is not None), None)
        return Function(found[0], offset - (address - found[1])) if found else None
