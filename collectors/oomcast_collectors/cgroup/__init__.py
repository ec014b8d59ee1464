"""Memory of cgroups, v1, v2 and hybrid: what is used, what of it cannot be reclaimed, limits, faults, OOM kills."""

import logging
import os
import threading

from pydantic import Field

from oomcast.contract import CollectorSettings, CollectorSpec, Context, Event, Facts
from oomcast.logs import OnChange
from oomcast.metric import Sample
from oomcast_collectors.cgroup import metrics
from oomcast_collectors.cgroup.belongings import Belongings
from oomcast_collectors.cgroup.detail import Detail, pressure_directory
from oomcast_collectors.cgroup.files import Budget
from oomcast_collectors.cgroup.hierarchy import Hierarchies, find_hierarchies
from oomcast_collectors.cgroup.lane import FastLane
from oomcast_collectors.cgroup.node import Gone, Node
from oomcast_collectors.cgroup.population import population
from oomcast_collectors.cgroup.stat import Malformed
from oomcast_collectors.cgroup.swap import swap_left
from oomcast_collectors.cgroup.tree import Tree
from oomcast_collectors.cgroup.version import V1, V2, Version
from oomcast_collectors.cgroup.watch import Watch


class CgroupSettings(CollectorSettings):
    include: tuple[str, ...] = Field(("*",), description="glob patterns of the cgroup paths to watch")
    exclude: tuple[str, ...] = Field((), description="glob patterns of the cgroup paths to leave out")
    max_depth: int = Field(12, ge=1, le=64, description="levels below the root of the hierarchy")
    max_cgroups: int = Field(1000, ge=1, le=20_000, description="most cgroups watched; the deepest are left out first")
    full: tuple[str, ...] = Field((), description="glob patterns of the cgroup paths that get the full set of series")
    full_for_engines: bool = Field(True, description="cgroups of serving_processes get the full set of series too")
    tombstone: float = Field(600.0, ge=0, le=86_400, description="seconds that counters outlive their cgroup")


class CgroupCollector:
    """Reads every watched cgroup once per run, and those about to be full ten times a second (lane.py)."""

    def __init__(self, settings: CgroupSettings, context: Context) -> None:
        self._settings = settings
        self._context = context
        self._told = OnChange(context.log, clock=context.clock)
        self._errors = 0
        self._pass: _Pass | None = None
        # The lane reads through the descriptors of nodes: none may be closed, and its number reused, meanwhile.
        self._lock = threading.Lock()
        self._lane = FastLane(context.clock, context.push, self._lock)

    def start(self) -> None:
        self._lane.start()

    def stop(self, deadline: float) -> None:
        self._lane.stop(deadline)
        if self._lock.acquire(timeout=max(deadline - self._context.clock.monotonic(), 0)):
            self._close()
            self._lock.release()

    def collect(self) -> Facts:
        with self._lock:
            if self._pass is None:
                hierarchies = find_hierarchies(self._context.roots.proc)
                self._pass = _Pass(hierarchies, self._settings, self._context, self._told)
            try:
                facts = self._pass.run()
            except OSError:
                self._close()  # the hierarchy itself went away: look for it anew on the next run
                raise
            facts.samples.append(Sample(metrics.READ_ERRORS.series(), self._errors + self._pass.errors))
            self._lane.consider(self._pass.watch.nodes)
            return facts

    def _close(self) -> None:
        if self._pass:
            self._errors += self._pass.errors
            self._pass.close()
            self._pass = None


class _Pass:
    """The passes over one found hierarchy."""

    def __init__(self, hierarchies: Hierarchies, settings: CgroupSettings, context: Context, told: OnChange) -> None:
        self.errors = 0
        self._context = context
        self._told = told
        self._budget = Budget()
        self._first = True
        self._proc = context.roots.proc
        mount = hierarchies.memory
        self._version = mount.version
        self._unified = os.fspath(hierarchies.unified.path) if hierarchies.unified else None
        tree = Tree(
            mount.path,
            context.clock,
            include=settings.include,
            exclude=settings.exclude,
            max_depth=settings.max_depth,
            cap=settings.max_cgroups,
            population=population(self._proc, mount),
        )
        version = _version(hierarchies, swap=swap_left(self._proc)[0] > 0)
        self.watch = Watch(
            tree, mount, version, self._budget, context.clock, settings.tombstone, root=hierarchies.namespaced
        )
        self._scope = version.kills_scope
        self._belongings = Belongings(context, settings.full, engines=settings.full_for_engines, version=mount.version)
        self._details: dict[Node, Detail] = {}

    def run(self) -> Facts:
        """One pass. Raises OSError when the root of the hierarchy cannot be read."""
        came = self.watch.renew()
        self._belongings.renew(self.watch.nodes, came)
        facts = Facts()
        swap = swap_left(self._proc)[1]
        for node in self.watch.nodes:
            self._read(node, swap, facts)
        facts.samples += self.watch.tombstones()
        facts.samples.append(Sample(metrics.COUNT.series(), sum(node.shown for node in self.watch.nodes)))
        facts.samples.append(Sample(metrics.TRUNCATED.series(), self.watch.truncated))
        self._details_of_the_gone()
        self._first = False
        return facts

    def close(self) -> None:
        self.watch.close()
        for detail in self._details.values():
            detail.close()

    def _read(self, node: Node, swap: int, facts: Facts) -> None:
        try:
            node.read(swap)
            full = self._detail(node) if node.full and node.shown else ()
        except Gone:
            self.watch.lost(node)
            return
        except (OSError, Malformed) as error:
            self.errors += 1
            self._told.report(node.path, str(error), logging.WARNING, f"{node.path}: {error}; left out until it reads")
            return
        if node.fresh:
            self._kills(node, facts)
        if node.level is not None:
            facts.levels.append(node.level)
        if node.shown:
            facts.samples += node.samples
            facts.samples += full
            if node.info:
                facts.samples.append(node.info)

    def _detail(self, node: Node) -> list[Sample]:
        detail = self._details.get(node)
        if detail is None:
            pressure = pressure_directory(node, self._version, self._unified)
            detail = self._details[node] = Detail(node, self._version, pressure, self._budget)
        return list(detail.collect())

    def _details_of_the_gone(self) -> None:
        if self._details:
            for node in self._details.keys() - set(self.watch.nodes):
                self._details.pop(node).close()

    def _kills(self, node: Node, facts: Facts) -> None:
        kills = node.totals()[0]
        if kills is None:
            return
        # What was there before the daemon is history; a cgroup born under its eyes began at what its path had.
        known = node.known_kills
        if known is None:
            known = kills if self._first else node.past.kills
        node.known_kills = kills
        if kills > known:
            scope = "own" if self._scope == "own" else "subtree"
            facts.events.append(
                Event(
                    "cgroup_oom_kills",
                    self._context.clock.time(),
                    self._context.clock.monotonic(),
                    f"{kills - known} OOM kill(s) in {node.path}",
                    {"cgroup": node.path, "kills": kills - known, "scope": scope},
                )
            )


def _version(hierarchies: Hierarchies, *, swap: bool) -> Version:
    if hierarchies.memory.version == 1:
        return V1()
    return V2(swap=swap, local_events="memory_localevents" in hierarchies.options)


SPEC = CollectorSpec(
    "cgroup",
    "memory, limits, faults and OOM kills of cgroups",
    CgroupSettings,
    metrics.METRICS,
    CgroupCollector,
)
