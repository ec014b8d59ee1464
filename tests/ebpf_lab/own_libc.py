"""A target with a C library and a mount namespace of its own, as a container has them."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ebpf_lab.lab import Target

# A mount namespace whose root is $0. The last chroot finds its program by the old root, which the new one covers.
_ENTER = 'mount --rbind "$0" "$0" && cd "$0" && mount --move . / && exec chroot . "$@"'
_LIBRARY = re.compile(r"(/\S+) \(0x")


def own_libc_root(directory: Path, *programs: Path) -> Path:
    """Makes `directory` the root of a file system with `programs` in /bin and copies of the libraries they need.

    The copies are other files than the machine's (other inodes), at the same paths below the root. Returns `directory`.
    Raises CalledProcessError where ldd cannot tell what a program needs.
    """
    for program in programs:
        _copy(program, directory / "bin" / program.name)
        said = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True, timeout=30).stdout
        for library in _LIBRARY.findall(said):
            _copy(Path(library), directory / library.lstrip("/"))
    return directory


def libc_of(root: Path) -> Path:
    """Where the C library of a root made by `own_libc_root` is. Raises ValueError unless there is exactly one."""
    (path,) = root.rglob("libc.so.6")
    return path


@contextmanager
def in_root(root: Path, program: str, *arguments: str, patience: float = 30.0) -> Iterator[Target]:
    """Runs /bin/`program` of a root made by `own_libc_root` in a new mount namespace that has this root. Takes root."""
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _ENTER, str(root), f"/bin/{program}"]
    with Target(*command, *arguments, patience=patience) as target:
        yield target


def replace_libc(root: Path) -> None:
    """Puts another file (a copy, with another inode) in the place of the C library of `root`, as an upgrade does.

    A running target keeps the one it has, which is then deleted.
    """
    path = libc_of(root)
    aside = path.with_suffix(".new")
    shutil.copy2(path, aside)
    aside.replace(path)


def _copy(source: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, to)
