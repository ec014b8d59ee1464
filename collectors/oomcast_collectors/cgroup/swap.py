"""How much swap the host has left."""

from pathlib import Path

from oomcast_collectors.cgroup.files import LARGEST
from oomcast_collectors.cgroup.stat import Malformed, number


def swap_left(proc: Path) -> tuple[int, int]:
    """Bytes of swap in all and left, of all areas in /proc/swaps; (0, 0) without that file. Raises Malformed."""
    try:
        with (proc / "swaps").open("rb") as file:
            text = file.read(LARGEST)
    except FileNotFoundError:
        return 0, 0
    total = used = 0
    for line in text.splitlines()[1:]:
        # name type size used priority, in KiB; a name may hold anything, so the columns count from the right
        columns = line.rsplit(None, 4)
        if len(columns) != 5:
            raise Malformed(f"not a line of /proc/swaps: {line[:80]!r}")
        total += number(columns[2]) * 1024
        used += number(columns[3]) * 1024
    return total, max(total - used, 0)
