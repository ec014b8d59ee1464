"""Who a cgroup belongs to, as labels of its info series, and which cgroups get the full set of series."""

import fnmatch
import re
from collections.abc import Iterable

from oomcast.contract import Context
from oomcast.identity import identify
from oomcast.metric import Sample
from oomcast.podnames import PodNames
from oomcast_collectors.cgroup import metrics
from oomcast_collectors.cgroup.node import Node
from oomcast_collectors.host.processes import ProcessFinder

_LOOK_AGAIN = 10.0
"""Seconds between two looks for engines, and for the names of pods that had none yet."""


class Belongings:
    """Keeps each node's info series, and knows the paths of serving processes."""

    def __init__(self, context: Context, full: Iterable[str], *, engines: bool, version: int) -> None:
        self._clock = context.clock
        self._version = f"v{version}"
        self._pods = PodNames(context.roots.pods, context.clock, context.log)
        self._full = re.compile("|".join(fnmatch.translate(glob) for glob in full) or r"(?!)")
        self._finder = ProcessFinder(context.roots, context.serving) if engines else None
        self._engines: frozenset[str] = frozenset()
        self._looked: float | None = None
        self._unnamed: set[Node] = set()

    def renew(self, nodes: Iterable[Node], came: Iterable[Node]) -> None:
        """Gives new nodes their info, and every ten seconds looks again at what may have changed for the others."""
        now = self._clock.monotonic()
        if self._looked is None or now - self._looked >= _LOOK_AGAIN:
            self._looked = now
            if self._finder:
                self._engines = frozenset(found.cgroup_path for found in self._finder.find())
            known = set(nodes)
            self._unnamed &= known
            came = {node for node in known if node.info is None or self.full(node) != node.full} | self._unnamed
        for node in came:
            node.full = self.full(node)
            node.info = self._info(node)

    def full(self, node: Node) -> bool:
        return node.path in self._engines or bool(self._full.match(node.path))

    def _info(self, node: Node) -> Sample:
        identity = identify(node.path)
        pod = self._pods.pod(identity.pod_uid) if identity.pod_uid else None
        container = self._pods.container(identity.pod_uid, identity.container_id) if pod else ""
        if identity.pod_uid and pod is None:
            self._unnamed.add(node)
        else:
            self._unnamed.discard(node)
        series = metrics.INFO.series(
            node.path,
            self._version,
            "full" if node.full else "core",
            identity.unit,
            identity.runtime,
            identity.container_id,
            identity.pod_uid,
            pod.namespace if pod else "",
            pod.pod if pod else "",
            container,
            identity.slurm_job,
            identity.slurm_step,
            identity.lxc_name,
        )
        return Sample(series, 1)
