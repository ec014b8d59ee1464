"""APScheduler, wired so that one collector can never delay another, nor the end of the process."""

import logging
import threading
from datetime import UTC, datetime, timedelta

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
_STOP_SECONDS = 0.5


class Scheduler:
    """Drives each runner on its interval and its own single thread, all on one phase.

    One phase costs a fifth of staggered jobs (one wake-up serves all). Each executor has one thread, so a hung
    collector blocks itself only; its next runs are skipped and counted, never queued.
    """

    def __init__(self, clock: Clock, log: logging.Logger) -> None:
        self._runners: dict[str, tuple[Runner, float]] = {}
        self._clock = clock
        self._log = log
        self._beat = clock.monotonic()
        self._offset = clock.time() - clock.monotonic()
        self._phase = self._now()
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._scheduler = BackgroundScheduler(
            # The heartbeat runs in the scheduler's own thread: it is the age of that very loop.
            executors={_BEAT: DebugExecutor()},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            timezone=UTC,
        )
        self._scheduler.add_listener(self._heard, EVENT_JOB_MAX_INSTANCES | EVENT_JOB_ERROR)
        self._scheduler.add_job(self._mark, _every(_BEAT_SECONDS, self._phase), id=_BEAT, executor=_BEAT)

    def add(self, runner: Runner, interval: float) -> None:
        """Runs `runner` every `interval` seconds from now on, on the common phase; its first run is due at once."""
        name = runner.name
        self._runners[name] = runner, interval
        self._pools[name] = ThreadPoolExecutor(1)
        self._scheduler.add_executor(self._pools[name], name)
        # The trigger counts on from the first run's time, not from its start: that time has to be on the phase.
        step = timedelta(seconds=interval)
        latest = self._phase + (self._now() - self._phase) // step * step
        trigger = _every(interval, self._phase)
        self._scheduler.add_job(runner.run, trigger, id=name, executor=name, next_run_time=latest)

    def remove(self, name: str) -> None:
        """No further run of it; one that goes on is not waited for."""
        del self._runners[name]
        self._scheduler.remove_job(name)
        self._scheduler.remove_executor(name, shutdown=False)
        self._pools.pop(name).shutdown(wait=False)

    def start(self) -> None:
        """Starts the loop."""
        self._scheduler.start()

    def tick(self) -> None:
        """To be called about once a second from outside the loop: gives up overdue runs, and starts the schedule
        anew after the wall clock jumped, since APScheduler plans on it and would sleep through a jump back."""
        offset = self._clock.time() - self._clock.monotonic()
        jump = offset - self._offset
        self._offset = offset
        if abs(jump) > _JUMP_SECONDS:
            self._log.warning("the wall clock jumped; the schedule starts anew", extra={"seconds": round(jump, 3)})
            self.restart()
        for runner, _ in list(self._runners.values()):
            runner.expire()

    def restart(self) -> None:
        """Every runner's next run is due now, and its interval counts from now on."""
        now = self._phase = self._now()
        for job in self._scheduler.get_jobs():
            interval = self._runners[job.id][1] if job.id in self._runners else _BEAT_SECONDS
            job.modify(trigger=_every(interval, now), next_run_time=now)

    def age(self) -> float:
        """Seconds since the scheduler's loop last came by."""
        return self._clock.monotonic() - self._beat

    def stop(self) -> None:
        """Ends the schedule without waiting for runs; a hung one keeps its thread until the process ends."""
        if not self._scheduler.running:
            return
        # It joins the loop's thread: should that be stuck, the collectors still have to be stopped.
        ending = threading.Thread(target=self._scheduler.shutdown, kwargs={"wait": False}, daemon=True)
        ending.start()
        ending.join(_STOP_SECONDS)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.time(), UTC)

    def _mark(self) -> None:
        self._beat = self._clock.monotonic()

    def _heard(self, event: JobEvent) -> None:
        if event.job_id not in self._runners:
            return  # just removed
        if event.code == EVENT_JOB_MAX_INSTANCES:
            self._runners[event.job_id][0].skipped()
        else:
            self._log.error("a job failed outside its collector", extra={"collector": event.job_id})


def _every(seconds: float, start: datetime) -> IntervalTrigger:
    # timedelta arguments: fractions of a second are kept, and 0 does not silently mean 1.
    return IntervalTrigger(seconds=seconds, start_date=start, timezone=UTC)
