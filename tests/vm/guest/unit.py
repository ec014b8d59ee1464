"""What the unit has systemd give the daemon: its cgroup, and what protects it when memory is short."""

import re
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parents[3] / "deploy" / "systemd" / "oomcast.service"

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Unit(NamedTuple):
    """cgroup: its path. minimum, maximum: bytes, of memory.min and memory.max. adjust: of oom_score_adj."""

    cgroup: str
    minimum: int
    maximum: int
    adjust: int
    weight: int


def read(file: Path = FILE) -> Unit:
    """Raises ValueError where one of its settings is missing, there twice or in a form that is not expected."""
    text = file.read_text()
    return Unit(
        _below(_one(text, "Slice")) + f"/{file.name}",
        _bytes(_one(text, "MemoryMin")),
        _bytes(_one(text, "MemoryMax")),
        int(_one(text, "OOMScoreAdjust")),
        int(_one(text, "CPUWeight")),
    )


def _one(text: str, name: str) -> str:
    found = re.findall(rf"^{name}=(.*)$", text, re.MULTILINE)
    if len(found) != 1:
        raise ValueError(f"{name} is there {len(found)} times")
    return str(found[0])


def _below(slice_: str) -> str:
    """The path of a slice: a-b.slice is in a.slice, and -.slice is the root."""
    parts = slice_.removesuffix(".slice").split("-") if slice_ != "-.slice" else []
    return "".join(f"/{'-'.join(parts[: end + 1])}.slice" for end in range(len(parts)))


def _bytes(size: str) -> int:
    found = re.fullmatch(r"(\d+)([KMG]?)", size)
    if not found:
        raise ValueError(f"{size} is no size")
    return int(found[1]) * _UNITS[found[2]]
