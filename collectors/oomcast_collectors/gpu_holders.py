"""Which processes hold an NVIDIA GPU."""

import os
import re

from oomcast.contract import Roots
from oomcast_collectors.descriptors import descriptors
from oomcast_collectors.verdicts import Verdicts

_GPU = re.compile(r"/dev/nvidia(?:\d+|-uvm)\Z")


class GpuHolders:
    """Who has an NVIDIA GPU open. Reading the descriptors of all processes of a node takes a second."""

    def __init__(self, roots: Roots) -> None:
        self._proc = os.fspath(roots.proc)
        self._driver = roots.proc / "driver/nvidia"
        self._verdicts = Verdicts(self._proc, self._judge)

    def find(self) -> set[int]:
        return set(self._verdicts.find()) if self._driver.exists() else set()

    def _judge(self, pid: int) -> str:
        return "gpu" if any(map(_GPU.match, descriptors(self._proc, pid))) else ""
