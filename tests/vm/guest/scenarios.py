"""What happens in the guest: cgroups with their limits, and what grows, thrashes and crashes in them.

Each scenario is a function of its own name in ALONE or TOGETHER. What it shows is asserted on this machine, by name.
"""

import contextlib
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from vm.guest.cell import Cell

MIB = 1 << 20
CELLS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "/climb": {"memory.max": "72M"},
        "/plain": {"memory.max": "32M"},
        "/group": {"memory.max": "40M", "memory.oom.group": "1"},
        "/parent": {"memory.max": "32M", "cgroup.subtree_control": "+memory"},
        "/parent/child": {},
        "/wide": {"memory.max": "48M", "cgroup.subtree_control": "+memory"},
        "/wide/narrow": {"memory.max": "32M"},
        "/narrow": {"memory.max": "32M", "cgroup.subtree_control": "+memory"},
        "/narrow/wide": {"memory.max": "48M"},
        "/high": {"memory.max": "96M", "memory.high": "24M"},
        "/swap-held": {"memory.max": "32M", "memory.swap.max": "64M"},
        "/swap-oom": {"memory.max": "32M", "memory.swap.max": "32M"},
        "/thrash": {"memory.max": "4M"},
        "/control": {"memory.max": "32M"},
        "/removed": {"memory.max": "32M"},
        "/crash": {},
        "/global": {},
    }
)
"""By path, each after the one around it; all are there before anything happens."""

CRASHES = ("write", "protection", "instruction")


class Lab:
    """The cgroups of CELLS. programs: where the compiled ones are. data: a file larger than a limit."""

    def __init__(self, programs: Path, data: Path) -> None:
        self.programs = programs
        self.data = data
        self.cells = {path: Cell(path, limits) for path, limits in CELLS.items()}

    @property
    def hog(self) -> Path:
        return self.programs / "hog"


def climb(lab: Lab) -> None:
    """8 MiB a second for nine seconds, which the forecast has to see coming."""
    lab.cells["/climb"].run(lab.hog, 1, 125, 512)


def plain(lab: Lab) -> None:
    lab.cells["/plain"].run(lab.hog, 4, 50, 512)


def group(lab: Lab) -> None:
    """Three processes of which one is too large: all are killed."""
    cell = lab.cells["/group"]
    others = [cell.start(lab.hog, 8, 1, 8) for _ in range(2)]
    cell.holds(16 * MIB)
    cell.run(lab.hog, 4, 50, 512)
    for other in others:
        other.wait(10)


def limit_on_parent(lab: Lab) -> None:
    lab.cells["/parent/child"].run(lab.hog, 4, 50, 512)


def lower_limit_on_child(lab: Lab) -> None:
    lab.cells["/wide/narrow"].run(lab.hog, 4, 50, 512)


def lower_limit_on_parent(lab: Lab) -> None:
    lab.cells["/narrow/wide"].run(lab.hog, 4, 50, 512)


def high(lab: Lab) -> None:
    """Above memory.high a process is slowed down more and more, and never killed."""
    cell = lab.cells["/high"]
    cell.start(lab.hog, 1, 20, 512)
    cell.holds(25 * MIB)
    with contextlib.suppress(TimeoutError):  # slow enough
        cell.holds(28 * MIB, 5)
    cell.kill()


def swap_held(lab: Lab) -> None:
    """Keeps half as much again as its limit."""
    cell = lab.cells["/swap-held"]
    cell.start(lab.hog, 4, 50, 48)


def swap_oom(lab: Lab) -> None:
    """Fills its memory, then its swap, then is killed."""
    lab.cells["/swap-oom"].run(lab.hog, 4, 50, 512)


def thrash(lab: Lab) -> None:
    lab.cells["/thrash"].run(lab.programs / "thrash", lab.data, 200)


def control(lab: Lab) -> None:
    cell = lab.cells["/control"]
    cell.start(lab.hog, 8, 10, 24)
    cell.holds(24 * MIB)
    cell.kill()


def removed(lab: Lab) -> None:
    cell = lab.cells["/removed"]
    cell.run(lab.hog, 4, 50, 512)
    cell.remove()


def crash(lab: Lab) -> None:
    for how in CRASHES:
        program = lab.programs / f"crash-{how}"
        os.link(lab.programs / "crash", program)
        lab.cells["/crash"].run(program, how)


def host(lab: Lab) -> None:
    """Takes all the memory there is. Without swap: emptying that first takes an emulated machine half a minute."""
    lab.cells["/swap-held"].kill()
    subprocess.run(["busybox", "swapoff", "-a"], check=True, timeout=30)
    lab.cells["/global"].run(lab.hog, 16, 20, 16384)


Scenario = Callable[[Lab], None]

# The forecast is measured in peace, and where memory runs out nothing else can be shown.
ALONE: tuple[Scenario, ...] = (climb,)
TOGETHER: tuple[Scenario, ...] = (
    plain,
    group,
    limit_on_parent,
    lower_limit_on_child,
    lower_limit_on_parent,
    high,
    swap_held,
    swap_oom,
    thrash,
    control,
    removed,
    crash,
)
LAST: tuple[Scenario, ...] = (host,)
