"""Where the heap of a process ends: its break."""

import re

from oomcast_collectors.host.files import read_once

_HEAP = re.compile(rb"^[0-9a-f]+-([0-9a-f]+) .*\[heap\]$", re.MULTILINE)
_LARGEST = 32 << 20
_STAT_LIMIT = 4096
_START_BRK = 47 - 3
"""Behind the name, which may hold spaces: the field of /proc/PID/stat that says where the heap began."""


def break_of(proc: str, pid: int) -> int:
    """The address, by whole pages; 0 where it cannot be known."""
    try:
        ends = [int(end, 16) for end in _HEAP.findall(read_once(f"{proc}/{pid}/maps", _LARGEST))]
        if ends:
            return max(ends)
        fields = read_once(f"{proc}/{pid}/stat", _STAT_LIMIT).rpartition(b")")[2].split()
        return int(fields[_START_BRK])
    except (OSError, ValueError, IndexError):  # gone, or not ours to look into
        return 0
