"""What the kernel wants of a process that loads programs, and what of that this one has.

Capabilities are read, as they have names to tell. What they do not decide (a seccomp filter, a user namespace, a
distribution's kernel.perf_event_paranoid) is tried.
"""

import ctypes
import errno
import os
import platform
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import MappingProxyType

TRACEFS, DEBUGFS_TRACEFS = "/sys/kernel/tracing", "/sys/kernel/debug/tracing"
LINKS = (6, 10)
"""The first kernel with links for uprobes of whole processes; since 2025 what was there before takes CAP_SYS_ADMIN."""
LOCKED_MEMORY = (5, 11)
"""The first kernel whose tables and programs are no locked memory; BCC raises the limit itself where it may."""

_BITS: Mapping[str, int] = MappingProxyType(
    {
        "CAP_DAC_READ_SEARCH": 2,
        "CAP_SYS_PTRACE": 19,
        "CAP_SYS_ADMIN": 21,
        "CAP_PERFMON": 38,
        "CAP_BPF": 39,
        "CAP_CHECKPOINT_RESTORE": 40,
    }
)
_EVERY_EVENT = "events/sched/sched_process_exec/id"
_SYS_PERF_EVENT_OPEN, _SYS_BPF = 298, 321
_BPF_PROG_LOAD, _TRACEPOINT = 5, 5
_PERF_FLAG_FD_CLOEXEC = 8
_SOFTWARE, _DUMMY = 1, 9
_RETURN_0 = b"\xb7\0\0\0\0\0\0\0\x95\0\0\0\0\0\0\0"
_REFUSALS = (errno.EPERM, errno.EACCES, errno.ENOSYS)
_STRICTEST = 2
"""Of kernel.perf_event_paranoid, the strictest value that Linux itself knows; distributions added others."""


class Tracefs(Enum):
    READABLE = "readable"
    CLOSED = "closed"
    ABSENT = "absent"


def release() -> tuple[int, ...]:
    """Of the kernel: (6, 10); () where that is no number."""
    found = re.match(r"(\d+)\.(\d+)", platform.release())
    return tuple(map(int, found.groups())) if found else ()


def tracefs() -> Tracefs:
    """Whether tracepoints can be looked up where BCC does: in the second place if that is there."""
    folder = DEBUGFS_TRACEFS if os.access(DEBUGFS_TRACEFS, os.F_OK) else TRACEFS
    try:
        os.close(os.open(f"{folder}/{_EVERY_EVENT}", os.O_RDONLY | os.O_CLOEXEC))
    except PermissionError:
        return Tracefs.CLOSED
    except OSError:
        return Tracefs.ABSENT
    return Tracefs.READABLE


def lacking_for_kernel() -> str:
    """Why nothing can be loaded at all, or not be attached to events of the kernel, and what helps; "" if it can."""
    held = _held()
    if lacking := _absent(held, "CAP_BPF", "CAP_PERFMON"):
        return f"programs in the kernel take {_all_of(lacking)} (or CAP_SYS_ADMIN), which the daemon lacks; {_HELP}"
    # In this order: in a user namespace it cannot read tracefs either, which no capability there would mend.
    return _refusal(held) or _tracefs(held)


def lacking_for_programs() -> str:
    """Why functions of programs cannot be probed where the kernel's events can, and what helps; "" if they can."""
    held = _held()
    if release() >= LINKS:
        # The mapping itself leads to a target's file, which the kernel lets nobody follow without.
        lacking, instead = _absent(held, "CAP_CHECKPOINT_RESTORE"), " (or CAP_SYS_ADMIN)"
    else:
        lacking, instead = _absent(held, "CAP_SYS_ADMIN"), " (kernels from 6.10 on want less)"
    lacking = [f"{name}{instead}" for name in lacking]
    lacking += [name for name in ("CAP_SYS_PTRACE", *_to_read()) if not _has(held, name)]
    if not lacking:
        return ""
    return f"to probe functions of programs takes {_all_of(lacking)}, which the daemon lacks; {_HELP}"


_HELP = "add that to the capabilities of its unit or container (docs/ebpf.md)"


