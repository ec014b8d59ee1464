"""One sick GPU never hides the rest: each fault of a driver, and its end, as a scrape shows it."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from collectors.gpu.driver import FakeDriver, uuid
from e2e.gpus import Gpus, daemon, gpus
from e2e.program import until
from e2e.stack import fetch
from requires import needs

pytestmark = needs("cc")

GIB = 1 << 30
MEMORY = ("used", "free", "reserved", "total", "used_peak", "free_min")


@pytest.fixture
def node(driver: FakeDriver, tmp_path: Path) -> Iterator[Gpus]:
    """Two GPUs, 30 and 40 GiB of them in use."""
    for number, gpu in enumerate(driver.gpus):
        gpu.set(used=(30 + 10 * number) * GIB, util=50)
    driver.write()
    with gpus(driver, tmp_path) as running:
        yield running


def memory(node: Gpus, number: int) -> list[str]:
    return [kind for kind in MEMORY if node.value(f"gpu_memory_{kind}_bytes", number) is not None]


def set_and_await_state(node: Gpus, state: str, **values: int | None) -> None:
    """Sets the keys of GPU 1."""
    node.driver.gpus[1].set({key.replace("__", "."): value for key, value in values.items()})
    node.driver.write()
    until(lambda: node.state(1) == state, 10)


@pytest.mark.parametrize(
    ("code", "state"),
    [(15, "lost"), (16, "reset_required"), (4, "not_permitted"), (17, "not_permitted"), (999, "unreadable")],
)
def test_a_gpu_that_refuses_costs_its_own_series_only_and_comes_back(node: Gpus, code: int, state: str) -> None:
    assert memory(node, 1) == list(MEMORY)
    set_and_await_state(node, state, fail=code)
    until(lambda: memory(node, 1) == [])
    assert node.value("gpu_up", 1) == 0
    assert node.value("gpu_power_watts", 1) is None
    assert node.value("gpu_read_errors_total", 1, field="memory") or node.value(
        "gpu_read_errors_total", 1, field="handle"
    )
    assert (node.value("gpu_up", 0), node.value("gpus")) == (1, 2)
    node.set_and_await_used(0, 33 * GIB)
    set_and_await_state(node, "ok", fail=None)
    until(lambda: memory(node, 1) == list(MEMORY))
    until(lambda: node.value("gpu_power_watts", 1) is not None)
    assert node.value("gpu_up", 1) == 1


def test_a_hung_gpu_is_stuck_and_the_rest_is_fresh(node: Gpus) -> None:
    began = datetime.now(UTC).timestamp()
    set_and_await_state(node, "stuck", hang=1)
    since = node.value("gpu_stuck_since_timestamp_seconds", 1)
    assert since is not None
    assert began - 0.2 <= since <= datetime.now(UTC).timestamp()
    until(lambda: memory(node, 1) == [])
    assert node.value("gpu_power_watts", 1) is None
    assert node.value("gpu_handovers_total", 1) in (1, 2)
    for i in range(5):
        node.set_and_await_used(0, (31 + i) * GIB)
    asked = time.monotonic()
    fetch(f"{node.daemon.url}/metrics")
    assert time.monotonic() - asked < 1
    gap = node.value("gpu_sampling_largest_gap_seconds", 0)
    assert gap is not None
    assert gap < 1.5
    set_and_await_state(node, "ok", hang=None)
    until(lambda: memory(node, 1) == list(MEMORY))
    assert node.value("gpu_stuck_since_timestamp_seconds", 1) is None


def test_the_daemon_ends_in_time_with_a_hung_gpu(node: Gpus) -> None:
    set_and_await_state(node, "stuck", hang=1)
    code, seconds = node.daemon.end()
    assert code == 0
    assert seconds < 5


def test_one_hung_function_of_the_slow_job_leaves_memory_alone_until_it_is_known(node: Gpus) -> None:
    set_and_await_state(node, "stuck", hang__nvmlDeviceGetFieldValues=1)
    node.set_and_await_used(0, 33 * GIB)
    until(lambda: node.value("gpu_power_watts", 0) is not None)
    set_and_await_state(node, "ok", hang__nvmlDeviceGetFieldValues=None)
    node.set_and_await_used(1, 43 * GIB)


def test_memory_that_is_not_supported_is_never_the_hosts(node: Gpus) -> None:
    codes = {f"fail.nvmlDeviceGetMemoryInfo{api}": 3 for api in ("", "_v2")}
    node.driver.gpus[1].set(codes)
    node.driver.write()
    until(lambda: memory(node, 1) == [])
    assert (node.state(1), node.value("gpu_up", 1)) == ("ok", 1)
    unsupported = node.value("gpu_unsupported_fields", 0)
    assert unsupported is not None
    assert node.value("gpu_unsupported_fields", 1) == unsupported + 1
    assert node.info(1)["memory_kind"] == "dedicated"  # as it was found at first
    assert node.value("gpu_power_watts", 1) is not None


def test_memory_that_never_was_supported_is_of_no_known_kind(driver: FakeDriver, tmp_path: Path) -> None:
    driver.gpus[1].set({f"fail.nvmlDeviceGetMemoryInfo{api}": 3 for api in ("", "_v2")})
    driver.write()
    with gpus(driver, tmp_path) as node:
        until(lambda: node.info(1).get("memory_kind") == "unknown", 10)
        assert memory(node, 1) == []
        assert (node.state(1), node.info(1).get("memory_api")) == ("ok", None)
        assert node.info(0)["memory_kind"] == "dedicated"


def test_memory_of_a_unified_part_is_said_to_be_the_hosts(driver: FakeDriver, tmp_path: Path) -> None:
    driver.gpus[1].set({f"fail.nvmlDeviceGetMemoryInfo{api}": 3 for api in ("", "_v2")}, name="NVIDIA GB10")
    driver.gpus[1].set(proc=(os.getpid(), 5 * GIB))
    driver.write()
    with gpus(driver, tmp_path, "slow_period: 1") as node:
        until(lambda: node.info(1).get("memory_kind") == "unified", 10)
        assert memory(node, 1) == []
        assert node.value("gpu_process_memory_bytes", 1, pid=str(os.getpid())) == 5 * GIB


def test_the_first_api_of_memory_is_enough(driver: FakeDriver, tmp_path: Path) -> None:
    driver.set(absent="nvmlDeviceGetMemoryInfo_v2")
    driver.gpus[0].set(used=30 * GIB, reserved=GIB)
    driver.write()
    with gpus(driver, tmp_path) as node:
        assert node.info(0)["memory_api"] == "v1"
        assert node.used(0) == 31 * GIB
        assert node.value("gpu_memory_reserved_bytes", 0) is None


def test_a_driver_may_appear_later(driver: FakeDriver, tmp_path: Path) -> None:
    library = driver.library
    driver.library = tmp_path / "lib" / library.name
    driver.library.parent.mkdir()
    with daemon(driver, tmp_path) as node:
        until(lambda: bool(node.value("collector_runs_total", collector="gpu", outcome="absent")))
        assert node.value("collector_up", collector="gpu") is None
        shutil.copy(library, driver.library)
        until(lambda: node.value("gpu_up", 1) == 1, 20)
        until(lambda: node.value("collector_up", collector="gpu") == 1)


def test_a_module_may_be_loaded_later(driver: FakeDriver, tmp_path: Path) -> None:
    driver.set(init_ret=9)
    driver.write()
    with daemon(driver, tmp_path) as node:
        until(lambda: bool(node.value("collector_runs_total", collector="gpu", outcome="absent")))
        driver.set(init_ret=0)
        driver.write()
        until(lambda: node.value("gpu_up", 1) == 1, 20)


def test_an_initialisation_that_hangs_delays_nothing_else(driver: FakeDriver, tmp_path: Path) -> None:
    driver.set(init_hang=1)
    driver.write()
    with daemon(driver, tmp_path) as node:
        until(lambda: node.value("collector_up", collector="gpu") == 0)
        assert "NVML has not come back from its initialisation" in node.daemon.log
        driver.set(init_hang=None)
        driver.write()
        until(lambda: node.value("gpu_up", 1) == 1)
        until(lambda: node.value("collector_up", collector="gpu") == 1)


def test_a_driver_that_was_replaced_has_the_process_executed_anew(node: Gpus) -> None:
    node.driver.set(strict_version=1)
    node.driver.write()
    started = node.value("gpu_library_inits_total")
    pid = node.daemon.process.pid
    node.daemon.messages.clear()
    node.driver.set(driver="590.10.01")
    node.driver.write()
    node.daemon.heard("READY=1")
    assert node.daemon.process.pid == pid
    assert node.daemon.process.poll() is None
    until(lambda: node.info(0).get("driver") == "590.10.01")
    assert (started, node.value("gpu_library_inits_total")) == (1, 1)
    assert "the GPU driver was replaced" in node.daemon.log
    node.set_and_await_used(1, 44 * GIB)
    assert node.daemon.end()[0] == 0


def test_a_library_that_never_matched_is_told_and_not_restarted_for(driver: FakeDriver, tmp_path: Path) -> None:
    driver.set(init_ret=18)
    driver.write()
    with daemon(driver, tmp_path) as node:
        until(lambda: node.value("collector_up", collector="gpu") == 0)
        time.sleep(2)
        assert "driver was replaced" not in node.daemon.log
        driver.set(init_ret=0)
        driver.write()
        until(lambda: node.value("gpu_up", 0) == 1, 20)


def test_a_library_that_forgot_us_is_initialised_anew(node: Gpus) -> None:
    node.driver.gpus[1].set(fail=1)
    node.driver.write()
    until(lambda: node.value("collector_up", collector="gpu") == 0)
    node.driver.gpus[1].set(fail=None)
    node.driver.write()
    until(lambda: node.value("gpu_library_inits_total") == 2)
    until(lambda: node.value("gpu_up", 1) == 1 and node.used(1) == 40 * GIB)
    node.set_and_await_used(0, 33 * GIB)


def kernel_list(proc: Path, *numbers: int) -> None:
    """What the kernel's driver says of its GPUs, in a copy of /proc that has only that."""
    listed = proc / "driver/nvidia/gpus"
    shutil.rmtree(listed, ignore_errors=True)
    for number in numbers:
        gpu = listed / f"0000:{0x10 + number:02x}:00.0"
        gpu.mkdir(parents=True)
        (gpu / "information").write_text(f"Model: \t\t NVIDIA H200\nIRQ:   \t\t 42\nGPU UUID: \t {uuid(number)}\n")


