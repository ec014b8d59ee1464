"""One Xid, one count: what the kernel's log, NVML and DCGM tell of GPU errors, merged per GPU and code.

No witness sees every error: NVML has no number for some codes and nothing from before it was asked, the kernel's log
can be overrun, DCGM only shows the last code. As in reconcile.py reports are added up, not matched by their times:
each witness has told so many errors of a GPU and code, and the count is the largest of those numbers, which is never
too high. What one missed is not held against what it tells later: it is put level with a count that has not risen for
longer than it takes to tell of an error (xid_pairs.py). A storm that one of them saw from its first error to its last
is counted in full, whatever the others saw of it.

The kernel's log names a GPU by PCI address, which waits for the `gpu_seen` that gives its UUID; after that the error is
counted under the address, and stays there. NVML's report without a number (999) or without a GPU waits longer still:
it counts only if the log printed nothing that it can be.
"""

import logging
import threading
from collections import deque
from collections.abc import Iterable, Mapping

from oomcast.clock import Clock
from oomcast.contract import Event
from oomcast.logs import OnChange
from oomcast.metric import Metric, Sample
from oomcast.xid_pairs import KERNEL_LOG, LATENESS, Counted, Pair, Report

ERRORS = Metric(
    "oomcast_xid_errors_total",
    "counter",
    "Xid errors of the NVIDIA driver, each counted once whichever sources saw it. gpu: the UUID; the PCI address where"
    " none was known; left out where the driver did not tell. xid: 999 is an error without a number.",
    ("gpu", "xid"),
    absent="Until the first, but for the codes that matter most: those are there once the GPU was seen.",
)
LAST = Metric(
    "oomcast_xid_last_timestamp_seconds",
    "gauge",
    "When the last such error happened, as far as known: UTC seconds since the epoch.",
    ("gpu", "xid"),
    absent="No such error was seen since the daemon started.",
)
METRICS: tuple[Metric, ...] = (ERRORS, LAST)

EXPECTED = (48, 63, 64, 74, 79, 94, 95, 119, 120, 140, 154, 168)
"""Codes whose counter starts at 0, so that increase() sees the first error."""

PATIENCE = 10.0  # seconds for which a PCI address waits for its UUID
NEAR: Mapping[str, float] = {**LATENESS, "nvml": 2.0}
"""Seconds at most between a report without a number or a GPU and the line of the log that has them."""

DOUBT = PATIENCE + 1.0  # seconds until such a report counts: by then the log's lines have their UUID, or get none
GATHER = 2.0  # seconds until a counted error goes to the timeline, with what all witnesses know of it
UNNUMBERED = 999
OTHER = "other"
MAX_PAIRS = 500
MAX_GPUS = 100
MAX_WAITING = 1000
MAX_OPEN = 2000  # as many as the timeline keeps

_DETAILS = ("message", "pid", "process", "mig")


