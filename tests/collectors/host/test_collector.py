import os
import threading
from pathlib import Path

import psutil
import pytest
from pydantic import ValidationError

from collectors.host.hosts import host, real_host, values
from collectors.host.trees import write_process
from fakes import FakeClock
from oomcast.contract import Event
from oomcast_collectors.host import METRICS, SPEC
from oomcast_collectors.host.troubles import FILES
from oomcast_collectors.host.usage import Scan

NO_TROUBLE = {f'host_{kind}_errors_total{{file="{file}"}}': 0 for kind in ("parse", "read") for file in FILES}


def test_every_series_of_a_4_18_host(tmp_path: Path) -> None:
    facts = host("linux-4.18", tmp_path).collect()
    assert values(facts) == NO_TROUBLE | {
        "host_memory_total_bytes": 65699336 << 10,
        "host_memory_available_bytes": 48770112 << 10,
        "host_memory_free_bytes": 21034912 << 10,
        "host_memory_anon_bytes": 12958220 << 10,
        "host_memory_shmem_bytes": 425116 << 10,
        "host_memory_file_cache_bytes": (17459992 + 9427992) << 10,
        "host_memory_mlocked_bytes": 0,
        "host_memory_unevictable_bytes": 0,
        "host_memory_dirty_bytes": 188 << 10,
        "host_memory_slab_reclaimable_bytes": 1611040 << 10,
        "host_memory_slab_unreclaimable_bytes": 628972 << 10,
        "host_memory_committed_bytes": 19880312 << 10,
        "host_memory_commit_limit_bytes": 37043968 << 10,
        "host_memory_hugetlb_bytes": 0,
        "host_hugepages_total_bytes": 0,
        "host_hugepages_free_bytes": 0,
        "host_swap_total_bytes": 4194300 << 10,
        "host_swap_free_bytes": 4194300 << 10,
        "host_oom_kills_total": 5,
        "host_pgmajfault_total": 90112,
        'host_refaults_total{kind="file"}': 40112,
        'host_pages_scanned_total{by="direct"}': 7001,
        'host_pages_scanned_total{by="kswapd"}': 1310990,
        'host_pages_reclaimed_total{by="direct"}': 6120,
        'host_pages_reclaimed_total{by="kswapd"}': 1200113,
        "host_allocstall_total": 75,
        'host_swap_pages_total{direction="in"}': 0,
        'host_swap_pages_total{direction="out"}': 0,
        "host_numa_pages_migrated_total": 0,
    }
    assert facts.events == []


def test_pressure_in_seconds_by_resource_and_kind(tmp_path: Path) -> None:
    found = values(host("linux-6.1", tmp_path).collect())
    assert {k.removeprefix("host_pressure_seconds_total"): v for k, v in found.items() if "pressure_s" in k} == {
        '{kind="some",resource="cpu"}': 2.789125,
        '{kind="full",resource="cpu"}': 0.0,
        '{kind="some",resource="memory"}': 9.46126,
        '{kind="full",resource="memory"}': 9.047635,
        '{kind="some",resource="io"}': 0.137385,
        '{kind="full",resource="io"}': 0.128214,
        '{kind="full",resource="irq"}': 2.250041,
    }


def test_counters_were_created_at_boot(tmp_path: Path) -> None:
    machine = host("linux-5.15", tmp_path)
    booted = FakeClock().time() - 864000.5
    for _ in range(2):
        created = {
            s.series.metric.name: s.created for s in machine.collect().samples if s.series.metric.labels != ("file",)
        }
        assert created["oomcast_host_oom_kills_total"] == booted
        assert created["oomcast_host_pressure_seconds_total"] == booted
        assert created["oomcast_host_memory_free_bytes"] is None
        machine.clock.jump(5000)  # type: ignore[attr-defined]


def test_level_takes_the_watermark_from_zoneinfo_once_a_minute(tmp_path: Path) -> None:
    machine = host("linux-5.15", tmp_path)
    clock = machine.clock
    assert isinstance(clock, FakeClock)
    [level] = machine.collect().levels
    low = 573417 * os.sysconf("SC_PAGE_SIZE")
    assert level.capacity == ((2113393620 - 270532608 + 8388604) << 10) - low
    (machine.proc / "zoneinfo").unlink()
    clock.advance(59)
    assert machine.collect().levels == [level]
    clock.advance(1)
    [without] = machine.collect().levels
    assert without.capacity == level.capacity + low
    assert without.used == level.used


