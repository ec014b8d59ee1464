"""All that a scrape says of GPUs as nvidia-smi shows them, with one value for each field so that a mix-up shows."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from collectors.gpu.driver import FakeDriver, uuid
from conftest import Golden
from e2e.gpus import gpus
from e2e.stack import fetch
from requires import missing, needs

pytestmark = needs("cc")

MIB = 1 << 20
PIDS = (23511, 23512, 23513)
"""The first two are in /proc, the last one is of another namespace."""

MEASURED = re.compile(
    r"^(oomcast_gpu_(?:sampling_\w+_seconds|memory_call_seconds_total|handovers_total)\{[^}]*\}) \S+$", re.MULTILINE
)
"""What the machine that runs the test is in."""


def h200(driver: FakeDriver) -> None:
    """An H200 at work under driver 580, another one idle."""
    busy, idle = driver.gpus
    busy.set(total=143771 * MIB, used=32362 * MIB, reserved=614 * MIB, util=100, memutil=7, addressing="none")
    busy.set(power_mw=687340, power_instant_mw=690120, limit_mw=700000, enforced_limit_mw=695000, energy_mj=12345678901)
    busy.set(temp=63, memtemp=71, sm=1935, gr=1920, mem=3201, vid=1545)
    busy.set(ecc_volatile_corrected=11, ecc_volatile_uncorrected=3, ecc_aggregate_corrected=29)
    busy.set(ecc_aggregate_uncorrected=5, remap=(8, 2, 1, 0), recovery=4)
    busy.set(pcie_tx_bytes=5012345678, pcie_rx_bytes=6023456789, nvlink_tx_kib=7034567, nvlink_rx_kib=8045678)
    busy.set(proc=[(PIDS[0], 31724 * MIB), (PIDS[2], 520 * MIB)], gproc=(PIDS[1], 98 * MIB))
    busy.set(accounting=1, acct=[(PIDS[0], 40962 * MIB), (PIDS[1], 101 * MIB)])
    idle.set(
        total=143771 * MIB, used=1 * MIB, reserved=613 * MIB, power_mw=76410, temp=29, memtemp=33, sm=345, mem=2619
    )
    idle.set(persistence=0)


def h100_mig(driver: FakeDriver) -> None:
    """An H100 in two MIG instances, one of them with two compute instances, under driver 550."""
    driver.set(driver="550.127.08", cuda=12040, absent="nvmlDeviceGetTemperatureV")
    driver.gpus = driver.gpus[:1]
    gpu = driver.gpus[0]
    gpu.set(name="NVIDIA H100 80GB HBM3", total=81559 * MIB, used=21804 * MIB, reserved=551 * MIB, mig=1)
    gpu.set(power_mw=214870, enforced_limit_mw=699000, energy_mj=2345678901, temp=41, memtemp=49, sm=1755, mem=2619)
    gpu.set(ecc_volatile_corrected=1, ecc_volatile_uncorrected=2, nvlinks=0, field_fail=[(142, 3), (143, 3), (230, 3)])
    gpu.set(
        migdev=[
            (1, 0, "MIG-1ad5ff6e-9d6b-5a4c-8a52-3b1c5f2d7e01", "1c.3g.40gb", 40448 * MIB, 20011 * MIB),
            (1, 1, "MIG-1ad5ff6e-9d6b-5a4c-8a52-3b1c5f2d7e02", "2c.3g.40gb", 40448 * MIB, 20011 * MIB),
            (2, 0, "-", "-", 0, 0),
            (5, 0, "MIG-1ad5ff6e-9d6b-5a4c-8a52-3b1c5f2d7e05", "2g.20gb", 19968 * MIB, 1793 * MIB),
        ],
        proc=[(PIDS[0], 19012 * MIB, 1, 0), (PIDS[1], 978 * MIB, 1, 1), (PIDS[1], 1722 * MIB, 5, 0)],
    )


def a100_v1(driver: FakeDriver) -> None:
    """An A100 under driver 470, which does not tell used and reserved memory apart."""
    driver.set(driver="470.256.02", cuda=11040)
    driver.set(absent=[f"nvmlDeviceGet{name}" for name in ("MemoryInfo_v2", "TemperatureV", "AddressingMode")])
    driver.gpus = driver.gpus[:1]
    gpu = driver.gpus[0]
    gpu.set(name="NVIDIA A100-SXM4-80GB", total=81251 * MIB, used=32362 * MIB, reserved=571 * MIB, util=88, memutil=46)
    gpu.set(power_mw=301230, enforced_limit_mw=399000, energy_mj=3456789012, temp=55, memtemp=62, sm=1410, mem=1593)
    gpu.set(field_fail=[(197, 3), (198, 3), (230, 3)], nvlink_aggregate_ret=2, nvlinks=3)
    gpu.set(nvlink=[(0, 101, 11), (1, 202, 22), (2, 404, 44)], remap=(1, 0, 0, 0), ecc_volatile_corrected=7)
    gpu.set(proc=(PIDS[0], 32015 * MIB))


def host(proc: Path, driver: FakeDriver) -> None:
    """A /proc with two of the processes, and with what the kernel's driver says of the GPUs."""
    proc.mkdir()
    (proc / "uptime").write_text("5000.00 9000.00\n")
    for pid, name in zip(PIDS, ("VLLM::EngineCor", "python3"), strict=False):
        (proc / str(pid)).mkdir()
        stat = f"{pid} ({name}) S 1 {pid} {pid} 0 -1 4194560" + " 0" * 12 + f" 400000 0 0{' 0' * 28}\n"
        (proc / str(pid) / "stat").write_text(stat)
        (proc / str(pid) / "cgroup").write_text(f"0::/system.slice/{name.lower().partition(':')[0]}.service\n")
    for number in range(len(driver.gpus)):
        gpu = proc / f"driver/nvidia/gpus/0000:{0x10 + number:02x}:00.0"
        gpu.mkdir(parents=True)
        (gpu / "information").write_text(f"GPU UUID: \t {uuid(number)}\n")


@pytest.mark.parametrize("capture", [h200, h100_mig, a100_v1])
def test_the_whole_text(
    driver: FakeDriver, tmp_path: Path, golden: Golden, capture: Callable[[FakeDriver], None]
) -> None:
    capture(driver)
    driver.write()
    host(tmp_path / "proc", driver)
    with gpus(driver, tmp_path, "slow_period: 1", paths=f"proc: {tmp_path / 'proc'}") as node:
        golden.becomes(f"gpu/{capture.__name__}.prom", lambda: of_gpus(fetch(f"{node.daemon.url}/metrics")))
        text = fetch(f"{node.daemon.url}/metrics")
    if missing("prometheus") is None:
        check = ("promtool", "check", "metrics")
        checked = subprocess.run(check, input=text, capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def of_gpus(text: str) -> str:
    """The families of the collector, without their help and what the machine is in."""
    wanted = re.compile(r"(?:# TYPE )?oomcast_gpus?[_ ]")
    told = "".join(line for line in text.splitlines(keepends=True) if wanted.match(line))
    return MEASURED.sub(r"\1 MEASURED", told)
