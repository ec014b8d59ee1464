"""Who forks, executes another program or ends among the targets, told by the kernel at once."""

import contextlib
from collections.abc import Iterator
from typing import Any

from oomcast_collectors.ebpf import metrics
from oomcast_collectors.ebpf.child.bcc import Bcc
from oomcast_collectors.ebpf.child.events import Events
from oomcast_collectors.ebpf.child.program import Program
from oomcast_collectors.ebpf.child.targets import Targets
from oomcast_collectors.ebpf.description import read
from oomcast_collectors.ebpf.wire import Row

_FORKED, _EXECUTED, _ENDED = 1, 2, 3


class Follower:
    """Raises EbpfError from its constructor; without it nothing can be followed."""

    def __init__(self, bcc: Bcc, targets: Targets, events: Events) -> None:
        self._targets = targets
        self._not_kept = 0
        self._program = Program(bcc, "follow", *read("follow", None))
        self._followed: Any = self._program.table("targets")
        events.open(self._program, "lives", self._take)
        self._program.attach_tracepoints()

    def follow(self, pid: int) -> None:
        try:
            self._followed[self._followed.Key(pid)] = self._followed.Leaf(1)
        except Exception:  # noqa: BLE001 - BCC raises nothing narrower; the forks of targets have filled the table
            self._not_kept += 1

    def unfollow(self, pid: int) -> None:
        with contextlib.suppress(KeyError):  # it ended, and the program took it out itself
            del self._followed[self._followed.Key(pid)]

    def rows(self) -> Iterator[Row]:
        yield Row(metrics.PROBE_LOST.name, ("follow", "lives"), sum(n for _, n in self._program.rows("lost")))
        yield Row(metrics.PROBE_LOST.name, ("follow", "targets"), self._not_kept)

    def close(self) -> None:
        self._program.close()

    def _take(self, life: Any) -> None:
        if life.what == _FORKED:
            self._targets.forked(life.parent, life.pid)
        elif life.what == _EXECUTED:
            self._targets.executed(life.pid)
        elif life.what == _ENDED:
            self._targets.ended(life.pid)
