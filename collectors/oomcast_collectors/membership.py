"""/proc/PID/cgroup: in which cgroup of each hierarchy a process is."""

from collections.abc import Iterator

LARGEST = 64 << 10
"""Bytes of the file to read at most."""

_REMOVED = " (deleted)"
"""What the kernel appends to the path of a cgroup that was removed while the process was in it."""


def memberships(data: bytes) -> Iterator[tuple[list[str], str]]:
    """(controllers, path) of each whole line; [""] is the unified hierarchy. Bytes that are no UTF-8 are escaped."""
    for line in data.decode("utf-8", "backslashreplace").split("\n")[:-1]:
        parts = line.split(":", 2)
        if len(parts) == 3:
            yield parts[1].split(","), parts[2].removesuffix(_REMOVED)


def memory_cgroup(data: bytes) -> str:
    """The path in the hierarchy that accounts memory: v1's if memory is there, else the unified one's; "" without."""
    unified = ""
    for controllers, path in memberships(data):
        if "memory" in controllers:
            return path
        if controllers == [""]:
            unified = path
    return unified


def unified_cgroup(data: bytes) -> str:
    """The path in the unified hierarchy, "" without one."""
    return next((path for controllers, path in memberships(data) if controllers == [""]), "")
