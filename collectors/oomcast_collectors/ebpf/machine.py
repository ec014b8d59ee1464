"""What this machine lacks for programs in the kernel."""

import platform
import sys
from pathlib import Path

from oomcast_collectors.ebpf.privileges import lacking_for_kernel, release

_OLDEST = (5, 8)
"""The first kernel with ring buffers."""


def missing() -> str:
    """Why there can be no programs in the kernel here, and how that is mended; "" if there can."""
    # In this order: what comes later is tried by system calls of the right machine.
    for look in (_machine, _kernel, lacking_for_kernel, _namespace, _bcc):
        if reason := look():
            return reason
    return ""


def find() -> Path | None:
    """The folder of BCC's package: the distribution's, as the package index has none (its `bcc` is something else)."""
    versions = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for folder in ("/usr/lib/python3/dist-packages", f"/usr/lib/{versions}/site-packages", *sys.path):
        package = Path(folder, "bcc")
        if (package / "libbcc.py").exists():
            return package
    return None


def _machine() -> str:
    kind = platform.machine()
    return "" if kind == "x86_64" else f"programs are written for x86_64, this machine is {kind}"


def _kernel() -> str:
    return "" if release() >= _OLDEST else f"kernel {platform.release()} has no ring buffers, 5.8 has"


def _namespace() -> str:
    initial = 0xEFFFFFFC  # the inode number of the first namespace, fixed in the kernel's include/linux/proc_ns.h
    try:
        own = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return ""
    return "" if own == initial else "the kernel's pids are not ours: give the container the host's (hostPID: true)"


def _bcc() -> str:
    return "" if find() else "BCC is not installed (Debian, Ubuntu: apt-get install python3-bpfcc)"
