"""Grows at a given rate until it is killed or has reached its size. Run inside a cgroup by tests/cgroups.py.

grow.py RATE_MB_S WHAT [SIZE_MB] [FILE]: WHAT is linear (every 20 ms), stepped (once a second) or file (page cache).
Prints one line when it begins to grow.
"""

import mmap
import os
import sys
import time

MIB = 1 << 20
REST = 4.0


def main() -> None:
    rate, what = float(sys.argv[1]) * MIB, sys.argv[2]
    size = int(float(sys.argv[3]) * MIB) if len(sys.argv) > 3 else 1 << 62
    step = 1.0 if what == "stepped" else 0.02
    # A test asks what happens to a cgroup that has been watched for a while, not to one that was born full.
    time.sleep(REST)
    print("begin", flush=True)  # noqa: T201 - its protocol
    held: list[mmap.mmap] = []
    file = os.open(sys.argv[4], os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600) if what == "file" else -1
    began, done = time.monotonic(), 0
    while done < size:
        wanted = int(rate * step * (1 + (time.monotonic() - began) // step)) - done
        wanted = min(wanted, size - done) & ~4095
        if wanted > 0 and file >= 0:
            os.write(file, b"\1" * wanted)
            os.fdatasync(file)
        elif wanted > 0:
            # Populated by the kernel in one go: touching page by page, a busy machine cannot hold the rate.
            held.append(mmap.mmap(-1, wanted, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE))
        done += max(wanted, 0)
        if size - done < 4096:
            break
        time.sleep(max(began + step * ((time.monotonic() - began) // step + 1) - time.monotonic(), 0))
    time.sleep(REST)


main()
