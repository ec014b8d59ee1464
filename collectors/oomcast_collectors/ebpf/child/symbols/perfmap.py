"""Names of code that was made at run time, where its maker writes them down: /tmp/perf-PID.map."""

import os
import re
from bisect import bisect_right

_LARGEST = 16 << 20
_LINE = re.compile(r"^([0-9a-f]{1,16}) ([0-9a-f]{1,16}) (.{1,1024})$", re.MULTILINE)
_NSPID = re.compile(r"^NSpid:.*?(\d+)$", re.MULTILINE)


class PerfMap:
    """Read when first asked; by then the process may be gone, and with it the way to its own /tmp."""

    def __init__(self, proc: str, pid: int) -> None:
        self._paths = (f"{proc}/{pid}/root/tmp/perf-{_own_pid(proc, pid)}.map", f"/tmp/perf-{pid}.map")
        self._names: list[tuple[int, int, str]] | None = None

    def at(self, address: int) -> tuple[str, int] | None:
        """(name, offset in it) of what lies there."""
        if self._names is None:
            self._names = sorted(self._read())
        at = bisect_right(self._names, (address, 1 << 64, "")) - 1
        if at < 0:
            return None
        start, size, name = self._names[at]
        return (name, address - start) if address < start + size else None

    def _read(self) -> list[tuple[int, int, str]]:
        for path in self._paths:
            try:
                # Anybody may put something there, so neither a link nor a pipe is followed.
                fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError:
                continue
            with os.fdopen(fd, "rb") as file:
                text = file.read(_LARGEST) or b""
            return [(int(s, 16), int(n, 16), name) for s, n, name in _LINE.findall(text.decode("utf-8", "replace"))]
        return []


def _own_pid(proc: str, pid: int) -> int:
    """The pid in the process' own namespace, which is what it calls its file."""
    try:
        with open(f"{proc}/{pid}/status", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as above
            found = _NSPID.search(file.read(1 << 16))
    except OSError:
        return pid
    return int(found[1]) if found else pid
