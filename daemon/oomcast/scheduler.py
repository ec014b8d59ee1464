"""APScheduler, wired so that one collector can never delay another, nor the end of the process."""

import logging
from collections.abc import Iterable
from datetime import UTC, datetime

from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_MAX_INSTANCES, JobEvent
from apscheduler.executors.debug import DebugExecutor
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

from oomcast.clock import Clock
from oomcast.runner import Runner

_BEAT = "heartbeat"
_BEAT_SECONDS = 1.0
_JUMP_SECONDS = 1.0


class Scheduler:
    """Drives each runner on its interval and its own single thread, all on one phase.

    One phase costs a fifth of staggered jobs (one wake-up serves all). Each executor has one thread, so a hung
    collector blocks itself only; its next runs are skipped and counted, never queued.
    """

    def __init__(self, runners: Iterable[tuple[Runner, float]], clock: Clock, log: logging.Logger) -> None:
        self._runners = {runner.name: (runner, interval) for runner, interval in runners}
        self._clock = clock
        self._log = log
        self._beat = clock.monotonic()
        self._offset = clock.time() - clock.monotonic()
        executors = {name: ThreadPoolExecutor(1) for name in self._runners}
        self._scheduler = BackgroundScheduler(
            # The heartbeat runs in the scheduler's own thread: it is the age of that very loop.
            executors=executors | {_BEAT: DebugExecutor()},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            timezone=UTC,
        )
        self._scheduler.add_listener(self._heard, EVENT_JOB_MAX_INSTANCES | EVENT_JOB_ERROR)

    def start(self) -> None:
        """Starts the loop; every collector's first run is due at once."""
        now = self._now()
        for name, (runner, interval) in self._runners.items():
            self._scheduler.add_job(runner.run, _every(interval, now), id=name, executor=name, next_run_time=now)
        self._scheduler.add_job(self._mark, _every(_BEAT_SECONDS, now), id=_BEAT, executor=_BEAT, next_run_time=now)
        self._scheduler.start()

    def tick(self) -> None:
        """To be called about once a second from outside the loop: gives up overdue runs, and starts the schedule
        anew after the wall clock jumped, since APScheduler plans on it and would sleep through a jump back."""
        offset = self._clock.time() - self._clock.monotonic()
        jump = offset - self._offset
        self._offset = offset
        if abs(jump) > _JUMP_SECONDS:
            self._log.warning("the wall clock jumped; the schedule starts anew", extra={"seconds": round(jump, 3)})
            now = self._now()
            for job in self._scheduler.get_jobs():
                interval = self._runners[job.id][1] if job.id in self._runners else _BEAT_SECONDS
                job.modify(trigger=_every(interval, now), next_run_time=now)
        for runner, _ in self._runners.values():
            runner.expire()

    def age(self) -> float:
        """Seconds since the scheduler's loop last came by."""
        return self._clock.monotonic() - self._beat

    def stop(self) -> None:
        """Ends the schedule without waiting for runs; a hung one keeps its thread until the process ends."""
        self._scheduler.shutdown(wait=False)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.time(), UTC)

    def _mark(self) -> None:
        self._beat = self._clock.monotonic()

    def _heard(self, event: JobEvent) -> None:
        if event.job_id not in self._runners:
            return
        if event.code == EVENT_JOB_MAX_INSTANCES:
            self._runners[event.job_id][0].skipped()
        else:
            self._log.error("a job failed outside its collector", extra={"collector": event.job_id})


def _every(seconds: float, start: datetime) -> IntervalTrigger:
    # timedelta arguments: fractions of a second are kept, and 0 does not silently mean 1.
    return IntervalTrigger(seconds=seconds, start_date=start, timezone=UTC)
