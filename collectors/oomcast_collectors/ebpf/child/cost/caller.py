"""A process of our own that allocates and frees as it is told, and says how long that took: probes are measured on it.

    python caller.py malloc|mmap COUNT

It reads a line for each round and answers with nanoseconds: those of COUNT allocations, and of their frees.
"""

import ctypes
import mmap
import sys
from collections.abc import Callable
from time import perf_counter_ns

_SIZE = 64
_PAGE = mmap.PAGESIZE


def main() -> None:
    allocate, free = _functions(sys.argv[1])
    blocks: list[object] = [None] * int(sys.argv[2])
    places = range(len(blocks))
    _say("ready")
    while sys.stdin.readline():
        began = perf_counter_ns()
        for place in places:
            blocks[place] = allocate()
        middle = perf_counter_ns()
        for block in blocks:
            free(block)
        end = perf_counter_ns()
        _say(f"{middle - began} {end - middle}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _functions(name: str) -> tuple[Callable[[], object], Callable[[object], object]]:
    libc = ctypes.CDLL(None)
    if name == "malloc":
        malloc, free = libc.malloc, libc.free
        malloc.restype, malloc.argtypes, free.argtypes = ctypes.c_void_p, (ctypes.c_size_t,), (ctypes.c_void_p,)
        return lambda: malloc(_SIZE), free
    map_, unmap = libc.mmap, libc.munmap
    map_.restype = ctypes.c_void_p
    map_.argtypes = (ctypes.c_void_p, *(ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int), ctypes.c_long)
    unmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return lambda: map_(None, _PAGE, mmap.PROT_READ, flags, -1, 0), lambda block: unmap(block, _PAGE)


if __name__ == "__main__":
    main()
