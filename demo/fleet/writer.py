"""Writes one file over and over, so that its pages fill the cache of the cgroup it runs in. writer.py FILE BYTES RATE.

Run as a program with -S -E; it ends with its standard input, and takes the file away.
"""

import os
import select
import sys
import time
from pathlib import Path

_CHUNK = 1 << 20


def main() -> None:
    """FILE, its size in bytes, and bytes a second."""
    file, size, rate = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    chunk = b"\1" * _CHUNK
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
    began, written = time.monotonic(), 0
    try:
        while not select.select([sys.stdin], [], [], max(began + written / rate - time.monotonic(), 0))[0]:
            os.pwrite(descriptor, chunk, written % size)
            # Pages that are written back are clean: the kernel may take them at any time.
            os.fdatasync(descriptor)
            written += _CHUNK
    finally:
        os.close(descriptor)
        file.unlink()


if __name__ == "__main__":
    main()
