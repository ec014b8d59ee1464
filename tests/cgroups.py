"""Cgroups of the tests' own, on the hierarchy that this machine has, and processes that grow in them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from host import memory_mount

GROW = Path(__file__).with_name("grow.py")


class Cgroup:
    """A cgroup below the tests' parent; path as its series call it."""

    def __init__(self, directory: Path, mount: Path, version: int) -> None:
        self.directory = directory
        self.path = "/" + str(directory.relative_to(mount))
        self.version = version

    def limit(self, size: int) -> None:
        """Sets the memory limit in bytes."""
        name = "memory.max" if self.version == 2 else "memory.limit_in_bytes"
        (self.directory / name).write_text(str(size))

    def child(self, name: str) -> "Cgroup":
        (self.directory / name).mkdir()
        return Cgroup(self.directory / name, Path(str(self.directory).removesuffix(self.path)), self.version)

    def run(self, *argv: str) -> subprocess.Popen[bytes]:
        """Starts a process that is in this cgroup before its program begins."""
        join = f'echo $$ > "{self.directory}/cgroup.procs" && exec "$@"'
        return subprocess.Popen(["/bin/sh", "-c", join, "sh", *argv], stdout=subprocess.PIPE)

    def grow(self, *argv: object) -> subprocess.Popen[bytes]:
        """Starts grow.py in this cgroup."""
        return self.run(sys.executable, "-S", "-E", str(GROW), *map(str, argv))

    def remove(self) -> None:
        """Kills what is in it, and takes it away with its children."""
        for child in [child for child in self.directory.iterdir() if child.is_dir()]:
            Cgroup(child, child, self.version).remove()
        for _ in range(200):
            for pid in (self.directory / "cgroup.procs").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
            try:
                self.directory.rmdir()
            except OSError:
                time.sleep(0.02)
            else:
                return
        raise AssertionError(f"{self.directory} cannot be removed")


@contextmanager
def parent(name: str) -> Iterator[Cgroup]:
    """A cgroup of the tests' own, removed afterwards with all that is in it."""
    found = memory_mount()
    assert found is not None
    version, mount = found
    directory = mount / f"oomcast-{name}-{os.getpid()}"
    directory.mkdir()
    if version == 2:
        (directory / "cgroup.subtree_control").write_text("+memory")
    cgroup = Cgroup(directory, mount, version)
    try:
        yield cgroup
    finally:
        cgroup.remove()
