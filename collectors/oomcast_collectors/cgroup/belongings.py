"""Who a cgroup belongs to, as labels of its info series, and which cgroups get the full set of series."""

import fnmatch
import re
from collections.abc import Iterable

from oomcast.contract import Context
from oomcast.identity import Identity, identify
from oomcast.metric import Sample
from oomcast.podnames import PodNames
from oomcast_collectors.cgroup import metrics
from oomcast_collectors.cgroup.node import Node
from oomcast_collectors.cgroup.troubles import Troubles
from oomcast_collectors.hierarchy import Mount
from oomcast_collectors.host.processes import ProcessFinder

_LOOK_AGAIN = 10.0
"""Seconds between two looks for engines."""

_ASK_AGAIN = 2.0
"""Seconds between two looks for names of pods and containers: the kubelet links a log after its container started."""


class Belongings:
    """Keeps each node's info series, and knows the paths of serving processes."""

    def __init__(
        self, context: Context, full: Iterable[str], *, engines: bool, mount: Mount, troubles: Troubles
    ) -> None:
        self._clock = context.clock
        self._troubles = troubles
        self._version = f"v{mount.version}"
        self._mounted = mount.root.rstrip("/")
        self._pods = PodNames(context.roots.pods, context.clock, context.log)
        self._full = re.compile("|".join(fnmatch.translate(glob) for glob in full) or r"(?!)")
        self._finder = ProcessFinder(context.roots, context.serving) if engines else None
        self._engines: frozenset[str] = frozenset()
        self._looked = self._asked = float("-inf")
        self._unnamed: dict[Node, Identity] = {}

    def renew(self, nodes: Iterable[Node], came: Iterable[Node]) -> None:
        """Gives the new nodes their info; at times looks again at what may have changed for the others."""
        now = self._clock.monotonic()
        stale = list(came)
        if now - self._looked >= _LOOK_AGAIN:
            self._looked = now
            self._find_engines()
            stale += [node for node in nodes if node.info and self._is_full(node) != node.full]
        if now - self._asked >= _ASK_AGAIN:
            self._asked = now
            alive = self._unnamed.keys() & set(nodes)
            self._unnamed = {node: identity for node, identity in self._unnamed.items() if node in alive}
            stale += self._unnamed
        for node in stale:
            node.full = self._is_full(node)
            node.info = self._info(node)

    def _is_full(self, node: Node) -> bool:
        return node.path in self._engines or bool(self._full.match(node.path))

    def _find_engines(self) -> None:
        if self._finder is None:
            return
        try:
            found = self._finder.find()
        except OSError as error:
            self._troubles.met("the processes", error)
            return
        self._troubles.over("the processes")
        # A mount that shows only a part calls its cgroups by the rest of their path.
        self._engines = frozenset(one.cgroup_path.removeprefix(self._mounted) or "/" for one in found)

    def _info(self, node: Node) -> Sample:
        identity = self._unnamed.pop(node, None) or identify(node.path)
        pod = self._pods.pod(identity.pod_uid) if identity.pod_uid else None
        container = self._pods.container(identity.pod_uid, identity.container_id) if pod else ""
        if identity.pod_uid and (pod is None or (identity.container_id and not container)):
            self._unnamed[node] = identity
        values = (
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
        return Sample(metrics.INFO.series(*values), 1)
