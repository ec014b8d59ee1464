"""How many cgroups there are, asked of the kernel in one read."""

from collections.abc import Callable
from pathlib import Path

from oomcast_collectors.cgroup.files import LARGEST
from oomcast_collectors.hierarchy import Mount


def population(proc: Path, mount: Mount) -> Callable[[], int | None]:
    """A function that counts the cgroups of the memory controller; None where the kernel does not say.

    v1: num_cgroups of /proc/cgroups, which counts removed ones that still hold memory too. v2: nr_descendants of
    cgroup.stat at the mount, which does not.
    """
    path, key, column = (proc / "cgroups", b"memory", 2) if mount.version == 1 else (
        mount.path / "cgroup.stat", b"nr_descendants", 1
    )  # fmt: skip

    def count() -> int | None:
        try:
            with path.open("rb", buffering=0) as file:
                text = file.read(LARGEST)
        except OSError:
            return None
        for line in text.splitlines():
            fields = line.split()
            if len(fields) > column and fields[0] == key and fields[column].isdigit():
                return int(fields[column])
        return None

    return count