def _tracefs(held: int) -> str:
    found = tracefs()
    if found is Tracefs.CLOSED:
        return f"the tracepoints in {TRACEFS} are not for the daemon to read: it takes root or CAP_DAC_READ_SEARCH"
    if found is Tracefs.READABLE:
        return ""
    mount = f"mount -t tracefs tracefs {TRACEFS}, in a container mount the host's"
    if not _has(held, "CAP_SYS_ADMIN"):
        return f"tracefs is not mounted, and for one of its own the daemon lacks CAP_SYS_ADMIN: {mount}"
    if not all(_has(held, name) for name in _to_read()):
        return f"tracefs is not mounted, and to read one of its own the daemon lacks CAP_DAC_READ_SEARCH: {mount}"
    return ""


def _refusal(held: int) -> str:
    """What the kernel refuses although capabilities suffice, and what may be behind that."""
    for call, attempt in (("bpf()", _loads), ("perf_event_open()", _opens)):
        if (number := attempt()) in _REFUSALS:
            return (attempt is _opens and number == errno.EACCES and _paranoid(held)) or (
                f"the kernel refuses {call} ({os.strerror(number)}) in spite of the daemon's capabilities: {_behind()}"
            )
    return ""  # what is wrong else will be said by what fails


def _paranoid(held: int) -> str:
    paranoid = _number("/proc/sys/kernel/perf_event_paranoid")
    if paranoid <= _STRICTEST or _has(held, "CAP_SYS_ADMIN"):
        return ""
    return (
        f"kernel.perf_event_paranoid is {paranoid}, where this kernel wants CAP_SYS_ADMIN for what else takes"
        f" CAP_PERFMON: give the daemon that, or sysctl kernel.perf_event_paranoid={_STRICTEST}"
    )


def _behind() -> str:
    if _status("Seccomp") == "2":
        return "there is a seccomp filter, of the container or the service, which has to allow bpf and perf_event_open"
    if _map_of_users() != ["0", "0", "4294967295"]:
        return "they are those of a user namespace, and count for nothing here"
    return "a security module or the kernel's lockdown may be why"


def _held() -> int:
    """-1, that is all, where nothing tells."""
    told = _status("CapEff")
    return int(told, 16) if told else -1


def _has(held: int, name: str) -> bool:
    return bool(held >> _BITS[name] & 1)


def _absent(held: int, *names: str) -> list[str]:
    """What of them is not there, where CAP_SYS_ADMIN stands for each."""
    return [] if _has(held, "CAP_SYS_ADMIN") else [name for name in names if not _has(held, name)]


def _to_read() -> Sequence[str]:
    """What it takes to read what is the superuser's. What is another user's takes it of root too."""
    return () if os.geteuid() == 0 else ("CAP_DAC_READ_SEARCH",)


def _all_of(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _loads() -> int:
    """Loads a program that does nothing; the number of the error, 0 without."""
    code, license_ = ctypes.create_string_buffer(_RETURN_0), ctypes.create_string_buffer(b"GPL")
    attr = (ctypes.c_uint64 * 6)(
        _TRACEPOINT | len(_RETURN_0) // 8 << 32, ctypes.addressof(code), ctypes.addressof(license_)
    )
    number = _tried(_SYS_BPF, _BPF_PROG_LOAD, ctypes.byref(attr), ctypes.sizeof(attr))
    # It may be for the limit of locked memory, which BCC raises: the child will see.
    return 0 if number == errno.EPERM and release() < LOCKED_MEMORY else number


def _opens() -> int:
    """Opens an event of the first CPU that never comes, as an attached tracepoint is one; likewise."""
    attr = (ctypes.c_uint64 * 8)(_SOFTWARE | ctypes.sizeof(ctypes.c_uint64 * 8) << 32, _DUMMY)
    return _tried(_SYS_PERF_EVENT_OPEN, ctypes.byref(attr), -1, 0, -1, _PERF_FLAG_FD_CLOEXEC)


def _tried(*call: object) -> int:
    fd = ctypes.CDLL(None, use_errno=True).syscall(*call)
    if fd < 0:
        return ctypes.get_errno()
    os.close(fd)
    return 0


def _status(name: str) -> str:
    lines = _text("/proc/self/status").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(f"{name}:")), "")


def _map_of_users() -> list[str]:
    return _text("/proc/self/uid_map").split()


def _number(path: str) -> int:
    text = _text(path).strip()
    return int(text) if text.lstrip("-").isdigit() else 0


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
