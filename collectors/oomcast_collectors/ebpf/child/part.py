"""What the child is made of: the contract between its loop and the user-space side of one probe."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from oomcast.clock import Clock
from oomcast.contract import Event
from oomcast_collectors.ebpf.child.bcc import Bcc
from oomcast_collectors.ebpf.child.program import Program
from oomcast_collectors.ebpf.settings import EbpfSettings
from oomcast_collectors.ebpf.wire import Row

if TYPE_CHECKING:
    from oomcast_collectors.ebpf.child.attacher import Attacher
    from oomcast_collectors.ebpf.child.events import Events
    from oomcast_collectors.ebpf.child.symbols.symbols import Symbols
    from oomcast_collectors.ebpf.child.targets import Targets


@dataclass(frozen=True, slots=True)
class Process:
    """A target. name: the value of the label `process`. start: clock ticks since boot; with the pid its identity.
    cgroup: its path in the hierarchy that accounts memory, "" unknown. parent: of a follower, the target it was forked
    from, else 0."""

    pid: int
    start: int
    name: str
    comm: str
    cgroup: str
    parent: int = 0


@dataclass(frozen=True, slots=True)
class Tools:
    """What parts are given. tell: hands an event to the daemon at once."""

    bcc: Bcc
    settings: EbpfSettings
    clock: Clock
    log: logging.Logger
    proc: str
    events: "Events"
    targets: "Targets"
    attacher: "Attacher"
    symbols: "Symbols"
    tell: Callable[[Event], None]


class Part(Protocol):
    """The user-space side of one probe. All calls come from the child's one thread."""

    def joined(self, process: Process) -> None:
        """A process became a target, or executes another program now; called before probes are attached to it."""

    def left(self, process: Process) -> None:
        """It ended, executes another program, or is a target no more; called after its probes are detached."""

    def tick(self, now: float) -> None:
        """About ten times a second; now: monotonic."""

    def rows(self) -> Iterator[Row]:
        """The series as they stand; counters count since the part was made and outlive the processes."""

    def close(self) -> None:
        """Before the program is taken out."""


Maker = Callable[[Program, Tools], Part]
