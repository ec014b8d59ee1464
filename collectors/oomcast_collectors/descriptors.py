"""/proc/PID/fd: what a process has open."""

import contextlib
import os
from collections.abc import Iterator
from itertools import islice

_MOST_DESCRIPTORS = 4096


def descriptors(proc: str, pid: int) -> Iterator[str]:
    """What the open descriptors of a process are, the first thousands of them. Raises OSError."""
    with os.scandir(f"{proc}/{pid}/fd") as entries:
        for entry in islice(entries, _MOST_DESCRIPTORS):
            # One that is closed meanwhile.
            with contextlib.suppress(FileNotFoundError):
                yield os.readlink(entry.path)  # noqa: PTH115 - thousands in a row, and a Path costs more than the call
