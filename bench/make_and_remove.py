"""Makes and removes cgroups until told to stop: `DIRECTORY VERSION RATE LIFETIME`; a line on stdin asks how many."""

import mmap
import os
import sys
import threading
import time
from collections import deque
from pathlib import Path

from owned import limit

_BYTES = 65536


class Churn:
    """Each cgroup gets a limit and 64 KiB, which are freed at once: what stays charged would keep the removed alive."""

    def __init__(self, parent: Path, version: int, rate: float, lifetime: float) -> None:
        self._parent = parent
        self._version = version
        self._rate = rate
        self._lifetime = lifetime
        self._alive: deque[tuple[float, Path]] = deque()
        self.made = 0

    def run(self) -> None:
        began = time.monotonic()
        while True:
            self._make(self._parent / f"pod{self.made:06}.slice")
            self.made += 1
            self._remove(time.monotonic() - self._lifetime)
            time.sleep(max(began + self.made / self._rate - time.monotonic(), 0))

    def _make(self, directory: Path) -> None:
        directory.mkdir()
        limit(directory, self._version)
        (directory / "cgroup.procs").write_text("0")
        with mmap.mmap(-1, _BYTES) as memory:
            for page in range(0, _BYTES, mmap.PAGESIZE):
                memory[page] = 1
        (self._parent.parent / "cgroup.procs").write_text("0")
        self._alive.append((time.monotonic(), directory))

    def _remove(self, until: float) -> None:
        while self._alive and self._alive[0][0] < until:
            os.rmdir(self._alive.popleft()[1])  # noqa: PTH106 - a path object is dear at this rate


def main() -> None:
    directory, version, rate, lifetime = sys.argv[1:]
    churn = Churn(Path(directory), int(version), float(rate), float(lifetime))
    threading.Thread(target=churn.run, daemon=True).start()
    for _ in sys.stdin:
        print(churn.made, flush=True)


if __name__ == "__main__":
    main()
