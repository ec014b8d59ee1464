"""OOM kills, crashes and GPU errors as the kernel prints them, followed in /dev/kmsg from the start of the daemon on.

It names the victim that the cgroups' counters only count. Only records that the kernel wrote are believed.
"""

import contextlib
from typing import Annotated

from pydantic import Field

from oomcast.contract import CollectorSettings, CollectorSpec, Context, Event, Facts, NotPresent
from oomcast.metric import Sample
from oomcast_collectors.kernel_log import metrics
from oomcast_collectors.kernel_log.follow import Follower, Tally, open_log
from oomcast_collectors.kernel_log.interpret import Interpreter
from oomcast_collectors.kernel_log.victim import victim_cgroup


class KernelLogSettings(CollectorSettings):
    """Events arrive at once whatever the interval; it only decides how fresh the counters are."""

    interval: Annotated[float, Field(ge=0.2, le=3600)] = Field(5.0, description="seconds between two runs")


class KernelLogError(Exception):
    """The log was followed and no longer is."""


class KernelLogCollector:
    """A Watcher. Between its runs a thread reads the log and pushes what it finds."""

    def __init__(self, context: Context) -> None:
        proc = context.roots.proc
        self._path = context.roots.dev / "kmsg"
        self._context = context
        self._created = context.clock.time()
        self._tally = Tally()
        reading = (metrics.RECORDS, metrics.IGNORED, metrics.MALFORMED, metrics.OVERRUNS, metrics.LOST)
        self._series = tuple(metric.series() for metric in reading)
        self._interpreter = Interpreter(context.clock, self._push, lambda pid, comm: victim_cgroup(proc, pid, comm))
        self._follower: Follower | None = None
        self._stopped = False

    def start(self) -> None:
        # The first run tries again, and says why it fails in the place where that is reported.
        with contextlib.suppress(NotPresent, OSError):
            self._follow()

    def stop(self, deadline: float) -> None:
        self._stopped = True
        if self._follower is not None:
            self._follower.stop(deadline - self._context.clock.monotonic())
            self._follower = None

    def collect(self) -> Facts:
        """The counters. Raises NotPresent without a readable log, KernelLogError once after the thread has died."""
        if self._follower is not None and (failure := self._follower.failure) is not None:
            self._follower.stop(1.0)
            self._follower = None
            # Again at once: what is printed until the next run would be missed as well.
            with contextlib.suppress(NotPresent, OSError):
                self._follow()
            raise KernelLogError(f"{self._path}: {failure}") from failure
        if self._follower is None and not self._stopped:
            self._follow()
        return Facts(samples=[*self._interpreter.samples(), *self._reading()])

    def _follow(self) -> None:
        fd = open_log(self._path)
        self._follower = Follower(fd, self._tally, self._interpreter, self._context.log)
        self._follower.start()

    def _reading(self) -> list[Sample]:
        tally = self._tally
        counts = (tally.records, tally.ignored, tally.malformed, tally.overruns, tally.lost)
        return [Sample(series, n, self._created) for series, n in zip(self._series, counts, strict=True)]

    def _push(self, event: Event) -> None:
        self._context.push(Facts(events=[event]))


SPEC = CollectorSpec(
    name="kernel_log",
    help="OOM kills, segmentation faults and GPU Xids from the kernel's log (/dev/kmsg)",
    settings=KernelLogSettings,
    metrics=metrics.METRICS,
    create=lambda settings, context: KernelLogCollector(context),
)
