"""One kill, one count: what the witnesses of the kernel's OOM kills saw, merged into one counter per owner.

No witness sees everything: a cgroup's counter goes away with the cgroup, often before it is read; v2 counters of all
ancestors tell of the same kill; the kernel log leaves out the line with the cgroup in a burst; vmstat knows no names.
Matching single reports by their times cannot be right under load, so reports are only added up: kills.py keeps, for
every cgroup and the host, how many kills there were at least, whoever saw them, and how many have been booked.
A kill that the log names is booked at once, as the log alone knows whose limit it was; one that only an eBPF probe
names waits 2 s for that. A kill only counters know of waits 2 s for its name (3 s where a child's counter may still
explain it), then is booked without limit owner, to the deepest cgroup that counted it. What no cgroup counted and
nobody named for 10 s is unattributed. Names that come later do not count again. The kernel's counters may have the
first victim of a group (memory.oom.group) twice, which only the log shows: without the log such a group counts one
more. A process that ends a cgroup itself (systemd-oomd) raises no kernel counter: counted apart.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from oomcast.clock import Clock
from oomcast.contract import Event
from oomcast.kills import HOST, Booking, Delays, Ledger
from oomcast.metric import Metric, Sample, Series

KILLS = Metric(
    "oomcast_oom_kills_total",
    "counter",
    "Kernel OOM kills by the owner of the victim's cgroup, each counted once whichever sources saw it. "
    "limit_owner: whose memory limit was hit, host when the machine ran out; without the label it is unknown.",
    ("owner", "limit_owner"),
)
LAST_KILL = Metric(
    "oomcast_oom_kill_last_timestamp_seconds",
    "gauge",
    "When the last kernel OOM kill of this owner happened, as far as known: UTC seconds since the epoch.",
    ("owner", "limit_owner"),
    absent="No kill of this owner was seen since the daemon started.",
)
UNATTRIBUTED = Metric(
    "oomcast_oom_kills_unattributed_total",
    "counter",
    "Kernel OOM kills for which no cgroup became known; not contained in oomcast_oom_kills_total.",
)
USERSPACE = Metric(
    "oomcast_userspace_oom_kills_total",
    "counter",
    "Kills by a userspace OOM killer, which no kernel counter shows; not contained in oomcast_oom_kills_total.",
    ("owner", "by"),
    absent="No userspace OOM killer acted since the daemon started.",
)
METRICS: tuple[Metric, ...] = (KILLS, LAST_KILL, UNATTRIBUTED, USERSPACE)

OTHER = "other"
MAX_PAIRS = 500
MAX_KNOWN = 20_000
RECHECK = 60.0  # seconds for which the owner of a known cgroup is not asked for again
FORGET = 10.0  # seconds after which a cgroup that nobody asks for is no longer known; cgroups may come and go in floods
STALE = 3600.0  # seconds after which a pair without kills that nobody asks for makes room for a new one

_VICTIM = ("pid", "comm", "constraint", "limit_cgroup", "anon_bytes", "file_bytes", "shmem_bytes", "uid")


@dataclass(slots=True, eq=False)
class _Count:
    series: Series
    last: Series
    created: float
    known: float  # monotonic: when somebody last asked for it
    value: int = 0
    last_time: float | None = None


@dataclass(slots=True, eq=False)
class _Known:
    """A cgroup whose counter is shown. asked, seen: monotonic, when its owner was asked for, and when it was."""

    count: _Count
    asked: float
    seen: float


class _Counts:
    """The series of one counter by a pair of label values, bounded: what is above is counted as owner `other`."""

    def __init__(self, metric: Metric, clock: Clock) -> None:
        self._metric = metric
        self._clock = clock
        self._counts: dict[tuple[str, str], _Count] = {}
        self._full_until = float("-inf")

    def get(self, owner: str, second: str) -> _Count:
        count = self._counts.get((owner, second))
        if count is None:
            if len(self._counts) >= MAX_PAIRS and owner != OTHER and not self._make_room():
                return self.get(OTHER, "")
            series, last = self._metric.series(owner, second), LAST_KILL.series(owner, second)
            count = _Count(series, last, self._clock.time(), self._clock.monotonic())
            self._counts[owner, second] = count
        return count

    def _make_room(self) -> bool:
        """Drops pairs of owners long gone that never had a kill: nothing is lost with a counter at 0."""
        now = self._clock.monotonic()
        if now < self._full_until:
            return False
        unused = [key for key, count in self._counts.items() if not count.value and count.known < now - STALE]
        for key in unused:
            del self._counts[key]
        self._full_until = now if unused else now + RECHECK
        return bool(unused)

    def samples(self) -> list[Sample]:
        return [Sample(count.series, count.value, count.created) for count in self._counts.values()]

    def last_kills(self) -> list[Sample]:
        return [Sample(c.last, c.last_time) for c in self._counts.values() if c.last_time is not None]


class Reconciler:
    """Takes the reports of all witnesses and keeps the counters. Every method may be called from any thread.

    owner_of: the stable human name of a cgroup path, also of one that is gone. It is called with the lock held, so
    it must be quick and not call back. Should it fail, the path stands in.
    """

    def __init__(
        self, clock: Clock, owner_of: Callable[[str], str], log: logging.Logger, delays: Delays | None = None
    ) -> None:
        self._clock = clock
        self._owner_of = owner_of
        self._log = log
        self._lock = threading.Lock()
        self._ledger = Ledger(delays or Delays())
        self._kills = _Counts(KILLS, clock)
        self._userspace = _Counts(USERSPACE, clock)
        self._unattributed = 0
        self._unattributed_series = UNATTRIBUTED.series()
        self._created = clock.time()
        self._known: dict[tuple[str, str], _Known] = {}
        self._forgot = clock.monotonic()
        self._counted: deque[Event] = deque(maxlen=10_000)
        self._complained: set[str] = set()

    def see(self, events: Iterable[Event]) -> None:
        """Takes reports; kinds that tell of no kill are ignored. A malformed report is logged, once per kind."""
        with self._lock:
            for event in events:
                try:
                    self._take(event)
                except (KeyError, TypeError, ValueError) as error:
                    self._complain(event.kind, "ignored a malformed report %s: %r", event.kind, error)
            self._publish()

    def know(self, cgroup: str, limit_cgroup: str) -> None:
        """Shows the counter of this pair at 0 before the first kill; limit_cgroup "" is the unknown limit.

        Repeat it for cgroups that live on (hourly will do), else newer ones may take the place of their zeros.
        """
        now = self._clock.monotonic()
        known = self._known.get((cgroup, limit_cgroup))
        if known is not None and now < known.asked + RECHECK:
            known.seen = known.count.known = now
            return
        with self._lock:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            count = self._kills.get(self._owner(cgroup), self._owner(limit_cgroup) if limit_cgroup else "")
            count.known = now
            self._known[cgroup, limit_cgroup] = _Known(count, now, now)

    def settle(self) -> list[Event]:
        """Books what has waited long enough; to be called about once a second.

        Returns an `oom_kill_counted` event for everything booked since the last call: one for each named victim,
        otherwise one for several (`kills`). Without an owner: unattributed.
        """
        with self._lock:
            now = self._clock.monotonic()
            self._ledger.settle(now)
            self._publish()
            if now >= self._forgot + FORGET:
                self._forgot = now
                self._known = {key: known for key, known in self._known.items() if known.seen > now - FORGET}
            counted = list(self._counted)
            self._counted.clear()
            return counted

    def samples(self) -> list[Sample]:
        with self._lock:
            return [
                *self._kills.samples(),
                *self._kills.last_kills(),
                Sample(self._unattributed_series, self._unattributed, self._created),
                *self._userspace.samples(),
            ]

    def _take(self, event: Event) -> None:
        fields, now = event.fields, self._clock.monotonic()
        if event.kind == "oom_kill":
            witness = "ebpf" if fields.get("witness") == "ebpf" else "kernel_log"
            cgroup = _path(fields.get("cgroup", ""))
            self._ledger.subtree(HOST, witness, 1, event, now)
            if cgroup:
                self._ledger.own(cgroup, witness, 1, event, now)
        elif event.kind == "oom_kill_repeated":
            self._ledger.repeated(_path(fields.get("cgroup", "")), event, now)
        elif event.kind == "cgroup_oom_kills":
            report = {"own": self._ledger.own, "subtree": self._ledger.subtree}[str(fields["scope"])]
            report(_path(fields["cgroup"], required=True), "cgroup", _number(fields["kills"]), event, now)
        elif event.kind == "host_oom_kills":
            self._ledger.subtree(HOST, "vmstat", _number(fields["kills"]), event, now)
        elif event.kind == "userspace_oom_kill":
            owner = self._owner(_path(fields["cgroup"], required=True))
            self._userspace.get(owner, str(fields["by"])).value += _number(fields["kills"])

    def _publish(self) -> None:
        """Puts what the ledger has booked into the counters."""
        for booking in self._ledger.take():
            report = booking.report
            if booking.path == HOST:
                owner = limit_owner = ""
                self._unattributed += booking.kills
            else:
                owner, limit_owner = self._owner(booking.path), self._limit_owner(booking.name)
                count = self._kills.get(owner, limit_owner)
                count.value += booking.kills
                count.last_time = max(count.last_time or report.time, report.time)
            self._counted.append(_counted(booking, owner, limit_owner))

    def _limit_owner(self, name: Event | None) -> str:
        if name is None:
            return ""
        limit = name.fields.get("limit_cgroup", "")
        if isinstance(limit, str) and limit:
            return self._owner(limit)
        return "host" if name.fields.get("constraint") in ("none", "cpuset", "memory_policy") else ""

    def _owner(self, path: str) -> str:
        try:
            return self._owner_of(path)
        except Exception as error:  # noqa: BLE001 - a kill must be counted whatever its name
            self._complain("owner", "no owner found for %s: %r", path, error)
            return path

    def _complain(self, about: str, message: str, *args: object) -> None:
        if about not in self._complained:
            self._complained.add(about)
            self._log.error(message, *args)


def _path(value: object, *, required: bool = False) -> str:
    if not isinstance(value, str) or (required and not value):
        raise ValueError(f"not a cgroup path: {value!r:.100}")
    return value.rstrip("/") or value[:1]


def _number(value: object) -> int:
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"not a number of kills: {value!r:.100}")
    return value


def _counted(booking: Booking, owner: str, limit_owner: str) -> Event:
    """The event for the timeline."""
    report, name = booking.report, booking.name
    fields: dict[str, str | int | float] = {
        "kills": booking.kills,
        "owner": owner,
        "limit_owner": limit_owner,
        "cgroup": booking.path,
        "witnesses": ",".join(booking.witnesses),
    }
    what = f"{booking.kills} OOM kill{'s' if booking.kills > 1 else ''}"
    if name is not None:
        fields |= {key: name.fields[key] for key in _VICTIM if key in name.fields}
        what = f"OOM kill of {fields.get('comm', '?')} (pid {fields.get('pid', '?')})"
    where = f"in {owner}" if owner else "in no known cgroup"
    whose = f", limit of {limit_owner}" if limit_owner else ""
    return Event("oom_kill_counted", report.time, report.monotonic, f"{what} {where}{whose}", fields)
