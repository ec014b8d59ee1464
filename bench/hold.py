"""Charges memory to many cgroups and keeps it: `hold.py LIST`, a file with one cgroup directory a line.

One process is enough, since memory stays charged to the cgroup in which it was first touched. A line "COUNT START" on
stdin changes COUNT cgroups, from the START-th on, by one page each; the answer is an empty line.
"""

import itertools
import mmap
import os
import sys
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_CHARGED = 65536
_ROOM = 8
"""Pages beside the charged ones, taken and given back as changes are asked for."""


class Holder:
    def __init__(self, directories: list[str]) -> None:
        self._directories = directories
        # One mapping for all, since each of thousands would cost the kernel a region of its own.
        self._stride = _CHARGED + _ROOM * _PAGE
        self._memory = mmap.mmap(-1, self._stride * len(directories), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._memory.madvise(mmap.MADV_NOHUGEPAGE)
        self._taken = [0] * len(directories)
        for i in range(len(directories)):
            self._join(i)
            for page in range(0, _CHARGED, _PAGE):
                self._memory[i * self._stride + page] = 1

    def change(self, i: int) -> None:
        """One page more, or all of the additional ones less, charged to the i-th cgroup."""
        room = i * self._stride + _CHARGED
        if self._taken[i] == _ROOM:
            self._memory.madvise(mmap.MADV_DONTNEED, room, _ROOM * _PAGE)
            self._taken[i] = 0
            return
        self._join(i)
        self._memory[room + self._taken[i] * _PAGE] = 1
        self._taken[i] += 1

    def _join(self, i: int) -> None:
        with open(f"{self._directories[i]}/cgroup.procs", "wb", buffering=0) as file:  # noqa: PTH123 - a path object for each of thousands is dear
            file.write(b"0")


def main() -> None:
    directories = Path(sys.argv[1]).read_text().splitlines()
    holder = Holder(directories)
    print(flush=True)
    for line in sys.stdin:
        count, start = map(int, line.split())
        for i in itertools.islice(itertools.cycle(range(len(directories))), start, start + count):
            holder.change(i)
        print(flush=True)


if __name__ == "__main__":
    main()
