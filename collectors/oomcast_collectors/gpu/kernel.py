"""What the kernel says of its GPUs, whether they answer or not (/proc/driver/nvidia/gpus), and of the host's memory."""

import os
import re
from pathlib import Path

from oomcast_collectors.host.files import read_once

_UUID = re.compile(rb"^GPU UUID:\s*(GPU-[0-9a-f-]{36})\s*$", re.MULTILINE)
_MEM_TOTAL = re.compile(rb"^MemTotal:\s+(\d{1,15}) kB$", re.MULTILINE)
_MOST = 256


def kernel_gpus(proc: Path) -> dict[str, str] | None:
    """UUID by PCI address as sysfs has it, "" where the driver does not know it; None without the kernel's driver."""
    folder = proc / "driver/nvidia/gpus"
    try:
        found = sorted(folder.iterdir())[:_MOST]
    except OSError:
        return None
    return {gpu.name.lower(): _uuid(gpu / "information") for gpu in found}


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
