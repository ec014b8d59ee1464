"""Cgroups for a machine in namespaces, whose systemd would take those at the root for its own otherwise."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cgroups import Cgroup


@contextmanager
def own_cgroups() -> Iterator[Mapping[str, Cgroup]]:
    """A cgroup in each hierarchy that the machine uses, by use, so that those of two machines are not mixed up."""
    groups = {}
    # The same name in each, as systemd-nspawn makes the one in the hierarchy of the other.
    name = f"oomcast-node-{os.getpid()}-{time.monotonic_ns()}"
    try:
        for use, (mount, version) in _hierarchies().items():
            directory = mount / name
            directory.mkdir()
            groups[use] = Cgroup(directory, mount, version)
        yield groups
    finally:
        for group in groups.values():
            group.remove()


def _hierarchies() -> dict[str, tuple[Path, int]]:
    """Mount point and version, by use: memory, services (that of version 1 which systemd keeps), unified."""
    found = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        mount = Path(before.split(" ")[4])
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup2":
            found["unified"] = (mount, 2)
        elif kind == "cgroup" and "memory" in options.split(","):
            found["memory"] = (mount, 1)
        elif kind == "cgroup" and "name=systemd" in options.split(","):
            found["services"] = (mount, 1)
    # With version 2 alone one hierarchy is for everything.
    return found if "memory" in found else {"memory": found["unified"]}
