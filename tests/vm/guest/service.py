"""The daemon as its unit has it started: in a cgroup of its own, with pages of programs that nobody else has."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from vm.guest.cell import ROOT
from vm.guest.unit import Unit

# What runs the tests has all its memory protected, so a page that it shares would stay for the daemon as well: in a
# mount namespace of its own the daemon gets copies of those files.
_START = """\
set -e
cd "$0"
find . -type f | while read -r file; do mount --bind "$file" "/$file"; done
cd /
echo "$1" >/proc/self/oom_score_adj
echo $$ >"$2/cgroup.procs"
shift 2
exec "$@"
"""
_CGROUP = ("memory.current", "memory.min", "memory.stat", "memory.pressure", "cpu.pressure", "io.pressure")


class Service:
    """Makes the cgroup. memory.min of the cgroups around it is what systemd leaves there: nothing."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.process: subprocess.Popen[bytes] | None = None
        self._directory = ROOT / unit.cgroup[1:]
        self._directory.mkdir(parents=True)
        for around in reversed(self._directory.parents):
            if around.is_relative_to(ROOT):
                (around / "cgroup.subtree_control").write_text("+memory +cpu")
        (self._directory / "memory.max").write_text(str(unit.maximum))
        (self._directory / "cpu.weight").write_text(str(unit.weight))
        self.protect()

    def protect(self) -> None:
        """What the unit says."""
        self._protect(self.unit.minimum, self.unit.adjust)

    def expose(self) -> None:
        """As if nothing had been said."""
        self._protect(0, 0)

    def start(self, arguments: Sequence[str], copies: Path, log: Path) -> subprocess.Popen[bytes]:
        """Starts Python with the arguments. copies: what copy_programs has made."""
        start = ["/bin/sh", "-c", _START, str(copies), str(self.unit.adjust), str(self._directory)]
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                ["unshare", "-m", *start, sys.executable, *arguments], stdout=out, stderr=out
            )
        return self.process

    def look(self) -> Mapping[str, str]:
        """What the kernel says of the process and its cgroup. Raises OSError once it has ended."""
        assert self.process is not None
        proc = Path("/proc") / str(self.process.pid)
        files = {name: (self._directory / name).read_text() for name in _CGROUP}
        return {**files, **{name: (proc / name).read_text() for name in ("status", "stat", "oom_score_adj")}}

    def _protect(self, minimum: int, adjust: int) -> None:
        (self._directory / "memory.min").write_text(str(minimum))
        if self.process is not None:
            Path(f"/proc/{self.process.pid}/oom_score_adj").write_text(str(adjust))


def copy_programs(into: Path) -> None:
    """Copies each program and library that this process has mapped to its own path below `into`.

    No page of the copies stays in memory: they belong to whose process needs them first.
    """
    maps = Path("/proc/self/maps").read_text().splitlines()
    for name in sorted({line.split(maxsplit=5)[5] for line in maps if " /" in line}):
        content = Path(name).read_bytes()
        if content.startswith(b"\x7fELF"):
            copy = into / name[1:]
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)
            copy.chmod(0o755)
            with copy.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
