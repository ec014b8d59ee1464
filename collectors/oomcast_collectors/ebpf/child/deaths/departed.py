"""Targets that ended a moment ago: what the kernel tells of them may be read after their end was."""

from collections import OrderedDict

from oomcast.clock import Clock
from oomcast_collectors.ebpf.child.part import Process

_SECONDS = 10.0
_MOST = 1000


class Departed:
    """Not thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left: OrderedDict[int, tuple[float, Process]] = OrderedDict()

    def add(self, process: Process) -> None:
        self.back(process.pid)
        self._left[process.pid] = self._clock.monotonic(), process
        if len(self._left) > _MOST:
            self._left.popitem(last=False)

    def back(self, pid: int) -> None:
        """The pid is a target's again."""
        self._left.pop(pid, None)

    def get(self, pid: int) -> Process | None:
        """The target that had this pid until ten seconds ago at most."""
        left = self._left.get(pid)
        return left[1] if left and self._clock.monotonic() - left[0] < _SECONDS else None
