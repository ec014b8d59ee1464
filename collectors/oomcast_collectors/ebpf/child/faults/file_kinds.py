"""What kind of file a process has mapped: the weights of a model, a library, the program itself, or another."""

import fnmatch
import os
import re

_LINE = re.compile(rb"[0-9a-f]+-[0-9a-f]+ .... [0-9a-f]+ ([0-9a-f]+):([0-9a-f]+) ([1-9][0-9]*) +(/.*)$", re.MULTILINE)
_DELETED = " (deleted)"
_LARGEST = 32 << 20
_MOST_FILES = 20_000
_WEIGHTS = ("*.safetensors", "*.gguf", "*.bin", "*.pt", "*.pth", "*.ggml", "*.npz")
_LIBRARY = ("*.so", "*.so.*")
_MINOR_BITS = 20

KINDS = ("weights", "library", "executable", "other")


class FileKinds:
    """The files of one process, as they were when last looked at. Not thread-safe."""

    def __init__(self, proc: str, pid: int) -> None:
        self._proc = proc
        self._pid = pid
        self._by_file: dict[tuple[int, int], str] = {}
        self._by_inode: dict[int, set[str]] = {}

    def look(self) -> None:
        """Adds what is mapped now, up to a limit; a process that is gone or cannot be looked into adds nothing."""
        if len(self._by_file) >= _MOST_FILES:
            return
        home = f"{self._proc}/{self._pid}"
        try:
            with open(f"{home}/maps", "rb") as file:  # noqa: PTH123 - a Path costs more than the rest
                text = file.read(_LARGEST)
            program = os.readlink(f"{home}/exe")  # noqa: PTH115 - as above
        except OSError:
            return
        for major, minor, inode, path in _LINE.findall(text):
            kind = kind_of(os.fsdecode(path), program)
            device = int(major, 16) << _MINOR_BITS | int(minor, 16)
            self._by_file[device, int(inode)] = kind
            self._by_inode.setdefault(int(inode), set()).add(kind)

    def kind(self, device: int, inode: int) -> str | None:
        """One of KINDS; None for a file that was not mapped then. device: as the kernel packs it."""
        found = self._by_file.get((device, inode))
        if found is not None:
            return found
        # A file of an overlay has the device of the overlay there, and of the layer's file system in the kernel.
        kinds = self._by_inode.get(inode, ())
        return next(iter(kinds)) if len(kinds) == 1 else None


def kind_of(path: str, program: str) -> str:
    """path: of a mapping, as /proc/PID/maps has it. program: where /proc/PID/exe leads."""
    if path == program:
        return "executable"
    name = path.removesuffix(_DELETED).rpartition("/")[2]
    for kind, patterns in (("weights", _WEIGHTS), ("library", _LIBRARY)):
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            return kind
    return "other"