def test_a_gpu_that_was_taken_away_goes_and_comes_again(driver: FakeDriver, tmp_path: Path) -> None:
    driver.set(freeze=1)
    driver.write()
    proc = tmp_path / "proc"
    kernel_list(proc, 0, 1)
    with gpus(driver, tmp_path, paths=f"proc: {proc}") as node:
        until(lambda: node.value("gpu_up", 1) == 1)
        assert (node.value("gpus"), node.value("gpus_expected")) == (2, 2)
        driver.gpus[1].set(removed=1)
        driver.write()
        kernel_list(proc, 0)
        until(lambda: node.value("gpu_up", 1) is None, 20)
        until(lambda: (node.value("gpus"), node.value("gpus_expected")) == (1, 1))
        assert node.all("gpu_state", 1) == {}
        driver.gpus[1].set(removed=None, used=17 * GIB)
        driver.write()
        kernel_list(proc, 0, 1)
        until(lambda: node.used(1) == 17 * GIB, 20)
        node.set_and_await_used(0, GIB)


def test_a_gpu_that_vanishes_from_the_library_alone_is_lost(driver: FakeDriver, tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    kernel_list(proc, 0, 1)
    with gpus(driver, tmp_path, paths=f"proc: {proc}") as node:
        until(lambda: node.value("gpu_up", 1) == 1)
        driver.gpus[1].set(removed=1)
        driver.write()
        until(lambda: node.state(1) == "lost", 20)
        until(lambda: (node.value("gpus"), node.value("gpus_expected")) == (1, 2), 20)
        assert node.value("gpu_up", 1) == 0


def test_a_gpu_may_be_added(driver: FakeDriver, tmp_path: Path) -> None:
    driver.gpus[1].set(removed=1)
    driver.write()
    with gpus(driver, tmp_path, "expected: 2") as node:
        until(lambda: node.value("gpu_up", 0) == 1)
        assert (node.value("gpus"), node.value("gpus_expected")) == (1, 2)
        driver.gpus[1].set(removed=None)
        driver.write()
        until(lambda: node.value("gpu_up", 1) == 1, 20)
        assert node.value("gpus") == 2


@pytest.mark.parametrize("garbage", ["used_over_total", "sum_mismatch", "zero"])
def test_garbage_is_absent_and_counted(node: Gpus, garbage: str) -> None:
    node.driver.gpus[1].set(mem_garbage=garbage, util=200)
    node.driver.write()
    until(lambda: memory(node, 1) == [], 10)
    assert (node.value("gpu_invalid_readings_total", 1, field="memory") or 0) > 0
    until(lambda: node.value("gpu_utilization_ratio", 1) is None)
    assert (node.value("gpu_invalid_readings_total", 1, field="utilization") or 0) > 0
    assert node.value("gpu_utilization_ratio", 0) == 0.5
    assert node.value("gpu_invalid_readings_total", 0, field="memory") is None
    node.driver.gpus[1].set(mem_garbage=None, util=70)
    node.driver.write()
    until(lambda: memory(node, 1) == list(MEMORY) and node.value("gpu_utilization_ratio", 1) == 0.7)


def test_the_period_is_stretched_for_a_slow_driver(node: Gpus) -> None:
    for gpu in node.driver.gpus:
        gpu.set(delay_us=10_000)
    node.driver.write()
    # Two calls of 10 ms are 5 % of 0.4 s.
    until(lambda: (node.value("gpu_sampling_largest_gap_seconds", 0) or 0) > 0.35, 20)
    spent = node.value("gpu_memory_call_seconds_total", 0)
    time.sleep(3)
    later = node.value("gpu_memory_call_seconds_total", 0)
    assert spent is not None
    assert later is not None
    assert 0.03 < later - spent < 0.15  # at 20 ms it would be over a second
    for gpu in node.driver.gpus:
        gpu.set(delay_us=None)
    node.driver.write()
    node.set_and_await_used(0, 35 * GIB)


def test_a_mig_layout_is_read_again(driver: FakeDriver, tmp_path: Path) -> None:
    first = [(1, 0, "MIG-a", "3g.71gb", 76 * GIB, 20 * GIB), (2, 0, "MIG-b", "3g.71gb", 76 * GIB, 70 * GIB)]
    driver.gpus[1].set(mig=1, migdev=first, used=90 * GIB, memutil=30)
    driver.gpus[0].set(memutil=30)
    driver.write()
    with gpus(driver, tmp_path, "slow_period: 1") as node:
        until(lambda: len(node.all("gpu_mig_memory_used_bytes", 1)) == 2, 10)
        assert node.value("gpu_mig_memory_used_bytes", 1, gpu_instance="2") == 70 * GIB
        assert node.value("gpu_mig_memory_used_peak_bytes", 1, gpu_instance="1") == 20 * GIB
        assert node.value("gpu_mig_info", 1, gpu_instance="1", mig="MIG-a", profile="3g.71gb") == 1
        assert node.used(1) == 90 * GIB
        assert sum(node.all("gpu_memory_used_bytes").values()) == 90 * GIB
        assert node.value("gpu_memory_copy_utilization_ratio", 1) is None
        assert node.value("gpu_memory_copy_utilization_ratio", 0) == 0.3
        second = [(2, 0, "MIG-b", "3g.71gb", 76 * GIB, 71 * GIB), (9, 0, "MIG-c", "1g.18gb", 17 * GIB, GIB)]
        driver.gpus[1].set(migdev=second)
        driver.write()
        until(lambda: node.value("gpu_mig_memory_used_bytes", 1, gpu_instance="9") == GIB, 10)
        until(lambda: node.value("gpu_mig_memory_used_bytes", 1, gpu_instance="1") is None, 10)
        assert node.value("gpu_mig_memory_used_peak_bytes", 1, gpu_instance="2") == 71 * GIB
        driver.gpus[1].set(mig=0, migdev=None)
        driver.write()
        until(lambda: node.all("gpu_mig_info", 1) == {}, 60)


def test_processes_without_memory_are_counted_and_nothing_is_made_up(node: Gpus) -> None:
    with subprocess.Popen(["sleep", "60"]) as sleep:
        node.driver.gpus[1].set(proc=(sleep.pid, "NA"))
        node.driver.gpus[0].set(proc=[(sleep.pid, 20 * GIB), (4_000_000, 5 * GIB)])
        node.driver.write()
        until(lambda: node.value("gpu_processes", 1) == 1, 10)
        assert node.all("gpu_process_memory_bytes", 1) == {}
        assert node.value("gpu_memory_unattributed_bytes", 1) is None
        until(lambda: node.value("gpu_process_memory_bytes", 0, pid=str(sleep.pid), process="sleep") == 20 * GIB)
        assert (node.value("gpu_processes", 0), node.value("gpu_processes_unresolved", 0)) == (2, 1)
        assert node.value("gpu_memory_unattributed_bytes", 0) == 5 * GIB
        sleep.kill()
    node.driver.gpus[0].set(proc=None)
    node.driver.write()
    until(lambda: node.all("gpu_process_memory_bytes", 0) == {}, 10)


def test_peaks_of_accounting_are_read_where_it_is_on(node: Gpus) -> None:
    me = str(os.getpid())
    for gpu in node.driver.gpus:
        gpu.set(proc=(os.getpid(), 20 * GIB))
    node.driver.gpus[0].set(accounting=1, acct=(os.getpid(), 27 * GIB))
    node.driver.write()
    until(lambda: node.value("gpu_process_memory_bytes", 1, pid=me) == 20 * GIB, 10)
    assert node.all("gpu_process_memory_peak_bytes", 1) == {}


def test_memory_errors_are_told_as_they_come(node: Gpus) -> None:
    assert node.value("gpu_ecc_errors_total", 1, kind="uncorrected") == 0
    node.driver.gpus[1].set(ecc_volatile_uncorrected=3, ecc_volatile_corrected=17, remap=(5, 2, 1, 0), recovery=1)
    node.driver.write()
    until(lambda: node.value("gpu_ecc_errors_total", 1, kind="uncorrected") == 3, 10)
    assert node.value("gpu_ecc_errors_total", 1, kind="corrected") == 17
    assert node.value("gpu_remapped_rows", 1, kind="correctable") == 5
    assert node.value("gpu_remapped_rows", 1, kind="uncorrectable") == 2
    assert (node.value("gpu_row_remap_pending", 1), node.value("gpu_row_remap_failed", 1)) == (1, 0)
    assert node.value("gpu_recovery_action", 1, oomcast_gpu_recovery_action="gpu_reset") == 1
    assert node.value("gpu_ecc_errors_total", 0, kind="uncorrected") == 0


def test_an_xid_that_repeats_counts_each_time(node: Gpus) -> None:
    until(lambda: node.value("xid_errors_total", 1, xid="79") == 0, 10)
    time.sleep(1)
    node.driver.gpus[1].set(xid=["1:79"])
    node.driver.write()
    until(lambda: node.value("xid_errors_total", 1, xid="79") == 1, 10)
    node.driver.gpus[1].set(xid=["1:79", "2:79", "3:31"])
    node.driver.write()
    until(lambda: node.value("xid_errors_total", 1, xid="79") == 2, 10)
    until(lambda: node.value("xid_errors_total", 1, xid="31") == 1, 10)
    assert node.value("xid_errors_total", 0, xid="79") == 0


def test_the_kernel_log_and_the_library_tell_of_one_error(driver: FakeDriver, tmp_path: Path) -> None:
    dev = tmp_path / "dev"
    dev.mkdir()
    os.mkfifo(dev / "kmsg")
    others = "cgroup: {enabled: false}, host: {enabled: false}, kernel_log: {interval: 0.5}"
    with gpus(driver, tmp_path, paths=f"dev: {dev}", others=others) as node:
        until(lambda: node.value("xid_errors_total", 1, xid="94") == 0, 10)
        time.sleep(1)
        driver.gpus[1].set(xid=["1:94"])
        driver.write()
        with (dev / "kmsg").open("wb", buffering=0) as log:
            log.write(b"4,1,1,-;NVRM: Xid (PCI:0000:11:00): 94, pid=7, name=vllm, Contained: SM (0x1)\n")
            log.write(b"4,2,2,-;NVRM: Xid (PCI:0000:11:00): 62, pid=7, name=vllm, PMU halt\n")
            until(lambda: node.value("xid_errors_total", 1, xid="62") == 1, 10)
            time.sleep(1)
        assert node.value("xid_errors_total", 1, xid="94") == 1
        assert node.value("kernel_log_xids_total", pci="0000:11:00.0", xid="94") == 1
