"""Real cgroups of the benchmark's own, below a parent of its own, gone when it ends."""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from machine import HERE, Child, child
from oomcast_collectors.hierarchy import find_hierarchies

LIMIT = 64 << 20
"""Bytes: containers have limits, and each limit is a level to forecast."""


class Unusable(Exception):
    """No cgroups can be made here."""


class Owned:
    """directories: of the cgroups. path: of their parent, as the series call it. version: of the hierarchy."""

    def __init__(self, parent: Path, path: str, version: int, count: int) -> None:
        self.parent = parent
        self.path = path
        self.version = version
        self.directories = [parent / f"pod{i:05}.slice" for i in range(count)]
        self._holder: Child | None = None
        self._next = 0

    def change(self, share: float) -> None:
        """Changes what is charged to that share of them, others each time."""
        count = round(share * len(self.directories))
        if count and self._holder:
            self._holder.ask(f"{count} {self._next}")
            self._next = (self._next + count) % len(self.directories)

    def hold(self, holder: Child) -> None:
        holder.answer()
        self._holder = holder


@contextmanager
def parent() -> Iterator[Owned]:
    """An empty parent. Raises Unusable without the rights or a hierarchy for it."""
    mount = find_hierarchies(Path("/proc")).memory
    name = f"oomcast-bench-{os.getpid()}"
    directory = mount.path / name
    try:
        directory.mkdir()
        if mount.version == 2:
            for above in (mount.path, directory):
                (above / "cgroup.subtree_control").write_text("+memory")
    except OSError as error:
        raise Unusable(f"cannot make cgroups in {mount.path}: {error}") from error
    try:
        yield Owned(directory, f"/{name}", mount.version, 0)
    finally:
        _remove(directory)


@contextmanager
def owned(count: int) -> Iterator[Owned]:
    """`count` cgroups with a limit, each charged 64 KiB of anonymous memory."""
    with parent() as above:
        made = Owned(above.parent, above.path, above.version, count)
        for directory in made.directories:
            directory.mkdir()
            limit(directory, made.version)
        with held(made):
            yield made


@contextmanager
def held(made: Owned) -> Iterator[None]:
    """Memory in each of the cgroups that were made, of one process that goes through them and stays."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as names:
        names.write("\n".join(map(str, made.directories)))
        names.flush()
        with child([sys.executable, "-S", HERE / "hold.py", names.name]) as holder:
            made.hold(holder)
            yield


def limit(directory: Path, version: int, size: int = LIMIT) -> None:
    (directory / ("memory.max" if version == 2 else "memory.limit_in_bytes")).write_text(str(size))


def _remove(directory: Path) -> None:
    for inner in [inner for inner in directory.iterdir() if inner.is_dir()]:
        _remove(inner)
    for _ in range(100):
        try:
            directory.rmdir()
        except OSError:
            time.sleep(0.05)  # a process that was in it is still going away
        else:
            return
    print(f"bench: {directory} cannot be removed", file=sys.stderr)
