"""What series call the cgroup of a process, and whose it is."""

import contextlib

from oomcast.contract import Context, NotPresent
from oomcast.identity import identify, owner
from oomcast.podnames import PodNames
from oomcast_collectors.hierarchy import find_hierarchies

_MOUNTS_AGAIN = 60.0
"""Seconds for which the mount table is not read again: it may have thousands of lines."""


class CgroupNames:
    """Not thread-safe."""

    def __init__(self, context: Context) -> None:
        self._roots = context.roots
        self._clock = context.clock
        self._pods = PodNames(context.roots.pods, context.clock, context.log)
        self._mounted = "/"
        self._partial = False
        self._mounts_read = float("-inf")

    @property
    def partial(self) -> bool:
        """Whether only a part of the host's cgroups has names here: "/" is then a cgroup like others."""
        self._read_mounts()
        return self._partial

    def name(self, path: str) -> str:
        """What oomcast_cgroup_info calls the cgroup that /proc/PID/cgroup calls `path`, "" where it has none."""
        self._read_mounts()
        return below(path, self._mounted)

    def owner(self, path: str) -> str:
        """The name that the kills of a cgroup are counted under. path: its name, or as /proc/PID/cgroup has it."""
        identity = identify(path)
        pod = self._pods.pod(identity.pod_uid) if identity.pod_uid else None
        container = self._pods.container(identity.pod_uid, identity.container_id) if pod else ""
        return owner(identity, path, pod, container)

    def _read_mounts(self) -> None:
        now = self._clock.monotonic()
        if now - self._mounts_read >= _MOUNTS_AGAIN:
            self._mounts_read = now
            # Without a hierarchy nothing else here names cgroups, and /proc's own names do.
            with contextlib.suppress(NotPresent, OSError):
                hierarchies = find_hierarchies(self._roots.proc, self._roots.host)
                self._mounted, self._partial = hierarchies.memory.root, hierarchies.namespaced


def below(path: str, mounted: str) -> str:
    """What a cgroup is called in a mount that has the cgroup `mounted` as its root; "" if it does not show it.

    Both as the kernel names them, out of a cgroup namespace with leading "..".
    """
    top = mounted.rstrip("/")
    if not path or (path != top and not path.startswith(f"{top}/")):
        return ""
    shown = path[len(top) :] or "/"
    return "" if shown == "/.." or shown.startswith("/../") else shown
