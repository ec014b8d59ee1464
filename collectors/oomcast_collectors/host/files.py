"""Reading the kernel's small text files: bounded, from descriptors that stay open, and without believing them."""

import errno
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

READ_LIMIT = 1 << 20
_CHUNK = 16 << 10
_MOST = 2**64 - 1
# O_NONBLOCK: a fixture or a bind mount may be a FIFO, and opening one must not hang the collector.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY

CUT_LINE = "(last line)"
"""Stands for the name of a field in a line without its newline: what is left of it may be half a number."""


class Parsed(NamedTuple):
    """values: by field, malformed ones left out. malformed: the fields that were there but could not be read."""

    values: dict[str, int]
    malformed: frozenset[str] = frozenset()


class KeptFile:
    """A file of /proc that is opened once and read from its start on every `read()`."""

    def __init__(self, path: Path, limit: int = READ_LIMIT) -> None:
        self.path = os.fspath(path)
        self._limit = limit
        self._fd = -1

    def read(self) -> bytes:
        """The whole content. Raises OSError, EFBIG when it is above the limit; the next read opens it anew."""
        try:
            if self._fd < 0:
                self._fd = os.open(self.path, _FLAGS)
            return self._from_start()
        except OSError:
            self.close()
            raise

    def _from_start(self) -> bytes:
        # A seq_file hands out a page per read, so only an empty read says that this was all.
        data = os.pread(self._fd, _CHUNK, 0)
        while more := os.pread(self._fd, _CHUNK, len(data)):
            data += more
            if len(data) > self._limit:
                raise OSError(errno.EFBIG, f"more than {self._limit} bytes", self.path)
        return data

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # The contract has no close for a collector, and closing from another thread could hit a descriptor number
    # that has been given out again: the descriptor goes when nobody can read from it any more.
    def __del__(self) -> None:
        self.close()


def read_once(path: str, limit: int) -> bytes:
    """At most `limit` bytes of the file; more are left unread. Raises OSError."""
    fd = os.open(path, _FLAGS)
    try:
        data = os.read(fd, limit)
        while len(data) < limit and (more := os.read(fd, limit - len(data))):
            data += more
        return data
    finally:
        os.close(fd)


def number(token: bytes) -> int | None:
    """The unsigned 64-bit decimal number that `token` is, or None."""
    # The length first: int() of a megabyte of digits is slow, and above 4300 digits an error of its own.
    if len(token) > 20 or not token.isdigit():
        return None
    value = int(token)
    return value if value <= _MOST else None


def kibibytes(text: bytes) -> int | None:
    """The bytes that `   123 kB` says, or None: without its unit the number could be anything."""
    parts = text.split()
    if len(parts) != 2 or parts[1] != b"kB":
        return None
    value = number(parts[0])
    return None if value is None or value > _MOST >> 10 else value << 10


def whole_lines(data: bytes) -> tuple[bytes, set[str]]:
    """A newline and `data` up to its last newline, and `CUT_LINE` as malformed if there is text after that."""
    end = data.rfind(b"\n") + 1
    return b"\n" + data[:end], {CUT_LINE} if end < len(data) else set()


def line_pattern(names: Iterable[bytes], rest: bytes) -> re.Pattern[bytes]:
    """Finds in `whole_lines()` those that start with one of `names` and go on as `rest` says: (name, rest) by findall.

    That takes a third of the time of splitting 190 lines in Python; a leading \\n lets the engine jump from line to
    line, which it does not do for ^.
    """
    return re.compile(rb"\n(" + b"|".join(map(re.escape, names)) + rb")(" + rest + rb")(?=\n)")
