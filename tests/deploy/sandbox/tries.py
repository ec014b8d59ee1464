"""In the guest, in the sandbox of the shipped unit: tries what the daemon needs and what it must not be able to.

Prints JSON: "ok", "empty", or the name of the error, by what was tried.
"""

import ctypes
import errno
import json
import mmap
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_BPF, _PERF_EVENT_OPEN = 321, 298
_PTRACE_SEIZE, _NEWUSER, _NEWNS = 0x4206, 0x10000000, 0x20000
_RWX = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC


def main() -> None:
    json.dump({name: _result(action) for name, action in _actions().items()}, sys.stdout)


def _result(action: Callable[[], object]) -> str:
    try:
        return "empty" if action() == b"" else "ok"
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def _actions() -> Mapping[str, Callable[[], object]]:
    engine = _engine()
    return {
        **{f"read {path}": _reads(path) for path in _READ},
        **{f"write {path}": _writes(path) for path in _WRITTEN},
        "read the engine's descriptors": lambda: Path(f"/proc/{engine}/fd/0").readlink(),
        "read the engine's mappings": _reads(f"/proc/{engine}/maps"),
        "read the engine's root": lambda: list(Path(f"/proc/{engine}", "root").iterdir()),
        "open the engine's memory to read": lambda: os.close(os.open(f"/proc/{engine}/mem", os.O_RDONLY)),
        "open the engine's memory to write": lambda: os.close(os.open(f"/proc/{engine}/mem", os.O_WRONLY)),
        "open process 1's memory to write": lambda: os.close(os.open("/proc/1/mem", os.O_WRONLY)),
        "write into the own directory": lambda: Path(os.environ["RUNTIME_DIRECTORY"], "file").write_text("text"),
        "call back from C": _call_back,
        "chown a file to the own group": _give_to_own_group,
        "socket AF_UNIX": lambda: socket.socket(socket.AF_UNIX).close(),
        "socket AF_INET": lambda: socket.socket(socket.AF_INET).close(),
        "socket AF_INET6": lambda: socket.socket(socket.AF_INET6).close(),
        "socket AF_NETLINK": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close(),
        "socket AF_PACKET": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close(),
        "map memory to write and execute": lambda: mmap.mmap(-1, 4096, prot=_RWX),
        "trace the engine": lambda: _call(_LIBC.ptrace, _PTRACE_SEIZE, engine, 0, 0),
        "read the engine's memory by a call": lambda: _call(_LIBC.process_vm_readv, engine, None, 0, None, 0, 0),
        "signal the engine": lambda: os.kill(engine, signal.SIGTERM),
        "load a program into the kernel": lambda: _call(_LIBC.syscall, _BPF, 0, None, 0),
        "open a counter of the kernel": lambda: _call(_LIBC.syscall, _PERF_EVENT_OPEN, None, 0, -1, -1, 0),
        "make a user namespace": lambda: _call(_LIBC.unshare, _NEWUSER),
        "make a mount namespace": lambda: _call(_LIBC.unshare, _NEWNS),
        "mount": lambda: _call(_LIBC.mount, b"none", b"/tmp", b"tmpfs", 0, None),
        "become root": lambda: os.setuid(0),
        "set the clock": lambda: time.clock_settime(time.CLOCK_REALTIME, time.time()),  # noqa: TID251 - no clock of ours
        "set the host's name": lambda: socket.sethostname("other"),
        "be scheduled in real time": lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
        "make a file set-user-id": _set_user_id,
        "make a device": lambda: os.mknod("/tmp/device", 0o20600, os.makedev(1, 3)),
    }


_READ = (
    "/dev/kmsg",
    "/dev/nvidia0",
    "/dev/nvidiactl",
    "/dev/vda",
    "/etc/shadow",
    "/home/engine/log/engine.log",
    "/proc/1/environ",
    "/proc/kcore",
    "/proc/meminfo",
    "/proc/pressure/memory",
    "/sys/fs/cgroup/system.slice/engine.service/memory.stat",
)
_WRITTEN = (
    "/dev/kmsg",
    "/dev/nvidia0",
    "/etc/oomcast/oomcast.yaml",
    "/home/engine/log/engine.log",
    "/proc/1/oom_score_adj",
    "/proc/sys/kernel/dmesg_restrict",
    "/run/file",
    "/sys/fs/cgroup/system.slice/engine.service/memory.max",
    "/tmp/file",
    "/usr/file",
    "/var/file",
)


def _engine() -> int:
    """The pid of the engine's process, of another user."""
    procs = Path("/sys/fs/cgroup/system.slice/engine.service/cgroup.procs")
    return int(procs.read_text().split()[0])


def _reads(path: str) -> Callable[[], object]:
    def read() -> bytes:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            return os.read(fd, 4096)
        finally:
            os.close(fd)

    return read


def _writes(path: str) -> Callable[[], object]:
    return lambda: os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o600))


def _call(function: Callable[..., int], *arguments: object) -> None:
    if function(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _call_back() -> None:
    """As BCC does: libffi makes code for it."""
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    numbers = (ctypes.c_int * 2)(2, 1)
    _LIBC.qsort(numbers, 2, 4, kind(lambda one, other: 1))


def _give_to_own_group() -> None:
    path = Path("/tmp/own")
    path.touch()
    os.chown(path, -1, os.getgid())


def _set_user_id() -> None:
    path = Path("/tmp/set")
    path.touch()
    path.chmod(0o4755)


if __name__ == "__main__":
    main()
