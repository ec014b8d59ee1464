"""Which files a process has mapped to execute, as it sees them: in its own mount namespace, and deleted ones too."""

import os
import re
from dataclasses import dataclass
from itertools import islice

_LINE = re.compile(
    rb"([0-9a-f]+)-([0-9a-f]+) ..x. ([0-9a-f]+) ([0-9a-f]+:[0-9a-f]+) ([1-9][0-9]*) +(/.*)$", re.MULTILINE
)
_DELETED = " (deleted)"
_LARGEST = 32 << 20
_MOST = 5000


@dataclass(frozen=True, slots=True)
class Mapped:
    """A file with code in a process. path: what opens that very file, whatever has become of its name. identity: device
    and inode. start, end: addresses; offset: of the file at start. program: it is the executable."""

    path: str
    name: str
    identity: tuple[str, int]
    start: int
    end: int
    offset: int
    program: bool = False


def mapped(proc: str, pid: int) -> list[Mapped]:
    """The first thousands of mappings with code, by address. Raises OSError when the process is gone or may not be
    looked into."""
    with open(f"{proc}/{pid}/maps", "rb") as file:  # noqa: PTH123 - a Path costs more than the rest
        text = file.read(_LARGEST)
    executable = os.stat(f"{proc}/{pid}/exe").st_ino if _has_exe(proc, pid) else -1  # noqa: PTH116 - as above
    found = []
    for match in islice(_LINE.finditer(text), _MOST):
        start, end, offset, device, inode, name = match.groups()
        # The link in map_files leads to the file itself; its path may by now be another file, or in another namespace.
        path = f"{proc}/{pid}/map_files/{start.lstrip(b'0').decode()}-{end.lstrip(b'0').decode()}"
        file_name = os.fsdecode(name).removesuffix(_DELETED).rpartition("/")[2]
        found.append(
            Mapped(
                *(path, file_name, (device.decode(), int(inode)), int(start, 16), int(end, 16), int(offset, 16)),
                program=int(inode) == executable,
            )
        )
    return found


def _has_exe(proc: str, pid: int) -> bool:
    try:
        os.readlink(f"{proc}/{pid}/exe")  # noqa: PTH115 - as above
    except OSError:
        return False
    return True