class XidReconciler:
    """Takes the reports of all witnesses and keeps the counters. Every method may be called from any thread."""

    def __init__(self, clock: Clock, log: logging.Logger) -> None:
        self._clock = clock
        self._troubles = OnChange(log, clock=clock)
        self._lock = threading.Lock()
        self._pairs: dict[tuple[str, str], Pair] = {}
        self._uuids: dict[str, str] = {}  # by PCI address
        self._waiting: deque[Report] = deque()
        self._doubtful: deque[Report] = deque(maxlen=MAX_WAITING)
        self._open: deque[Counted] = deque()
        self._counted: deque[Event] = deque(maxlen=MAX_OPEN)

    def see(self, events: Iterable[Event]) -> None:
        """Takes reports; kinds that tell of no Xid are ignored. A malformed report is logged, once per kind."""
        with self._lock:
            for event in events:
                try:
                    self._take(event, self._clock.monotonic())
                except (KeyError, TypeError, ValueError) as error:
                    message = f"ignored a malformed report {event.kind}: {error!r:.200}"
                    self._troubles.report(event.kind, "malformed", logging.ERROR, message)

    def settle(self) -> list[Event]:
        """Counts what has waited long enough; to be called about once a second.

        Returns an `xid_counted` event for each error that was counted a moment ago.
        """
        with self._lock:
            now = self._clock.monotonic()
            while self._waiting and now - self._waiting[0].at >= PATIENCE:
                self._count(self._waiting.popleft(), now)
            while self._doubtful and now - self._doubtful[0].at >= DOUBT:
                self._count(self._doubtful.popleft(), now)
            while self._open and now - self._open[0].at >= GATHER:
                self._close_oldest()
            counted = list(self._counted)
            self._counted.clear()
            return counted

    def samples(self) -> list[Sample]:
        with self._lock:
            pairs = self._pairs.values()
            return [
                # Without the created time: a dozen zeros for each GPU are series enough.
                *(Sample(pair.series, pair.total) for pair in pairs),
                *(Sample(pair.last, pair.last_time) for pair in pairs if pair.last_time is not None),
            ]

    def _take(self, event: Event, now: float) -> None:
        fields = event.fields
        if event.kind == "gpu_seen":
            self._know(_name(fields["gpu"]), str(fields.get("pci", "")), now)
        elif event.kind == "xid":
            witness, xid = str(fields.get("witness", KERNEL_LOG)), _code(fields["xid"])
            if witness not in LATENESS:
                raise ValueError(f"no such witness: {witness:.100}")
            if witness == KERNEL_LOG:
                self._take_line(Report(_name(fields["pci"]), xid, witness, event, now))
            else:
                self._take_number(Report(_name(fields["gpu"], required=False), xid, witness, event, now))

    def _take_line(self, line: Report) -> None:
        gpu = self._uuids.get(line.gpu)
        if gpu is not None:
            self._count(line._replace(gpu=gpu), line.at)
            return
        self._waiting.append(line)
        if len(self._waiting) > MAX_WAITING:
            self._count(self._waiting.popleft(), line.at)

    def _take_number(self, report: Report) -> None:
        if report.gpu and report.xid != UNNUMBERED:
            self._count(report, report.at)
        elif not any(_explains(pair.logged, *key, report) for key, pair in self._pairs.items()):
            self._doubtful.append(report)

    def _know(self, gpu: str, pci: str, now: float) -> None:
        for xid in EXPECTED:
            self._pair(gpu, str(xid))
        if not pci:
            return
        if pci not in self._uuids and len(self._uuids) >= MAX_GPUS:
            raise ValueError(f"more than {MAX_GPUS} PCI addresses")
        self._uuids[_name(pci)] = gpu
        waiting, self._waiting = self._waiting, deque()
        for line in waiting:
            if line.gpu == pci:
                self._count(line._replace(gpu=gpu), now)
            else:
                self._waiting.append(line)

    def _count(self, report: Report, now: float) -> None:
        pair = self._pair(report.gpu, str(report.xid))
        if report.witness == KERNEL_LOG:
            printed = report.event.monotonic
            pair.logged = max(pair.logged, printed)
            kept = (other for other in self._doubtful if not _explains(printed, report.gpu, str(report.xid), other))
            self._doubtful = deque(kept, MAX_WAITING)
        counted = pair.tell(report, now)
        if counted is not None:
            self._open.append(counted)
            if len(self._open) > MAX_OPEN:
                self._close_oldest()

    def _pair(self, gpu: str, xid: str) -> Pair:
        key = gpu, xid
        if key not in self._pairs and len(self._pairs) >= MAX_PAIRS:
            key = gpu, OTHER
        if key not in self._pairs and len(self._pairs) >= MAX_PAIRS + MAX_GPUS:
            key = OTHER, OTHER
        if key not in self._pairs:
            self._pairs[key] = Pair(ERRORS.series_of(key), LAST.series_of(key))
        return self._pairs[key]

    def _close_oldest(self) -> None:
        """All pairs' errors are in one order, so the oldest of all is the oldest of its pair."""
        counted = self._open.popleft()
        counted.pair.open.popleft()
        self._counted.append(self._event(counted))

    def _event(self, counted: Counted) -> Event:
        gpu, xid, _, event, _ = counted.report
        fields: dict[str, str | int | float] = {
            "gpu": gpu,
            "xid": xid,
            "witnesses": ",".join(sorted(counted.witnesses)),
        }
        pci = event.fields.get("pci") or next((pci for pci, uuid in self._uuids.items() if uuid == gpu), "")
        if pci:
            fields["pci"] = pci
        fields |= {name: event.fields[name] for name in _DETAILS if event.fields.get(name)}
        return Event("xid_counted", event.time, event.monotonic, f"Xid {xid} on GPU {gpu or 'unknown'}", fields)


def _explains(printed: float, gpu: str, xid: str, doubtful: Report) -> bool:
    """Whether a line of the log, printed at that monotonic time, can be what the driver's library could not name."""
    return (
        abs(printed - doubtful.event.monotonic) <= NEAR[doubtful.witness]
        and doubtful.gpu in (gpu, "")
        and (doubtful.xid == UNNUMBERED or xid in (str(doubtful.xid), OTHER))
    )


def _name(value: object, *, required: bool = True) -> str:
    if not isinstance(value, str) or len(value) > 100 or (required and not value):
        raise ValueError(f"not the name of a GPU: {value!r:.100}")
    return value


def _code(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1_000_000:
        raise ValueError(f"not the number of an Xid: {value!r:.100}")
    return value
