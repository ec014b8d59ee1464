"""What the kernel says of its GPUs, whether they answer or not (/proc/driver/nvidia/gpus), and of the host's memory."""

import os
import re
from pathlib import Path

from oomcast_collectors.host.files import read_once

_UUID = re.compile(rb"^GPU UUID:\s*(GPU-[0-9a-f-]{36})\s*$", re.MULTILINE)
_MEM_TOTAL = re.compile(rb"^MemTotal:\s+(\d{1,15}) kB$", re.MULTILINE)
_MOST = 256
_FOLDER = "driver/nvidia/gpus"


def kernel_gpus(proc: Path) -> dict[str, str] | None:
    """UUID by PCI address as sysfs has it, "" where the driver does not know it; None without the kernel's driver."""
    try:
        found = sorted((proc / _FOLDER).iterdir())[:_MOST]
    except OSError:
        return None
    return {gpu.name.lower(): _uuid(gpu / "information") for gpu in found}


def gpu_count(proc: Path) -> int | None:
    """How many they are. Unlike `kernel_gpus`, which reads what the driver makes up with its own locks held, it does
    not hang with a GPU."""
    try:
        return min(sum(1 for _ in (proc / _FOLDER).iterdir()), _MOST)
    except OSError:
        return None


def are_others(now: dict[str, str] | None, before: dict[str, str] | None) -> bool:
    """Whether a GPU came, went, or was exchanged. A UUID that the driver does not tell at the moment is no change."""
    if now is None or before is None or now.keys() != before.keys():
        return now != before
    return any(uuid and before[pci] and uuid != before[pci] for pci, uuid in now.items())


def _uuid(path: Path) -> str:
    try:
        match = _UUID.search(read_once(os.fspath(path), 4096))
    except OSError:  # it may be unbound at this moment
        return ""
    return match[1].decode() if match else ""


def host_memory(proc: Path) -> int | None:
    """MemTotal in bytes, None where it cannot be read."""
    try:
        match = _MEM_TOTAL.search(read_once(os.fspath(proc / "meminfo"), 4096))
    except OSError:
        return None
    return int(match[1]) * 1024 if match else None
