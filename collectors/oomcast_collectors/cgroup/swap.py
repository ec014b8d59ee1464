"""How much swap the host has."""

from pathlib import Path
from typing import NamedTuple

from oomcast_collectors.cgroup.files import LARGEST
from oomcast_collectors.cgroup.stat import Malformed, number


class Swap(NamedTuple):
    """Bytes of all areas together."""

    total: int
    left: int


def read_swap(proc: Path) -> Swap:
    """What /proc/swaps says; a kernel without that file has no swap. Raises OSError or Malformed."""
    try:
        with (proc / "swaps").open("rb") as file:
            text = file.read(LARGEST)
    except FileNotFoundError:
        return Swap(0, 0)
    head, *lines = text.splitlines(keepends=True) or [b""]
    if not head.startswith(b"Filename"):
        raise Malformed(f"not the head of /proc/swaps: {head[:80]!r}")
    total = used = 0
    for line in lines:
        # name type size used priority, in KiB; a name may hold anything, so the columns count from the right
        columns = line.rsplit(None, 4)
        if len(columns) != 5 or not line.endswith(b"\n"):
            raise Malformed(f"not a line of /proc/swaps: {line[:80]!r}")
        total += number(columns[2] + b"\n") * 1024
        used += number(columns[3] + b"\n") * 1024
    return Swap(total, max(total - used, 0))
