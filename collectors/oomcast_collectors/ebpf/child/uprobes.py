"""Puts functions of programs into one place of one process each, and takes them out again.

By links, where the kernel has them for uprobes. By perf events else: the kernel takes those out one after another, at
0.1 s each, in which processes go on paying for them. Never by libbcc: what it cannot attach so it adds to the tracefs'
uprobe_events, where it stays for ever.
"""

import ctypes
import errno
import fcntl
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from oomcast_collectors.ebpf.child.bcc import EbpfError
from oomcast_collectors.ebpf.privileges import LINKS, release

ATTACH_TYPE = 48
"""BPF_TRACE_UPROBE_MULTI: what a function has to be loaded as to be linked; a perf event takes it as well."""

_SYS_PERF_EVENT_OPEN, _SYS_BPF = 298, 321
_BPF_LINK_CREATE = 28
_RETURN = 1
_PERF_FLAG_FD_CLOEXEC = 8
_PERF_EVENT_IOC_ENABLE, _PERF_EVENT_IOC_SET_BPF = 0x2400, 0x40042408
_PERF_TYPE = Path("/sys/bus/event_source/devices/uprobe/type")

_THREADS = 32
_PATIENCE = 5.0
"""Seconds until the rest is taken out behind the caller's back."""


class _LinkCreate(ctypes.Structure):
    """union bpf_attr as BPF_LINK_CREATE has it for uprobes."""

    _fields_ = (
        *(("prog_fd", ctypes.c_uint32), ("target_fd", ctypes.c_uint32)),
        *(("attach_type", ctypes.c_uint32), ("flags", ctypes.c_uint32)),
        *(("path", ctypes.c_uint64), ("offsets", ctypes.c_uint64)),
        *(("ref_ctr_offsets", ctypes.c_uint64), ("cookies", ctypes.c_uint64)),
        *(("cnt", ctypes.c_uint32), ("multi_flags", ctypes.c_uint32)),
        *(("pid", ctypes.c_uint32), ("padding", ctypes.c_uint32)),
    )


class _PerfEvent(ctypes.Structure):
    """struct perf_event_attr in its first version with what a uprobe takes."""

    _fields_ = (
        *(("type", ctypes.c_uint32), ("size", ctypes.c_uint32), ("config", ctypes.c_uint64)),
        *(("sample_period", ctypes.c_uint64), ("sample_type", ctypes.c_uint64), ("read_format", ctypes.c_uint64)),
        *(("flags", ctypes.c_uint64), ("wakeup_events", ctypes.c_uint32), ("bp_type", ctypes.c_uint32)),
        *(("path", ctypes.c_uint64), ("offset", ctypes.c_uint64)),
    )


class Uprobes:
    """Not thread-safe."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        # Links are there since 6.6, but were for a single thread of the process at first.
        self._links = release() >= LINKS

    def attach(self, function: int, path: str, offset: int, pid: int, *, leave: bool) -> int:
        """The descriptor that holds it. function: descriptor of a loaded one. leave: as the function there returns.

        Raises EbpfError.
        """
        name = ctypes.create_string_buffer(os.fsencode(path))
        try:
            if self._links:
                try:
                    return self._link(function, ctypes.addressof(name), offset, pid, leave)
                except OSError as error:
                    if error.errno != errno.EOPNOTSUPP:
                        raise
                    self._links = False
            return self._event(function, ctypes.addressof(name), offset, pid, leave)
        except OSError as error:
            raise EbpfError(error.strerror) from error

    def detach(self, descriptors: Sequence[int], *, wait: bool = True) -> None:
        """Waits until they are out, but not for long. All at once, as the kernel has each wait for its CPUs; without
        haste one after another, in one thread."""
        most = _THREADS if wait else 1
        shares = [descriptors[first::most] for first in range(min(most, len(descriptors)))]
        threads = [threading.Thread(target=_close, args=(s,), name="ebpf-detach", daemon=True) for s in shares]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + (_PATIENCE if wait else 0.0)
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0.0))

    def _link(self, function: int, path: int, offset: int, pid: int, leave: bool) -> int:
        offsets = (ctypes.c_uint64 * 1)(offset)
        attr = _LinkCreate(
            prog_fd=function,
            attach_type=ATTACH_TYPE,
            path=path,
            offsets=ctypes.addressof(offsets),
            cnt=1,
            multi_flags=_RETURN if leave else 0,
            pid=pid,
        )
        return self._opened(_SYS_BPF, _BPF_LINK_CREATE, ctypes.byref(attr), ctypes.sizeof(attr))

    def _event(self, function: int, path: int, offset: int, pid: int, leave: bool) -> int:
        attr = _PerfEvent(
            type=int(_PERF_TYPE.read_text()),
            size=ctypes.sizeof(_PerfEvent),
            config=int(leave),
            sample_period=1,
            wakeup_events=1,
            path=path,
            offset=offset,
        )
        fd = self._opened(_SYS_PERF_EVENT_OPEN, ctypes.byref(attr), pid, -1, -1, _PERF_FLAG_FD_CLOEXEC)
        try:
            fcntl.ioctl(fd, _PERF_EVENT_IOC_SET_BPF, function)
            fcntl.ioctl(fd, _PERF_EVENT_IOC_ENABLE, 0)
        except OSError:
            os.close(fd)
            raise
        return fd

    def _opened(self, *call: object) -> int:
        fd = int(self._libc.syscall(*call))
        if fd < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return fd


def _close(descriptors: Sequence[int]) -> None:
    for fd in descriptors:
        os.close(fd)
