"""What the daemon says about itself: /metrics, /-/healthy, /-/ready and the landing page read it."""

import platform
from collections.abc import Callable, Iterable, Sequence

import psutil

from oomcast import __version__
from oomcast.chores import Chores
from oomcast.clock import Clock
from oomcast.contract import Roots
from oomcast.metric import Metric, Sample
from oomcast.runner import Runner
from oomcast.scheduler import Scheduler
from oomcast.store import Store

BUILD = Metric("oomcast_build_info", "info", "Version of the daemon and of its Python.", ("version", "python"))
UP = Metric(
    "oomcast_collector_up",
    "gauge",
    "1 if the collector's last run succeeded, 0 if it failed or was given up as overdue.",
    ("collector",),
    absent="before the first run, and where what the collector reads is not on this machine",
)
DURATION = Metric(
    "oomcast_collector_duration_seconds",
    "gauge",
    "How long the collector's last finished run took.",
    ("collector",),
    absent="before the first finished run",
)
LAST_SUCCESS = Metric(
    "oomcast_collector_last_success_timestamp_seconds",
    "gauge",
    "When the collector's last successful run ended, in seconds since the epoch.",
    ("collector",),
    absent="before the first success",
)
RUNS = Metric(
    "oomcast_collector_runs_total",
    "counter",
    "Runs by outcome: success, failure, timeout (given up as overdue), absent (not on this machine).",
    ("collector", "outcome"),
)
OVERRUNS = Metric(
    "oomcast_collector_overruns_total",
    "counter",
    "Runs left out since the one before had not ended.",
    ("collector",),
)
PERIOD = Metric(
    "oomcast_collector_period_seconds",
    "gauge",
    "Time between the starts of the collector's last two runs.",
    ("collector",),
    absent="before the second run",
)
GAP = Metric(
    "oomcast_collector_largest_gap_seconds",
    "gauge",
    "Largest time between the starts of two runs, over the last 5 to 10 minutes.",
    ("collector",),
    absent="before the second run",
)
DROPPED = Metric(
    "oomcast_series_dropped",
    "gauge",
    "Series that a metric's cap keeps off /metrics at present.",
    ("metric",),
    absent="for metrics within their cap",
)
LOOP_AGE = Metric("oomcast_scheduler_loop_age_seconds", "gauge", "Time since the scheduler's loop last came by.")
CPU = Metric("process_cpu_seconds_total", "counter", "User and system CPU time of the daemon.")
RESIDENT = Metric("process_resident_memory_bytes", "gauge", "Resident memory of the daemon.")
VIRTUAL = Metric("process_virtual_memory_bytes", "gauge", "Virtual memory of the daemon.")
OPEN_FDS = Metric("process_open_fds", "gauge", "Open file descriptors of the daemon.")
MAX_FDS = Metric("process_max_fds", "gauge", "Most file descriptors that the daemon may open.")
START = Metric("process_start_time_seconds", "gauge", "When the daemon started, in seconds since the epoch.")
METRICS = (
    BUILD, UP, DURATION, LAST_SUCCESS, RUNS, OVERRUNS, PERIOD, GAP, DROPPED, LOOP_AGE,
    CPU, RESIDENT, VIRTUAL, OPEN_FDS, MAX_FDS, START,
)  # fmt: skip

_STALE = 10.0
"""Seconds: the loop and the chores come by every second; ten of them missed is no hiccup."""


class Health:
    """Facts about the running daemon, from its runners and its scheduler."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        scheduler: Scheduler,
        chores: Chores,
        runners: Callable[[], Sequence[Runner]],
    ) -> None:
        self._store = store
        self._scheduler = scheduler
        self._chores = chores
        self._clock = clock
        self._runners = runners
        self._started = clock.time()
        self._process = psutil.Process()

    def healthy(self) -> tuple[bool, str]:
        """Whether the scheduler's loop is alive and the daemon's own work gets done, and which of them is late."""
        age = self._scheduler.age()
        undone, chore = self._chores.undone()
        if undone >= _STALE and age < _STALE:
            return False, f"{chore} has not been done for {undone:.1f} s"
        return age < _STALE, f"the scheduler's loop came by {age:.1f} s ago"

    def ready(self) -> tuple[bool, str]:
        """Whether every collector has ended its first run, one way or the other."""
        waiting = [runner.name for runner in self._runners() if runner.state is None]
        return not waiting, f"waiting for the first run of {', '.join(waiting)}" if waiting else "all collectors ran"

    def samples(self) -> list[Sample]:
        found = [Sample(BUILD.series(__version__, platform.python_version()), 1)]
        for runner in self._runners():
            found += _collector(runner)
        found += [Sample(DROPPED.series(metric.name), count) for metric, count in self._store.dropped().items()]
        found.append(Sample(LOOP_AGE.series(), round(self._scheduler.age(), 3)))
        found += self._chores.samples()
        found += _process(self._process, self._started)
        return found


def _collector(runner: Runner) -> Iterable[Sample]:
    name = runner.name
    if runner.state not in (None, "absent"):
        yield Sample(UP.series(name), int(runner.state == "success"))
    for metric, value in (
        (DURATION, runner.duration),
        (LAST_SUCCESS, runner.last_success),
        (PERIOD, runner.period()),
        (GAP, runner.largest_gap()),
    ):
        if value is not None:
            yield Sample(metric.series(name), value)
    for outcome, count in runner.outcomes.items():
        yield Sample(RUNS.series(name, outcome), count)
    yield Sample(OVERRUNS.series(name), runner.overruns)


def _process(process: psutil.Process, started: float) -> list[Sample]:
    fds = Roots().proc / "self" / "fd"
    with process.oneshot():
        times, memory = process.cpu_times(), process.memory_info()
    return [
        Sample(CPU.series(), times.user + times.system),
        Sample(RESIDENT.series(), memory.rss),
        Sample(VIRTUAL.series(), memory.vms),
        # Since Linux 6.2 the size of the directory is its number of entries; thousands need not be listed.
        Sample(OPEN_FDS.series(), fds.stat().st_size or process.num_fds()),
        Sample(MAX_FDS.series(), process.rlimit(psutil.RLIMIT_NOFILE)[0]),
        Sample(START.series(), started),
    ]