def test_kills_since_the_last_run_are_an_event(tmp_path: Path) -> None:
    machine = host("linux-5.15", tmp_path)
    clock = machine.clock
    assert isinstance(clock, FakeClock)
    assert machine.collect().events == []
    clock.advance(1)
    machine.replace("vmstat", "oom_kill 2", "oom_kill 5")
    text = "the OOM killer killed 3 processes since the last look at /proc/vmstat"
    event = Event("host_oom_kills", clock.time(), clock.monotonic(), text, {"kills": 3})
    assert machine.collect().events == [event]
    assert machine.collect().events == []


def test_no_kill_is_lost_over_runs_without_the_counter(tmp_path: Path) -> None:
    machine = host("linux-5.15", tmp_path)
    machine.collect()
    good = (machine.proc / "vmstat").read_text()
    for broken in ("", "oom_kill x\n", "oom_kill 3"):
        machine.set("vmstat", broken)
        facts = machine.collect()
        assert facts.events == []
        assert "host_oom_kills_total" not in values(facts)
    machine.set("vmstat", good.replace("oom_kill 2", "oom_kill 3"))
    (machine.proc / "meminfo").rename(machine.proc / "away")
    machine.collector._files["meminfo"].close()
    with pytest.raises(FileNotFoundError):
        machine.collect()
    (machine.proc / "away").rename(machine.proc / "meminfo")
    [event] = machine.collect().events
    assert event.fields == {"kills": 1}


def test_a_reset_is_no_kill_and_the_next_one_counts_from_it(tmp_path: Path) -> None:
    machine = host("linux-5.15", tmp_path)
    machine.collect()
    machine.replace("vmstat", "oom_kill 2\n", "oom_kill 1\n")
    assert machine.collect().events == []
    machine.replace("vmstat", "oom_kill 1\n", "oom_kill 2\n")
    [event] = machine.collect().events
    assert event.fields == {"kills": 1}
    assert event.summary == "the OOM killer killed 1 process since the last look at /proc/vmstat"


def test_a_host_without_meminfo_fails(tmp_path: Path) -> None:
    machine = host("linux-5.15", tmp_path)
    (machine.proc / "meminfo").unlink()
    with pytest.raises(FileNotFoundError):
        machine.collect()
    machine.set("meminfo", "this is no meminfo\n")
    with pytest.raises(ValueError, match="has none of the fields"):
        machine.collect()


def test_a_malformed_line_is_logged_when_it_comes_and_goes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    machine = host("linux-6.1", tmp_path)
    machine.collect()
    good = (machine.proc / "meminfo").read_text()
    machine.replace("meminfo", "MemTotal:         995368 kB", "MemTotal: abc kB")
    for run in (1, 2, 3):
        facts = machine.collect()
        found = values(facts)
        assert found['host_parse_errors_total{file="meminfo"}'] == run
        assert "host_memory_total_bytes" not in found
        assert found["host_memory_available_bytes"] == 872276 << 10
        assert facts.levels == []
    machine.set("meminfo", good)
    assert values(machine.collect())["host_memory_total_bytes"] == 995368 << 10
    about = [r.getMessage() for r in caplog.records if r.getMessage().startswith("meminfo")]
    assert about == ["meminfo: malformed: MemTotal", "meminfo: fine again"]


def test_contradicting_memory_has_no_level_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    machine = host("linux-6.1", tmp_path)
    machine.replace("meminfo", "MemAvailable:     872276 kB", "MemAvailable:     995369 kB")
    for _ in range(2):
        assert machine.collect().levels == []
    about = [r.getMessage() for r in caplog.records if r.getMessage().startswith("meminfo")]
    assert about == ["meminfo: malformed: MemTotal contradicts others"]


