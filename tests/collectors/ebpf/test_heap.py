"""Where a heap ends."""

import ctypes
import os
from pathlib import Path

from oomcast_collectors.ebpf.child.allocations.heap import break_of

MAPS = """\
55d0c0a00000-55d0c0a01000 r--p 00000000 fd:00 123 /usr/bin/a [heap]
55d0c1000000-55d0c1021000 rw-p 00000000 00:00 0                          [heap]
55d0c1021000-55d0c1042000 r--p 00000000 00:00 0                          [heap]
7ffd5b2c9000-7ffd5b2eb000 rw-p 00000000 00:00 0                          [stack]
"""
STAT = "1 (a) (b) R " + " ".join(str(field) for field in range(4, 53))


def process(root: Path, maps: str, stat: str) -> str:
    (root / "1").mkdir()
    (root / "1" / "maps").write_text(maps)
    (root / "1" / "stat").write_text(stat)
    return str(root)


def test_of_a_real_process() -> None:
    sbrk = ctypes.CDLL(None).sbrk
    sbrk.restype = ctypes.c_void_p
    assert 0 <= break_of("/proc", os.getpid()) - sbrk(0) < 4096


def test_of_a_heap_in_two_parts(tmp_path: Path) -> None:
    assert break_of(process(tmp_path, MAPS, STAT), 1) == 0x55D0C1042000


def test_without_a_heap_it_is_where_that_begins(tmp_path: Path) -> None:
    assert break_of(process(tmp_path, MAPS.splitlines()[-1], STAT), 1) == 47


def test_what_cannot_be_known(tmp_path: Path) -> None:
    assert break_of(process(tmp_path, "", "1 (a) R 1"), 1) == 0
    assert break_of(str(tmp_path), 2) == 0
