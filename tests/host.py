"""What the tests find on this machine, and where."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

ENGINES = Path(__file__).parent.parent / ".venv-engines"
"""The environment that scripts/setup engines makes."""

VIRTIOFSD = (Path("/usr/lib/qemu/virtiofsd"), Path("/usr/libexec/virtiofsd"))
"""Where QEMU's package, or one of its own, puts what gives a virtual machine a directory of this one."""

PICTURES = Path(__file__).parent.parent / "grafana" / "pictures"
"""What draws dashboards; scripts/setup pictures makes it ready."""


def memory_mount() -> tuple[int, Path] | None:
    """The cgroup version (1 or 2) and mount point of the hierarchy with the memory controller, or None."""
    for path, kind, options in _mounts():
        if kind == "cgroup" and "memory" in options:
            return 1, path
        if kind == "cgroup2" and "memory" in text(path / "cgroup.controllers").split():
            return 2, path
    return None


def vm_kernel() -> Path | None:
    """The newest kernel that scripts/setup vm has unpacked, a directory with boot and lib, or None."""
    return max(kernels().glob("linux-image-*"), default=None)


def cache() -> Path:
    """Where scripts/setup keeps what it has unpacked instead of installed it, whether it exists or not."""
    directory = os.environ.get("XDG_CACHE_HOME")
    return (Path(directory) if directory else Path.home() / ".cache") / "oomcast"


def rustc() -> str | None:
    """The Rust compiler: the one on the PATH or else rustup's, or None."""
    return shutil.which("rustc") or shutil.which(str(Path.home() / ".cargo" / "bin" / "rustc"))


def kernels() -> Path:
    """Where scripts/setup vm unpacks kernels, whether it exists or not."""
    return cache() / "vm"


def _mounts() -> Iterator[tuple[Path, str, list[str]]]:
    """Mount point, file system and its options, of each line of mountinfo."""
    for line in text(Path("/proc/self/mountinfo")).splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        yield Path(before.split(" ")[4]), kind, options.split(",")


def text(path: Path) -> str:
    """What is in a file, "" if it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""
