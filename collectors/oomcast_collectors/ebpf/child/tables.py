"""Tables of the kernel, read and emptied many entries at a time, without an object for each."""

import ctypes
import errno
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from oomcast_collectors.ebpf.child.bcc import EbpfError

_AT_ONCE = 8192
_WORD = 8


class Chunk(NamedTuple):
    """Entries as 64-bit words. keys, values: those of all entries, one after the other."""

    entries: int
    keys: memoryview
    values: memoryview


class Table:
    """A hash table whose keys and values are whole 64-bit words. Not thread-safe."""

    def __init__(self, lib: Any, table: Any) -> None:
        self._lib = lib
        self._fd = table.map_fd
        self.key_words = ctypes.sizeof(table.Key) // _WORD
        self.value_words = ctypes.sizeof(table.Leaf) // _WORD
        self._size = min(_AT_ONCE, table.max_entries)
        self._keys = bytearray(self._size * self.key_words * _WORD)
        self._values = bytearray(self._size * self.value_words * _WORD)

    def chunks(self) -> Iterator[Chunk]:
        """All entries; one that comes or goes meanwhile may be missed. The words are valid until the next chunk.

        Raises EbpfError.
        """
        keys, values = memoryview(self._keys).cast("Q"), memoryview(self._values).cast("Q")
        place = ctypes.c_uint32()
        begun = False
        while True:
            count = ctypes.c_uint32(self._size)
            failed = self._lib.bpf_lookup_batch(
                *(self._fd, ctypes.byref(place) if begun else None, ctypes.byref(place)),
                *(_pointer(self._keys), _pointer(self._values), ctypes.byref(count)),
            )
            number = ctypes.get_errno() if failed else 0
            if number not in (0, errno.ENOENT):
                raise EbpfError(f"a table cannot be read: {errno.errorcode.get(number, number)}")
            if count.value:
                yield Chunk(count.value, keys, values)
            if failed:
                return
            begun = True

    def delete(self, keys: bytes) -> None:
        """Those of the keys, one after the other, that are there."""
        data = (ctypes.c_char * len(keys)).from_buffer_copy(keys)
        size = self.key_words * _WORD
        left = range(0, len(keys), size)
        while left:
            count = ctypes.c_uint32(len(left))
            if not self._lib.bpf_delete_batch(self._fd, ctypes.byref(data, left[0]), ctypes.byref(count)):
                return
            # The kernel stops at a key that is not there.
            left = left[count.value + 1 :]

    def sweep(self, goes: Callable[[int], bool]) -> None:
        """Deletes the entries of whose keys' first words it is true."""
        size = self.key_words * _WORD
        for chunk in self.chunks():
            firsts = chunk.keys[: chunk.entries * self.key_words : self.key_words]
            data = memoryview(self._keys)
            doomed = [data[at * size : (at + 1) * size] for at, first in enumerate(firsts) if goes(first)]
            if doomed:
                self.delete(b"".join(doomed))


def _pointer(data: bytearray) -> Any:
    return ctypes.byref((ctypes.c_char * len(data)).from_buffer(data))
