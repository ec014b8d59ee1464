"""Kills by userspace OOM killers, which no counter of the kernel shows: they mark the cgroup with an attribute."""

import errno
import os
from collections.abc import Iterable

from oomcast.clock import Clock
from oomcast.contract import Event
from oomcast_collectors.cgroup.node import Node
from oomcast_collectors.cgroup.stat import Malformed, number
from oomcast_collectors.cgroup.troubles import Troubles

_PERIOD = 5.0
_MOST = 1000
"""Marked cgroups remembered, those that are gone included."""

# oomd writes both, systemd-oomd the second alone; reading the first takes CAP_SYS_ADMIN. Both sum up processes.
_ATTRIBUTES = (("trusted.oomd_kill", "oomd"), ("user.oomd_kill", "systemd-oomd"))
_NONE = (errno.ENODATA, errno.EOPNOTSUPP, errno.ENOENT, errno.ENODEV, errno.ENOTDIR)


class UserspaceKills:
    """Looks for new marks every five seconds. A cgroup removed sooner after its kill takes its mark along."""

    def __init__(self, clock: Clock, troubles: Troubles) -> None:
        self._clock = clock
        self._troubles = troubles
        self._looked: float | None = None
        self._known: dict[tuple[str, int], int] = {}

    def look(self, nodes: Iterable[Node]) -> list[Event]:
        """An event for each cgroup with more kills than before; what was marked before the first look is history."""
        now = self._clock.monotonic()
        if self._looked is not None and now - self._looked < _PERIOD:
            return []
        first, self._looked = self._looked is None, now
        events = []
        for node in nodes:
            by, kills = self._marked(node)
            if kills:
                key = (node.path, node.inode)
                known = self._known.pop(key, kills if first else 0)
                self._known[key] = kills
                if kills > known:
                    events.append(self._event(node.path, by, kills - known))
        for key in list(self._known)[: max(len(self._known) - _MOST, 0)]:
            del self._known[key]
        return events

    def _marked(self, node: Node) -> tuple[str, int]:
        what = f"OOM mark of {node.path}"
        for attribute, by in _ATTRIBUTES:
            try:
                kills = number(os.getxattr(node.directory, attribute, follow_symlinks=False).rstrip(b"\0\n") + b"\n")
            except OSError as error:
                if error.errno not in _NONE:
                    self._troubles.met(what, error)
                    break
            except Malformed as error:
                self._troubles.met(what, error)
                break
            else:
                self._troubles.over(what)
                return by, kills
        return "", 0

    def _event(self, path: str, by: str, kills: int) -> Event:
        return Event(
            "userspace_oom_kill",
            self._clock.time(),
            self._clock.monotonic(),
            f"{by} killed {kills} process(es) in {path}",
            {"cgroup": path, "by": by, "kills": kills},
        )
