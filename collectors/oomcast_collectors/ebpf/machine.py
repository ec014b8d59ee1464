"""What this machine lacks for programs in the kernel."""

import platform
import sys
from pathlib import Path

_CAP_SYS_PTRACE, _CAP_SYS_ADMIN = 19, 21
_OLDEST = (5, 8)
"""The first kernel with ring buffers."""


def missing() -> str:
    """Why there can be no programs in the kernel here, and how that is mended; "" if there can."""
    for reason in (_machine(), _kernel(), _privilege(), _namespace(), _bcc()):
        if reason:
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
    release = platform.release()
    numbers = tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdigit())
    return "" if numbers >= _OLDEST else f"kernel {release} has no ring buffers, 5.8 has"


def _privilege() -> str:
    capabilities = _status("CapEff")
    if not capabilities:
        return ""
    held = int(capabilities, 16)
    lacking = [
        name
        for name, bit in (("CAP_SYS_ADMIN", _CAP_SYS_ADMIN), ("CAP_SYS_PTRACE", _CAP_SYS_PTRACE))
        if not held >> bit & 1
    ]
    return f"the daemon lacks {' and '.join(lacking)}: run it as root" if lacking else ""


def _namespace() -> str:
    initial = 0xEFFFFFFC  # the inode number of the first namespace, fixed in the kernel's include/linux/proc_ns.h
    try:
        own = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return ""
    return "" if own == initial else "the kernel's pids are not ours: give the container the host's (hostPID: true)"


def _bcc() -> str:
    return "" if find() else "BCC is not installed (Debian, Ubuntu: apt-get install python3-bpfcc)"


def _status(name: str) -> str:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(f"{name}:")), "")