def test_pressure_that_cannot_be_read_costs_itself_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    machine = host("linux-6.1", tmp_path)
    (machine.proc / "pressure/irq").unlink()
    (machine.proc / "pressure/io").unlink()
    # Address 0 is mapped nowhere: a file whose read fails with EIO.
    (machine.proc / "pressure/io").symlink_to("/proc/self/mem")
    for run in (1, 2):
        found = values(machine.collect())
        assert sum(key.startswith("host_pressure_seconds_total") for key in found) == 4
        assert found['host_read_errors_total{file="pressure/io"}'] == run
        assert found['host_read_errors_total{file="pressure/irq"}'] == 0
    warned = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert warned == ["pressure/io: unreadable: [Errno 5] Input/output error"]


def test_a_huge_file_costs_itself_only(tmp_path: Path) -> None:
    machine = host("linux-6.1", tmp_path)
    machine.set("vmstat", "oom_kill 6\n" * 200_000)
    found = values(machine.collect())
    assert found['host_read_errors_total{file="vmstat"}'] == 1
    assert "host_oom_kills_total" not in found
    assert found["host_memory_total_bytes"] == 995368 << 10


class Stuck:
    """Processes whose command line cannot be read until `go` is set. A stand-in: a real one needs a stuck kernel."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def scan(self) -> Scan:
        self.go.wait()
        raise PermissionError("not yours")


def test_processes_that_hang_cost_themselves_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    machine = host("linux-6.1", tmp_path, ("vllm",), timeout=0.02)
    clock = machine.clock
    assert isinstance(clock, FakeClock)
    stuck = Stuck()
    machine.collector._usage = stuck  # type: ignore[assignment]
    threads = threading.active_count()
    for _ in range(5):
        clock.advance(10)
        found = values(machine.collect())
        assert found["host_memory_total_bytes"] == 995368 << 10
        assert not any(key.startswith("process_") for key in found)
    assert threading.active_count() == threads + 1
    assert found['host_read_errors_total{file="status"}'] == 4
    stuck.go.set()
    assert machine.collector._scan is not None
    machine.collector._scan.outcome(10)
    assert values(machine.collect())['host_read_errors_total{file="status"}'] == 5
    assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == [
        "status: unreadable: the processes are still being read",
        "status: unreadable: not yours",
    ]


def test_without_names_processes_are_not_looked_for(tmp_path: Path) -> None:
    assert not any(key.startswith("process_") for key in values(host("linux-6.1", tmp_path).collect()))


def test_names_and_units_of_the_settings_are_added(tmp_path: Path) -> None:
    machine = host("linux-6.1", tmp_path, ("vllm*",), processes=["mine"], units=["tgi"])
    write_process(machine.proc, 7, "mine", size=9)
    write_process(machine.proc, 8, "x", size=9, cgroup="0::/system.slice/tgi.service\n")
    write_process(machine.proc, 9, "vllm", size=9)
    found = values(machine.collect_all())
    assert {k: v for k, v in found.items() if k.startswith("processes")} == {
        'processes{process="mine"}': 1,
        'processes{process="tgi.service"}': 1,
        'processes{process="vllm"}': 1,
    }


@pytest.mark.parametrize("wrong", [{"process_names": 0}, {"process_interval": 0.5}, {"proceses": ["x"]}])
def test_settings_that_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        SPEC.settings.model_validate(wrong)


def test_the_real_host(caplog: pytest.LogCaptureFixture) -> None:
    machine = real_host("python*")
    facts = machine.collect()
    found = values(facts)
    seen, swap = psutil.virtual_memory(), psutil.swap_memory()
    assert found["host_memory_total_bytes"] == seen.total
    assert found["host_swap_total_bytes"] == swap.total
    assert found["host_memory_available_bytes"] == pytest.approx(seen.available, rel=0.2)
    [level] = facts.levels
    assert 0 < level.used < level.capacity < seen.total + swap.total
    assert all(found[key] == 0 for key in NO_TROUBLE)
    created = next(s.created for s in facts.samples if s.series.metric.name == "oomcast_host_oom_kills_total")
    assert created == pytest.approx(psutil.boot_time(), abs=2)
    assert not [r for r in caplog.records if r.levelname == "WARNING"]


def test_only_metrics_of_the_table_leave_and_each_says_when_it_is_absent() -> None:
    facts = real_host("*").collect()
    assert {s.series.metric for s in facts.samples} <= set(SPEC.metrics)
    assert all(metric.absent for metric in METRICS)
    assert len({metric.name for metric in METRICS}) == len(METRICS)
