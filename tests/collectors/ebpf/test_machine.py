"""What a machine may lack, each with what to do about it."""

import subprocess
import sys

import pytest

from oomcast_collectors.ebpf.machine import missing
from requires import needs

ASK = "from oomcast_collectors.ebpf import machine; print(machine.missing())"


@needs("ebpf")
def test_nothing_is_missing_here() -> None:
    assert missing() == ""


@pytest.mark.parametrize(
    ("release", "enough"),
    [
        ("5.8.0", True),
        ("6.18.5-amd64", True),
        ("5.10.0-28-cloud-amd64", True),
        ("10.0", True),
        ("6.10-rc3", True),
        ("6.10+", True),
        ("5.7.19", False),
        ("4.19.0-26-amd64", False),
        ("", False),
        ("unknown", False),
    ],
)
@needs("ebpf")
def test_kernels(release: str, enough: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.release", lambda: release)
    assert missing() == ("" if enough else f"kernel {release} has no ring buffers, 5.8 has")


def test_another_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert missing() == "programs are written for x86_64, this machine is aarch64"


@needs("ebpf")
def test_in_a_pid_namespace() -> None:
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", ASK]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    assert "hostPID" in done.stdout


@needs("ebpf")
def test_without_bcc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oomcast_collectors.ebpf.machine.find", lambda: None)
    assert "python3-bpfcc" in missing()
