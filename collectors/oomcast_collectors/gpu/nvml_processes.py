"""Which processes have memory of a GPU, from the library's three lists."""

import ctypes
import struct
from collections.abc import Iterator
from typing import Any

from oomcast_collectors.gpu.driver import DriverError, ProcessMemory
from oomcast_collectors.gpu.nvml_session import FUNCTION_NOT_FOUND, INSUFFICIENT_SIZE, UNKNOWN, Session

_ENTRY = struct.Struct("I4xQII")  # nvmlProcessInfo_t: pid, bytes, GPU instance, compute instance
_LONG_ENTRY = struct.Struct("I4xQII8x")  # the same in the first R535 drivers, which also had the protected bytes
_UNTOUCHED = b"\xa5"
_NO_INSTANCE = 2**32 - 1
_NO_BYTES = 2**64 - 1
_FIRST_ROOM = 65  # odd, as _entries needs it
_MOST = 65_536
_TRIES = 5

_Entry = tuple[int, int, int]


def read_processes(session: Session, handle: Any) -> list[ProcessMemory]:
    """One entry for each pid and instance; the largest number of bytes where several lists have it."""
    merged: dict[tuple[int, int | None], int | None] = {}
    for pid, size, gpu_instance in _all_lists(session, handle):
        key = pid, None if gpu_instance == _NO_INSTANCE else gpu_instance
        used = None if size == _NO_BYTES else size
        known = merged.get(key)
        if known is None or (used is not None and used > known):
            merged[key] = used
    return [ProcessMemory(pid, used, instance) for (pid, instance), used in merged.items()]


def _all_lists(session: Session, handle: Any) -> Iterator[_Entry]:
    yield from _newest_list(session, handle, "nvmlDeviceGetComputeRunningProcesses")
    for function in ("nvmlDeviceGetGraphicsRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses"):
        try:
            yield from _newest_list(session, handle, function)
        except DriverError as error:
            if error.fault != "unsupported":
                raise


def _newest_list(session: Session, handle: Any, function: str) -> list[_Entry]:
    try:
        return _list(session, handle, f"{function}_v3")
    except DriverError as error:
        if error.code != FUNCTION_NOT_FOUND:
            raise
    return _list(session, handle, f"{function}_v2")  # before R510, with the same entries


def _list(session: Session, handle: Any, function: str) -> list[_Entry]:
    room = _FIRST_ROOM
    for _ in range(_TRIES):
        # Room for long entries whatever the library has, as it is told a number of entries and not of bytes.
        size = room * _LONG_ENTRY.size
        buffer = ctypes.create_string_buffer(_UNTOUCHED * size, size)
        count = ctypes.c_uint(room)
        try:
            session.raw(function, handle, ctypes.byref(count), buffer)
        except DriverError as error:
            if error.code != INSUFFICIENT_SIZE or count.value > _MOST:
                raise
            room = count.value * 2 + 5  # odd; they come faster than they can be listed
        else:
            if count.value > room:
                raise session.error(function, UNKNOWN)
            return _entries(buffer.raw, count.value)
    raise session.error(function, INSUFFICIENT_SIZE)


def _entries(raw: bytes, count: int) -> list[_Entry]:
    """The first `count` entries. How long they are shows in how far the library wrote: no version tells it reliably,
    and the wrong length gives wrong pids. The room that is left it may have cleared, or not touched.
    """
    written = len(raw.rstrip(_UNTOUCHED))
    end = count * _LONG_ENTRY.size
    room = len(raw) // _LONG_ENTRY.size
    # An odd number of short entries ends nowhere in the last eight bytes of a long one.
    wrote_long = end - 8 < written <= end or written > room * _ENTRY.size
    layout = _LONG_ENTRY if wrote_long else _ENTRY
    return [layout.unpack_from(raw, i * layout.size)[:3] for i in range(count)]
