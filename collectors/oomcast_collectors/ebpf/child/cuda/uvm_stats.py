"""The fault statistics of the nvidia-uvm driver, a text per GPU.

The format is that of kernel-open/nvidia-uvm/uvm_gpu.c in NVIDIA's open kernel modules: replayable faults first, then
the others under the same names. Both are faults on unified memory here.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

_LINE = re.compile(r" {1,4}([a-z_]{1,32}) +(\d{1,20})(?: \(\d+ MB\))?\Z")
_ACCESS = "faults_by_access_type:"
_MOVED = "migrations:"
_DIRECTIONS: Mapping[str, str] = {"num_pages_in": "in", "num_pages_out": "out"}
_ACCESSES = ("prefetch", "read", "write", "atomic")
_FOLDER = re.compile(r"(?:UVM-)?(GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\Z")


@dataclass(frozen=True, slots=True)
class UvmStats:
    """Since the driver took the GPU into use. faults: by access. pages: by direction, as the GPU sees it; pages are the
    machine's, 4096 bytes."""

    faults: Mapping[str, int]
    pages: Mapping[str, int]


def parse_uvm_stats(text: str) -> UvmStats:
    """What is malformed or cut off is left out."""
    faults: Counter[str] = Counter()
    pages: Counter[str] = Counter()
    section = ""
    for line in text.split("\n")[:-1]:
        found = _LINE.match(line)
        if found is None:
            section = line
            continue
        name, value = found[1], int(found[2])
        if section == _ACCESS and name in _ACCESSES:
            faults[name] += value
        elif section == _MOVED and name in _DIRECTIONS:
            pages[_DIRECTIONS[name]] += value
    return UvmStats(faults, pages)


def uuid_of(folder: str) -> str | None:
    """The GPU's UUID, as NVML writes it, from the name of its folder; None for any other folder."""
    found = _FOLDER.match(folder)
    return found[1] if found else None
