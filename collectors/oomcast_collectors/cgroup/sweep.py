"""One pass after another over the cgroups of one found hierarchy."""

import errno
import os

from pydantic import Field

from oomcast.contract import CollectorSettings, Context, Event, Facts
from oomcast.metric import Sample
from oomcast_collectors.cgroup import metrics
from oomcast_collectors.cgroup.belongings import Belongings
from oomcast_collectors.cgroup.detail import Detail, pressure_directory
from oomcast_collectors.cgroup.files import Budget
from oomcast_collectors.cgroup.node import Gone, Node
from oomcast_collectors.cgroup.population import population
from oomcast_collectors.cgroup.stat import Malformed
from oomcast_collectors.cgroup.swap import Swap, read_swap
from oomcast_collectors.cgroup.tombstones import Tombstones
from oomcast_collectors.cgroup.tree import Tree
from oomcast_collectors.cgroup.troubles import Troubles
from oomcast_collectors.cgroup.userspace import UserspaceKills
from oomcast_collectors.cgroup.version import V1, V2, Version
from oomcast_collectors.cgroup.watch import Watch
from oomcast_collectors.hierarchy import Hierarchies

_DESCRIPTORS = "file descriptors for cgroups"


class CgroupSettings(CollectorSettings):
    include: tuple[str, ...] = Field(("*",), description="glob patterns of the cgroup paths to watch")
    exclude: tuple[str, ...] = Field((), description="glob patterns of the cgroup paths to leave out")
    max_depth: int = Field(12, ge=1, le=64, description="levels below the root of the hierarchy")
    max_cgroups: int = Field(1000, ge=1, le=20_000, description="most cgroups watched; the deepest are left out first")
    full: tuple[str, ...] = Field((), description="glob patterns of the cgroup paths that get the full set of series")
    full_for_engines: bool = Field(True, description="cgroups of serving_processes get the full set of series too")
    tombstone: float = Field(600.0, ge=0, le=86_400, description="seconds that counters outlive their cgroup")


class Sweep:
    """Ends with `close`; counters that go on are in `tombstones`, for the sweep after it."""

    def __init__(
        self,
        hierarchies: Hierarchies,
        settings: CgroupSettings,
        context: Context,
        troubles: Troubles,
        tombstones: Tombstones,
    ) -> None:
        mount = hierarchies.memory
        self._context = context
        self._troubles = troubles
        self._tombstones = tombstones
        self._budget = Budget()
        self._root = mount.path
        self._identity = _identity(os.fspath(mount.path))
        self._memory_version = mount.version
        self._unified = os.fspath(hierarchies.unified.path) if hierarchies.unified else None
        self._swap = Swap(0, 0)
        self._read_swap()
        self._swap_counts = mount.version == 1 or self._swap.total > 0
        version = _version(hierarchies, swap=self._swap_counts)
        tree = Tree(
            mount.path,
            context.clock,
            include=settings.include,
            exclude=settings.exclude,
            max_depth=settings.max_depth,
            cap=settings.max_cgroups,
            population=population(context.roots.proc, mount),
        )
        self._watch = Watch(tree, mount, version, self._budget, tombstones, root=hierarchies.namespaced)
        self._scope = "own" if version.kills_scope == "own" else "subtree"
        self._belongings = Belongings(
            context, settings.full, engines=settings.full_for_engines, mount=mount, troubles=troubles
        )
        self._userspace = UserspaceKills(context.clock, troubles) if mount.version == 2 else None
        self._details: dict[Node, Detail] = {}
        self._starved = False

    @property
    def nodes(self) -> list[Node]:
        return self._watch.nodes

    def outdated(self) -> bool:
        """Whether the hierarchy was unmounted or mounted anew, or files count that did not when it was found."""
        try:
            moved = _identity(os.fspath(self._root)) != self._identity
        except OSError:
            return True
        return moved or (self._swap.total > 0 and not self._swap_counts)

    def run(self) -> Facts:
        """One pass. Raises OSError when the root of the hierarchy cannot be read."""
        came = self._watch.renew()
        self._belongings.renew(self.nodes, came)
        self._read_swap()
        facts = Facts()
        self._starved = False
        for node in self.nodes:
            self._read(node, facts)
        if not self._starved:
            self._troubles.over(_DESCRIPTORS)
        if self._userspace:
            facts.events += self._userspace.look(self.nodes)
        facts.samples += self._tombstones.samples()
        facts.samples.append(Sample(metrics.COUNT.series(), self._watch.count))
        facts.samples.append(Sample(metrics.TRUNCATED.series(), self._watch.truncated))
        self._drop_details()
        return facts

    def close(self) -> None:
        self._watch.close()
        for detail in self._details.values():
            detail.close()

    def _read(self, node: Node, facts: Facts) -> None:
        try:
            node.read(self._swap.left)
        except Gone:
            self._watch.lost(node)
            self._troubles.gone(node.path)
            if node.shown:
                facts.samples += node.counted()  # its tombstone stands from the next pass on
            return
        except (OSError, Malformed) as error:
            if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
                # Without descriptors every cgroup fails alike, and that is one thing to say.
                self._troubles.met(_DESCRIPTORS, OSError(error.errno, error.strerror))
                self._starved = True
            else:
                self._troubles.met(node.path, error)
            return
        self._troubles.over(node.path)
        if node.fresh:
            self._kills(node, facts)
        if node.level is not None:
            facts.levels.append(node.level)
        if node.shown:
            facts.samples += node.samples
            if node.info:
                facts.samples.append(node.info)
            if node.full:
                self._read_detail(node, facts)

    def _read_detail(self, node: Node, facts: Facts) -> None:
        detail = self._details.get(node)
        if detail is None:
            pressure = pressure_directory(node, self._memory_version, self._unified, self._context.roots.proc)
            detail = self._details[node] = Detail(node, self._memory_version, pressure, self._budget)
        what = f"the full set of {node.path}"
        try:
            facts.samples += list(detail.collect())
        except (OSError, Malformed) as error:
            self._troubles.met(what, error)
        else:
            self._troubles.over(what)

    def _drop_details(self) -> None:
        if self._details:
            kept = {node for node in self.nodes if node.full}
            for node in self._details.keys() - kept:
                self._details.pop(node).close()

    def _kills(self, node: Node, facts: Facts) -> None:
        kills, majfaults = (count.rise() for count in node.counts)
        if not kills:
            return
        fields: dict[str, str | int | float] = {"cgroup": node.path, "kills": kills, "scope": self._scope}
        if node.counts.majfaults.total is not None:
            fields["pgmajfault"] = majfaults
        clock = self._context.clock
        summary = f"{kills} OOM kill(s) in {node.path}"
        facts.events.append(Event("cgroup_oom_kills", clock.time(), clock.monotonic(), summary, fields))

    def _read_swap(self) -> None:
        # Without a fresh answer the last one stands: no swap would make every limit look nearer than it is.
        try:
            self._swap = read_swap(self._context.roots.proc)
        except (OSError, Malformed) as error:
            self._troubles.met("swaps", error)
        else:
            self._troubles.over("swaps")


def _version(hierarchies: Hierarchies, *, swap: bool) -> Version:
    if hierarchies.memory.version == 1:
        return V1()
    return V2(swap=swap, local_events="memory_localevents" in hierarchies.options)


def _identity(path: str) -> tuple[int, int]:
    status = os.lstat(path)
    return status.st_dev, status.st_ino
