"""A target that reads a file through a mapping in ways that a C program of a few lines does not need to show.

paging.py FILE STEP..: for each step it drops the file from the page cache, does what the step says and tells how many
major faults the kernel counted of it.
"""

import json
import mmap
import os
import resource
import sys
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType

PAGE = mmap.PAGESIZE


def sequential(at: mmap.mmap) -> None:
    """With all the reading ahead that the kernel does."""
    touch(at, range(0, len(at), PAGE))


def scattered(at: mmap.mmap) -> None:
    at.madvise(mmap.MADV_RANDOM)
    touch(at, range(0, len(at), 37 * PAGE))


def backwards(at: mmap.mmap) -> None:
    touch(at, range(len(at) - PAGE, 0, -PAGE))


def huge(at: mmap.mmap) -> None:
    at.madvise(mmap.MADV_HUGEPAGE)
    touch(at, range(0, len(at), PAGE))


def threads(at: mmap.mmap) -> None:
    part = len(at) // 4
    ranges = [range(i * part, (i + 1) * part, 3 * PAGE) for i in range(4)]
    started = [threading.Thread(target=touch, args=(at, offsets)) for offsets in ranges]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


def written(at: mmap.mmap) -> None:
    """A private mapping: each page is copied."""
    for offset in range(0, len(at), 5 * PAGE):
        at[offset] = 1


STEPS: Mapping[str, Callable[[mmap.mmap], None]] = MappingProxyType(
    {step.__name__: step for step in (sequential, scattered, backwards, huge, threads, written)}
)


def touch(at: mmap.mmap, offsets: range) -> None:
    for offset in offsets:
        at[offset]


def say(**said: object) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()
    if not sys.stdin.readline():
        sys.exit(0)


def main() -> None:
    path, *steps = sys.argv[1:]
    say(pid=os.getpid())
    for step in steps:
        with open(path, "rb") as file:  # noqa: PTH123 - its descriptor is wanted
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            with mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as at:
                before = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
                STEPS[step](at)
                after = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
                say(phase=step, major_faults=after - before)


if __name__ == "__main__":
    main()
