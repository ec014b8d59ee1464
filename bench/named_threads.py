"""The daemon, with the names of its threads told to the kernel, so that /proc/PID/task says whose CPU time it is.

CPython does so itself from 3.14 on. The arguments are those of `oomcast`.
"""

import ctypes
import sys
import threading

from oomcast.cli import run

_PR_SET_NAME = 15


def main() -> None:
    prctl = ctypes.CDLL(None).prctl
    work = threading.Thread.run

    def named(thread: threading.Thread) -> None:
        prctl(_PR_SET_NAME, thread.name.encode(), 0, 0, 0)  # the kernel keeps 15 bytes of it
        work(thread)

    threading.Thread.run = named  # type: ignore[assignment, method-assign] # measured only here
    run(sys.argv[1:])


if __name__ == "__main__":
    main()
