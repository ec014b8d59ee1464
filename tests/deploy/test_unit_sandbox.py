"""The unit's sandbox for real: what the daemon collects and loses in it, on a node with systemd and a kernel.

All modes of sandbox/modes.py ran side by side in one boot of a virtual machine while the same happened to each.
"""

import faulthandler
import sys
from pathlib import Path

import pytest

from deploy.sandbox import modes
from deploy.sandbox.expected import (
    ALLOWED,
    CAPABILITIES,
    COLLECTORS,
    COSTS,
    LATE,
    LOST,
    MORE_FOR_ROOT,
    REFUSED,
    REFUSED_TO_ROOT,
    table,
)
from deploy.sandbox.modes import MODES
from deploy.sandbox.nodefiles import TOOLS, lay_out
from deploy.sandbox.seen import Results, Seen
from deploy.sandbox.tree import PROGRAM, install
from host import cache, vm_kernel
from requires import needs
from vm.machine import Guest, run

pytestmark = [needs("vm", "debian", "cc"), pytest.mark.alone]

TABLE = Path(__file__).with_name("sandbox") / "modes.md"
MIB = 1 << 20
SANDBOXED = tuple(CAPABILITIES)
SECONDS = 600.0
"""It takes half of the time that a machine at work needs."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    shared = tmp_path_factory.mktemp("node")
    files = shared / "files"
    install(files, "3.11")
    lay_out(files, shared)
    kernel = vm_kernel()
    assert kernel is not None
    driver = [f"{PROGRAM}/bin/python3", "-m", "deploy.sandbox.drive", str(shared)]
    environment = {"PYTHONPATH": TOOLS, "PYTHONDONTWRITEBYTECODE": "1"}
    # The machine has a deadline of its own, and more to do than the five minutes of any test.
    faulthandler.cancel_dump_traceback_later()
    node = Guest(cache() / "debian" / "node", files, init="/lib/systemd/systemd", memory=2560)
    run(kernel, shared, driver, environment, SECONDS, node)
    sys.stdout.write((shared / "output").read_text())
    return Results(shared / "results.json")


@pytest.fixture(params=[mode.name for mode in MODES])
def seen(request: pytest.FixtureRequest, results: Results) -> Seen:
    return results.mode(request.param)


@pytest.fixture(params=SANDBOXED)
def sandboxed(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_it_runs_and_was_never_restarted(seen: Seen) -> None:
    shown = {name: seen.show[name] for name in ("ActiveState", "Result", "NRestarts")}
    assert shown == {"ActiveState": "active", "Result": "success", "NRestarts": "0"}


def test_collectors(results: Results) -> None:
    assert {mode.name: results.mode(mode.name).collectors for mode in MODES} == COLLECTORS


def test_what_a_mode_loses(results: Results, sandboxed: str) -> None:
    reference, seen = (results.mode(name).names - LATE - COSTS for name in ("reference", sandboxed))
    assert (reference - seen, seen - reference) == (LOST[sandboxed], set())


def test_the_kill_is_counted_once(seen: Seen) -> None:
    kills = {labels: value for labels, value in seen.series("oomcast_oom_kills_total").items() if value}
    assert sum(kills.values()) == 1
    assert seen.value("oomcast_oom_kills_unattributed_total") == 0


@pytest.mark.parametrize("name", [mode.name for mode in MODES if mode.name != "plain"])
def test_the_kill_has_its_owner(results: Results, name: str) -> None:
    owner = modes.VICTIM
    assert results.mode(name).value("oomcast_oom_kills_total", owner=owner, limit_owner=owner) == 1


def test_without_the_kernels_log_the_kill_is_the_slices(results: Results) -> None:
    """The unit's cgroup is gone before anybody can look."""
    assert results.mode("plain").value("oomcast_oom_kills_total", owner="system.slice") == 1


@pytest.mark.parametrize("name", [mode.name for mode in MODES if mode.name != "plain"])
def test_the_crash_is_in_the_kernels_log(results: Results, name: str) -> None:
    assert results.mode(name).value("oomcast_kernel_log_segfaults_total", module="crash") == 1


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode.attached], ids=lambda mode: mode.name)
def test_programs_in_the_kernel(results: Results, mode: modes.Mode) -> None:
    seen = results.mode(mode.name)
    attached = seen.series("oomcast_ebpf_probe_attached")
    assert {dict(labels)["probe"] for labels, value in attached.items() if value} == set(mode.attached)
    assert seen.total("oomcast_crashes_total", process="crash") == 1
    assert seen.value("oomcast_ebpf_oom_victims_total") == 1
    followed = seen.total("oomcast_alloc_bytes_total", process="vllm", kind="mmap")
    assert (followed > 0) == ("allocations" in mode.attached)


def test_costs_of_probes_are_told_or_why_not(results: Results) -> None:
    seen = results.mode("ebpf-programs")
    assert (seen.names >= COSTS) != ("costs could not be measured: it takes more than 2 s" in seen.log)


def test_what_is_missing_for_allocations_is_told(results: Results) -> None:
    assert "allocations: to probe functions of programs takes CAP_SYS_ADMIN" in results.mode("ebpf-kernel").log


