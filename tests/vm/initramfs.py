"""The first file system of the guest: busybox, the kernel modules that reach this machine's files, and a script."""

import gzip
import re
import stat
from pathlib import Path

MODULES = ("virtio_pci", "virtiofs", "overlay", "virtio_blk")
_DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")


def initramfs(kernel: Path, busybox: Path, script: str) -> bytes:
    """As the kernel takes it (cpio newc, gzip). script: /init, to which %MODULES% are their files in loading order.

    kernel: the unpacked package. Raises ValueError if it lacks a module.
    """
    modules = _with_dependencies(kernel)
    files = {f"mod/{path.name}": path.read_bytes() for path in modules}
    init = script.replace("%MODULES%", " ".join(f"/{name}" for name in files)).encode()
    archive = Archive()
    for directory in ("bin", "mod", "proc", "sys", "dev", "lower", "upper", "root"):
        archive.add(directory, stat.S_IFDIR | 0o755)
    archive.add("bin/busybox", stat.S_IFREG | 0o755, busybox.read_bytes())
    archive.add("init", stat.S_IFREG | 0o755, init)
    for name, content in files.items():
        archive.add(name, stat.S_IFREG | 0o644, content)
    return gzip.compress(archive.finish(), 1)


class Archive:
    """Writes cpio's newc format."""

    def __init__(self) -> None:
        self._out = bytearray()
        self._inode = 0

    def add(self, name: str, mode: int, content: bytes = b"") -> None:
        self._inode += 1
        encoded = name.encode() + b"\0"
        # inode, mode, uid, gid, links, mtime, size, four device numbers, size of the name, no checksum
        fields = (self._inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
        self._out += b"070701" + b"".join(b"%08x" % field for field in fields) + encoded
        self._pad()
        self._out += content
        self._pad()

    def finish(self) -> bytes:
        self.add("TRAILER!!!", 0)
        return bytes(self._out)

    def _pad(self) -> None:
        self._out += b"\0" * (-len(self._out) % 4)


def _with_dependencies(kernel: Path) -> list[Path]:
    """The files of MODULES and of what they need, each after what it needs: there is no depmod in the guest."""
    files = {path.stem.replace("-", "_"): path for path in kernel.rglob("*.ko")}
    ordered: dict[str, Path] = {}

    def need(name: str) -> None:
        if name in ordered:
            return
        if name not in files:
            raise ValueError(f"{kernel} has no module {name}")
        depends = _DEPENDS.search(files[name].read_bytes())
        for other in depends[1].decode().split(",") if depends else []:
            if other:
                need(other.replace("-", "_"))
        ordered[name] = files[name]

    for name in MODULES:
        need(name)
    return list(ordered.values())
