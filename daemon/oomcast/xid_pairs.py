"""The arithmetic of xids.py: what each witness told of one GPU and code, and the counted errors it belongs to.

Invariant, for a witness that tells of an error within LATENESS or never: told[w] plus the errors that w has yet to tell
is at most the number of errors there were. Putting it level with a count that has not risen for that long keeps it:
w has nothing to tell any more of what made up that count. So the largest told[w] is a lower bound of the truth.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from oomcast.contract import Event
from oomcast.metric import Series

KERNEL_LOG = "kernel_log"
LATENESS: Mapping[str, float] = {KERNEL_LOG: 10.0, "nvml": 10.0, "dcgm": 600.0}
"""Seconds within which a witness tells of an error, or never; DCGM after its exporter's period and ours."""


class Report(NamedTuple):
    """gpu: UUID, PCI address, or "" where the driver does not tell. at: monotonic, when it was heard."""

    gpu: str
    xid: int
    witness: str
    event: Event
    at: float


@dataclass(slots=True, eq=False)
class Counted:
    """An error on its way to the timeline. report: the log's where there is one, else the first."""

    pair: "Pair"
    report: Report
    at: float
    witnesses: set[str] = field(default_factory=set)

    def join(self, report: Report) -> None:
        # Of a pair that stands for several codes the witnesses may tell in different orders.
        if (report.gpu, report.xid) == (self.report.gpu, self.report.xid):
            self.witnesses.add(report.witness)
            if report.witness == KERNEL_LOG:
                self.report = report


@dataclass(slots=True, eq=False)
class Pair:
    """The count of one GPU and code. risen: monotonic time of the last error that was news; logged: of the newest line
    in the kernel's log. last_time: UTC seconds of the last error, None before the first. open: the newest of the
    counted errors, which still gather their witnesses."""

    series: Series
    last: Series
    total: int = 0
    told: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LATENESS, 0))
    risen: float = float("-inf")
    logged: float = float("-inf")
    last_time: float | None = None
    open: deque[Counted] = field(default_factory=deque)

    def tell(self, report: Report, now: float) -> Counted | None:
        """One more error that a witness saw: what was counted for it, None if it was counted before."""
        for witness, lateness in LATENESS.items():
            if now - self.risen > lateness:
                self.told[witness] = self.total
        self.told[report.witness] += 1
        counted = None
        if self.told[report.witness] > self.total:
            self.total, self.risen = self.total + 1, now
            self.last_time = max(self.last_time or report.event.time, report.event.time)
            counted = Counted(self, report, now)
            self.open.append(counted)
        place = len(self.open) - 1 - (self.total - self.told[report.witness])
        if place >= 0:
            self.open[place].join(report)
        return counted