@pytest.mark.parametrize("name", [mode.name for mode in MODES if mode.name != "plain"])
def test_the_engine_of_another_user_is_found(results: Results, name: str) -> None:
    assert results.mode(name).value("oomcast_engine_up", engine="engine.service:8000") == 1


@pytest.mark.parametrize("engine", ["file", "journal"])
def test_the_engines_logs(results: Results, engine: str) -> None:
    """One in a home that nobody else may enter, and the journal."""
    told = {
        mode.name: results.mode(mode.name).value("oomcast_log_events_total", engine=engine, rule="cuda_out_of_memory")
        for mode in MODES
    }
    assert told == {mode.name: 0 if (mode.name, engine) == ("plain", "file") else 1 for mode in MODES}


def test_the_gpu_and_whose_memory_it_is(seen: Seen) -> None:
    gpu = "GPU-00000000-0000-4000-8000-000000000000"
    assert seen.value("oomcast_gpu_up", gpu=gpu) == 1
    held = seen.total("oomcast_gpu_process_memory_bytes", gpu=gpu, cgroup=f"/system.slice/{modes.ENGINE}")
    assert held == 8 << 30


def test_a_message_about_a_request_comes_in(seen: Seen) -> None:
    assert seen.value("oomcast_request_messages_total", outcome="accepted") == 1


def test_privileges_of_each_process(results: Results, sandboxed: str) -> None:
    expected = sum(1 << bit for bit in CAPABILITIES[sandboxed])
    processes = results.mode(sandboxed).processes
    assert len(processes) == (3 if "ebpf" in sandboxed else 2)
    for process in processes:
        assert process.capabilities("Eff") == process.capabilities("Bnd") == expected, process.command
        assert (process.status["NoNewPrivs"], process.status["Seccomp"]) == ("1", "2")
        assert (process.users == {"0"}) == (sandboxed == "root")


def test_it_outlives_others(results: Results, sandboxed: str) -> None:
    seen = results.mode(sandboxed)
    assert {process.status["oom_score_adj"] for process in seen.processes} == {"-900"}
    assert seen.cgroup["memory.min"] == f"{(256 if 'ebpf' in sandboxed else 64) * MIB}"
    assert seen.cgroup["memory.max"] == f"{(1024 if 'ebpf' in sandboxed else 256) * MIB}"
    assert seen.show["ManagedOOMPreference"] == "avoid"


def test_the_limit_leaves_room(results: Results, sandboxed: str) -> None:
    cgroup = results.mode(sandboxed).cgroup
    assert int(cgroup["memory.peak"]) < int(cgroup["memory.max"]) / 2


def test_its_memory_is_protected_for_real(results: Results) -> None:
    """The kernel was told to take what it may: from whom it did not, and from whom it did."""
    reclaimed = results.reclaimed
    assert reclaimed["protected"]["after"] >= modes.HELD * 0.95
    assert reclaimed["unprotected"]["after"] < modes.HELD / 2
    assert reclaimed["shipped"]["after"] >= min(64 * MIB, reclaimed["shipped"]["before"]) * 0.95
    assert reclaimed["reference"]["after"] < reclaimed["reference"]["before"] / 2


def test_the_watchdog_is_fed(results: Results, sandboxed: str) -> None:
    shown = results.mode(sandboxed).show
    assert shown["WatchdogUSec"] == "2min"
    assert int(shown["WatchdogTimestampMonotonic"]) > int(shown["ActiveEnterTimestampMonotonic"]) + 5_000_000


def test_reload(results: Results) -> None:
    before = results.mode("shipped").show
    assert (results.reload["MainPID"], results.reload["ActiveState"]) == (before["MainPID"], "active")
    assert (
        "settings reloaded" in results.reload["log"].rpartition("Reloaded oomcast.service")[0] + results.reload["log"]
    )


def test_they_stopped_in_good_order(results: Results) -> None:
    ends = {name: (shown["ActiveState"], shown["Result"]) for name, shown in results.stopped.items()}
    assert ends == {mode.name: ("inactive", "success") for mode in MODES}


def test_what_the_sandbox_allows(results: Results) -> None:
    assert results.tried("tries") == {**ALLOWED, **REFUSED}


def test_what_it_allows_root(results: Results) -> None:
    """Files of root, and so the memory of process 1: with no more capabilities root is still root."""
    assert results.tried("tries-root") == {**ALLOWED, **REFUSED, **REFUSED_TO_ROOT, **MORE_FOR_ROOT}


def test_what_check_says(results: Results) -> None:
    verdicts = {name: verdict for name, (verdict, _) in results.checked.items()}
    works, absent = ("cgroup", "host", "kernel_log"), ("ebpf", "engine", "engine_log", "gpu", "requests")
    assert verdicts == {**dict.fromkeys(works, "ok"), **dict.fromkeys(absent, "absent")}
    assert "kernel.perf_event_paranoid is 3" in results.checked["ebpf"][1]


def test_the_table_of_the_documentation(results: Results) -> None:
    measured = table({mode.name: results.mode(mode.name) for mode in MODES})
    assert TABLE.read_text() == measured, measured
