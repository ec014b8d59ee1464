"""What a record of the kernel means: counts of kills, crashes and Xids, and the events that name them."""

import threading
from collections.abc import Callable
from typing import Final

from oomcast.clock import Clock
from oomcast.contract import Event
from oomcast.metric import Metric, Sample, Series
from oomcast_collectors.kernel_log import metrics
from oomcast_collectors.kernel_log.crash import Crash, Xid, parse_crash, parse_xid
from oomcast_collectors.kernel_log.join import OomJoiner, OomKill
from oomcast_collectors.kernel_log.record import Record

_CLOCKS_AGREE = 1.0  # seconds
_SAME_CRASH_USEC = 1_000_000
_MODULES = 100
_XIDS = 1000
_OTHER = "other"

_Fields = dict[str, str | int | float]


class Interpreter:
    """Told of records by the follower's thread, asked for samples by the collector's.

    push: is given each event at once. cgroup_of: as in OomJoiner.
    """

    def __init__(self, clock: Clock, push: Callable[[Event], None], cgroup_of: Callable[[int, str], str]) -> None:
        self._clock: Final = clock
        self._push: Final = push
        self._created: Final = clock.time()
        self._joiner: Final = OomJoiner(cgroup_of)
        self._last_crash: tuple[str, int] | None = None
        self._lock: Final = threading.Lock()
        self._kills = LabelledCounter(metrics.OOM_KILLS, 1)
        self._segfaults = LabelledCounter(metrics.SEGFAULTS, _MODULES)
        self._xids = LabelledCounter(metrics.XIDS, _XIDS)
        # What can be known to happen is there at 0, so that the first time is an increase.
        self._kills.add(amount=0)
        self._segfaults.add("", amount=0)

    def samples(self) -> list[Sample]:
        with self._lock:
            return [s for c in (self._kills, self._segfaults, self._xids) for s in c.samples(self._created)]

    def gap(self) -> None:
        self._joiner.reset()

    def record(self, record: Record) -> None:
        text = record.text
        kill = self._joiner.feed(text, record.usec)
        if kill is not None:
            self._on_kill(kill, record)
        elif (crash := parse_crash(text)) is not None:
            self._on_crash(crash, record)
        elif (xid := parse_xid(text)) is not None:
            self._on_xid(xid, record)

    def _on_kill(self, kill: OomKill, record: Record) -> None:
        killed = kill.killed
        self._count(self._kills)
        if kill.repeated:
            # It died once, but the kernel's own counters have it twice now.
            repeated: _Fields = {"pid": killed.pid, "comm": killed.comm, "cgroup": kill.cgroup}
            self._emit("oom_kill_repeated", record, f"{killed.comm}[{killed.pid}] was counted twice", repeated)
            return
        fields: _Fields = {
            "pid": killed.pid,
            "comm": killed.comm,
            "cgroup": kill.cgroup,
            "limit_cgroup": kill.limit_cgroup,
            "constraint": kill.constraint,
        }
        for name in ("anon_bytes", "file_bytes", "shmem_bytes", "uid", "oom_score_adj"):
            value: int | None = getattr(killed, name)
            if value is not None:
                fields[name] = value
        where = f" in {kill.cgroup}" if kill.cgroup else ""
        limit = f" at the limit of {kill.limit_cgroup}" if kill.limit_cgroup else ""
        self._emit("oom_kill", record, f"OOM kill of {killed.comm}[{killed.pid}]{where}{limit}", fields)

    def _on_crash(self, crash: Crash, record: Record) -> None:
        last = self._last_crash
        if crash.signalled and last and last[0] == crash.comm and record.usec - last[1] <= _SAME_CRASH_USEC:
            return
        self._last_crash = (crash.comm, record.usec)
        self._count(self._segfaults, crash.module)
        fields: _Fields = {"comm": crash.comm, "cause": crash.cause, "module": crash.module}
        if crash.pid is not None:
            fields["pid"] = crash.pid
        fields |= {name: value for name, value in (("address", crash.address), ("ip", crash.ip)) if value}
        task = crash.comm if crash.pid is None else f"{crash.comm}[{crash.pid}]"
        module = f" in {crash.module}" if crash.module else ""
        self._emit("segfault", record, f"{task} died of {crash.cause}{module}", fields)

    def _on_xid(self, xid: Xid, record: Record) -> None:
        self._count(self._xids, xid.pci, str(xid.xid))
        fields: _Fields = {"pci": xid.pci, "xid": xid.xid, "message": xid.message}
        if xid.pid is not None:
            fields["pid"] = xid.pid
        fields |= {name: value for name, value in (("process", xid.process), ("mig", xid.mig)) if value}
        self._emit("xid", record, f"Xid {xid.xid} on GPU {xid.pci}: {xid.message}", fields)

    def _count(self, counter: "LabelledCounter", *labels: str) -> None:
        with self._lock:
            counter.add(*labels)

    def _emit(self, kind: str, record: Record, summary: str, fields: _Fields) -> None:
        time, monotonic = self._when(record.usec)
        self._push(Event(kind, time, monotonic, printable(summary), fields))

    def _when(self, usec: int) -> tuple[float, float]:
        """(UTC seconds, monotonic seconds) of a record. The kernel stamps it with a clock of its own, near the
        monotonic one: where the two disagree, or the record waited for long, the moment of reading is the better."""
        time, monotonic = self._clock.time(), self._clock.monotonic()
        age = monotonic - usec / 1e6
        if abs(age) > _CLOCKS_AGREE:
            return time, monotonic
        age = max(0.0, age)
        return time - age, monotonic - age


class LabelledCounter:
    """Counts by label values; from `limit` of them on, new ones count as "other"."""

    def __init__(self, metric: Metric, limit: int) -> None:
        self._metric = metric
        self._limit = limit
        self._counts: dict[tuple[str, ...], int] = {}
        self._series: dict[tuple[str, ...], Series] = {}

    def add(self, *labels: str, amount: int = 1) -> None:
        if labels not in self._counts and len(self._counts) >= self._limit:
            labels = tuple(_OTHER for _ in labels)
        if labels not in self._counts:
            self._series[labels] = self._metric.series(*labels)
        self._counts[labels] = self._counts.get(labels, 0) + amount

    def samples(self, created: float) -> list[Sample]:
        return [Sample(self._series[labels], count, created) for labels, count in self._counts.items()]


def printable(text: str) -> str:
    """Names are chosen by whoever runs there: no line break or terminal escape of theirs reaches a log."""
    return "".join(c if c.isprintable() else "?" for c in text)
