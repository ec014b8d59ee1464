import logging
import os
import resource
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from fakes import FakeClock
from oomcast import __version__
from oomcast.chores import Chores
from oomcast.clock import SystemClock
from oomcast.contract import Event, Facts
from oomcast.core import CORE_METRICS
from oomcast.health import Health
from oomcast.metric import Metric, Sample
from oomcast.runner import Runner
from oomcast.scheduler import Scheduler
from oomcast.store import Store

LOG = logging.getLogger("oomcast.test")
SMALL = Metric("oomcast_test_small", "gauge", "A test's.", ("n",), max_series=2)


class Failing:
    def collect(self) -> Facts:
        raise OSError("no")


class Fine:
    def collect(self) -> Facts:
        return Facts()


class Nowhere:
    def accept(self, source: str, facts: Facts, began: float) -> None:
        pass

    def note(self, events: Sequence[Event]) -> None:
        raise AssertionError("no run is late here")

    def withdraw(self, source: str) -> None:
        pass


def made(clock: FakeClock, *runners: Runner) -> tuple[Health, Store, Chores]:
    store = Store([*CORE_METRICS, SMALL])
    chores = Chores({"schedule": lambda: None}, clock, LOG)
    return Health(store, clock, Scheduler(clock, LOG), chores, lambda: runners), store, chores


def values(health: Health) -> dict[str, float]:
    return {sample.series.head.strip(): float(sample.value) for sample in health.samples()}  # type: ignore[arg-type]


def collectors(health: Health) -> dict[str, float]:
    return {name: value for name, value in values(health).items() if name.startswith("oomcast_collector_")}


def test_a_collector_that_never_ran_has_its_counters_only() -> None:
    clock = FakeClock()
    health, _, _ = made(clock, Runner("a", Fine(), 5, Nowhere(), clock, LOG))
    assert collectors(health) == {
        'oomcast_collector_runs_total{collector="a",outcome="success"}': 0,
        'oomcast_collector_runs_total{collector="a",outcome="failure"}': 0,
        'oomcast_collector_runs_total{collector="a",outcome="timeout"}': 0,
        'oomcast_collector_runs_total{collector="a",outcome="absent"}': 0,
        'oomcast_collector_overruns_total{collector="a"}': 0,
    }
    assert health.ready() == (False, "waiting for the first run of a")


def test_what_a_run_leaves_behind() -> None:
    clock = FakeClock()
    fine = Runner("fine", Fine(), 5, Nowhere(), clock, LOG)
    failing = Runner("failing", Failing(), 5, Nowhere(), clock, LOG)
    health, _, _ = made(clock, fine, failing)
    for runner in (fine, failing):
        runner.run()
        clock.advance(2)
        runner.run()
    fine.skipped()
    found = collectors(health)
    assert found['oomcast_collector_up{collector="fine"}'] == 1
    assert found['oomcast_collector_up{collector="failing"}'] == 0
    assert found['oomcast_collector_runs_total{collector="failing",outcome="failure"}'] == 2
    assert found['oomcast_collector_last_success_timestamp_seconds{collector="fine"}'] == 1_700_000_002
    assert 'oomcast_collector_last_success_timestamp_seconds{collector="failing"}' not in found
    assert found['oomcast_collector_period_seconds{collector="fine"}'] == 2
    assert found['oomcast_collector_largest_gap_seconds{collector="fine"}'] == 2
    assert found['oomcast_collector_duration_seconds{collector="failing"}'] == 0
    assert found['oomcast_collector_overruns_total{collector="fine"}'] == 1
    assert health.ready() == (True, "all collectors ran")


def test_what_a_cap_keeps_out_is_counted() -> None:
    health, store, _ = made(FakeClock())
    store.put("test", [Sample(SMALL.series(str(n)), n) for n in range(5)])
    assert values(health)['oomcast_series_dropped{metric="oomcast_test_small"}'] == 3
    store.put("test", ())
    assert 'oomcast_series_dropped{metric="oomcast_test_small"}' not in values(health)


def test_the_process_is_this_one() -> None:
    health, _, _ = made(FakeClock())
    used = resource.getrusage(resource.RUSAGE_SELF)
    found = values(health)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    assert found["process_resident_memory_bytes"] == pytest.approx(int(status["VmRSS"].split()[0]) * 1024, rel=0.05)
    assert found["process_virtual_memory_bytes"] == pytest.approx(int(status["VmSize"].split()[0]) * 1024, rel=0.05)
    assert found["process_cpu_seconds_total"] >= used.ru_utime + used.ru_stime - 0.03  # it counts in hundredths
    assert found["process_open_fds"] == pytest.approx(len(os.listdir("/proc/self/fd")), abs=2)  # noqa: PTH208 - a count, no paths
    assert found["process_max_fds"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert found["process_start_time_seconds"] == 1_700_000_000
    assert [name for name in found if name.startswith("oomcast_build_info{") and f'version="{__version__}"' in name]


def test_a_loop_that_does_not_come_by_is_unhealthy_after_ten_seconds() -> None:
    clock = FakeClock()
    health, _, chores = made(clock)
    clock.advance(9.9)
    chores.run()
    assert health.healthy() == (True, "the scheduler's loop came by 9.9 s ago")
    clock.advance(0.1)
    chores.run()
    assert health.healthy() == (False, "the scheduler's loop came by 10.0 s ago")


def test_work_that_is_not_done_is_unhealthy_while_the_real_loop_goes_on() -> None:
    clock = SystemClock()
    scheduler = Scheduler(clock, LOG)
    shifted = FakeClock()
    chores = Chores({"kills": lambda: None}, shifted, LOG)
    health = Health(Store(CORE_METRICS), clock, scheduler, chores, lambda: ())
    scheduler.start()
    try:
        assert health.healthy()[0]
        shifted.advance(10)
        assert health.healthy() == (False, "kills has not been done for 10.0 s")
        chores.run()
        assert health.healthy()[0]
        # A loop that is stuck in its own thread is seen by its age.
        scheduler._scheduler.add_job(threading.Event().wait, executor="heartbeat")
        time.sleep(1.5)
        assert scheduler.age() > 1.2
    finally:
        scheduler.stop()
