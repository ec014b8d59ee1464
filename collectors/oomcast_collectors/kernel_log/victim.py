"""The cgroup of a victim whose kill was printed without it: from /proc, while it is dying."""

import re
from pathlib import Path

from oomcast_collectors.membership import memory_cgroup

_READ_LIMIT = 65536
_PF_EXITING = 0x4
_SIGKILL = 1 << 8
_PENDING = re.compile(rb"^S(?:ig|hd)Pnd:\s*([0-9a-f]{1,16})$", re.M)


def victim_cgroup(proc: Path, pid: int, comm: str) -> str:
    """The path in the hierarchy of the memory controller, "" if it cannot be known.

    A number may have been given anew, or mean another process in this pid namespace: only a process of this name
    that is being killed is believed. Its root is no answer either, since old kernels move the dead there.
    """
    directory = proc / str(pid)
    try:
        cgroups = _read(directory / "cgroup")
        alive = _read(directory / "comm").decode("utf-8", "backslashreplace").removesuffix("\n")
        if alive != comm or not _dying(directory):
            return ""
    except OSError:
        return ""
    path = memory_cgroup(cgroups)
    # Above this cgroup namespace's root the path is relative, and the kernel's log has absolute ones.
    return "" if path == "/" or path.startswith("/..") else path


def _dying(directory: Path) -> bool:
    if any(int(mask, 16) & _SIGKILL for mask in _PENDING.findall(_read(directory / "status"))):
        return True
    # The name in brackets may hold anything; the fields after the last bracket are state, ppid, .., flags.
    fields = _read(directory / "stat").rpartition(b")")[2].split()
    if len(fields) < 7 or not fields[6].isdigit():
        return False
    return fields[0] in (b"Z", b"X") or bool(int(fields[6]) & _PF_EXITING)


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_READ_LIMIT)
