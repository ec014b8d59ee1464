"""The contract between the core and a collector. All of it is on this screen.

A collector is one module: metric rows, a settings model, a class with `collect()`, and a `CollectorSpec`.
Three kinds of fact leave it: `Sample` (metric.py), `Level` and `Event`.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, Field

from oomcast.clock import Clock
from oomcast.metric import Metric, Sample
from oomcast.slo import Slo


class Level(NamedTuple):
    """A resource that can run out. used, capacity: in the resource's own unit, `used` without what can be reclaimed.

    labels: what its metrics call it, ("cgroup", "/a/b"). identity: changes when the object behind the labels was
    made anew, so that its history starts again. within: the label value of the enclosing level, "" without one;
    of nested levels that fill together only the binding one is forecast. noise: rises below this are no trend.
    """

    resource: str
    labels: tuple[tuple[str, str], ...]
    used: float
    capacity: float
    identity: int = 0
    within: str = ""
    noise: float = 0.0


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at one moment. time: UTC seconds; monotonic: the same moment on the daemon's clock."""

    kind: str
    time: float
    monotonic: float
    summary: str
    fields: Mapping[str, str | int | float] = field(default_factory=dict)


@dataclass(slots=True)
class Facts:
    """What one run of `collect()` found."""

    samples: list[Sample] = field(default_factory=list)
    levels: list[Level] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)


class NotPresent(Exception):
    """What the collector reads is not on this machine: no failure, and its `up` is absent.

    Once a collector has succeeded, absence is a failure unless `removed` says that the thing itself went away.
    """

    def __init__(self, reason: str, *, removed: bool = False) -> None:
        super().__init__(reason)
        self.removed = removed


class CollectorSettings(BaseModel):
    """Every collector's settings. timeout: a run that takes longer is given up, its late result is dropped."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = Field(True, description="false switches this collector off")
    interval: Annotated[float, Field(ge=0.2, le=3600)] = Field(1.0, description="seconds between two runs")
    timeout: Annotated[float, Field(gt=0, le=600)] = Field(5.0, description="seconds after which a run is given up")


@dataclass(frozen=True, slots=True)
class Roots:
    """Where the machine is mounted; a container gives the host's (/host/proc, ..), a test a fixture's.

    host: the machine's root directory; what its mount table in `proc` names is looked up below it. None: our own
    mount table is read, which in a container has the host's mounts too, as far as it was given them.
    """

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    dev: Path = Path("/dev")
    pods: Path = Path("/var/log/pods")
    host: Path | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """What a collector is given. serving: glob patterns of process names that are inference engines. slo: the
    length classes of prompts and their objectives.

    push: hands over facts between two runs, from any thread: a peak must not wait for the next run. Its samples replace
    the same series of the last run or join them, the rest stays; they are ignored while the collector has nothing
    published (before its first run, after a failed one). Raises MetricError where a run's samples would be refused.
    A value pushed while a run goes on outlasts that run's, so a series never goes back, provided that reading and
    pushing it share one lock with the reading in collect().

    restart: asks, with a reason for the log, that the whole process be executed anew, for what cannot be unloaded from
    it; from any thread, returns at once. Refused within ten minutes of the last one, so the collector goes on.
    """

    roots: Roots
    clock: Clock
    log: logging.Logger
    push: Callable[[Facts], None]
    serving: tuple[str, ...] = ()
    restart: Callable[[str], None] = lambda reason: None
    slo: Slo = field(default_factory=Slo)


class Collector(Protocol):
    def collect(self) -> Facts:
        """One run, in the collector's own thread. Raises NotPresent, or anything else as a failure."""


class Watcher(Collector, Protocol):
    """A collector that also works between runs: samplers, log followers, sockets."""

    def start(self) -> None:
        """Called once, before the first run, from the daemon's main thread: starts threads, never blocks."""

    def stop(self, deadline: float) -> None:
        """Called once; returns before the clock's monotonic `deadline` whatever its threads are stuck in."""


Tried = tuple[bool, str]
"""Whether a trial went well, and a line about it."""


@dataclass(frozen=True, slots=True)
class CollectorSpec:
    """One entry of the tuple of collectors. create: takes the validated settings; cheap, no input is read in it.

    trial: what `oomcast check --NAME` does beyond a run, whether the collector is switched on or not; it yields as it
    goes, and raises nothing.
    """

    name: str
    help: str
    settings: type[CollectorSettings]
    metrics: tuple[Metric, ...]
    create: Callable[[Any, Context], Collector]
    trial: Callable[[Any, Context], Iterator[Tried]] | None = None


Outcome = Literal["success", "failure", "timeout", "absent"]
