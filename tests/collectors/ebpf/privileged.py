"""Programs that have some of the superuser's privileges and no others."""

import sys
from collections.abc import Sequence

_TRACEFS = 'mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing; exec "$@"'
_NO_TRACEFS = 'umount -Rlq /sys/kernel/tracing /sys/kernel/debug; exec "$@"'
STRANGER = 12345
"""A user whom nobody knows."""


def having(uid: int, *capabilities: str, tracefs: bool = True) -> list[str]:
    """What a command begins with to be run by that user with these capabilities: bpf, sys_admin. tracefs: mounted."""
    only = ",".join(["-all", *(f"+{name}" for name in capabilities)])
    command = ["unshare", "--mount", "sh", "-c", _TRACEFS if tracefs else _NO_TRACEFS, "sh", "setpriv"]
    command += [f"--bounding-set={only}", f"--inh-caps={only}"]
    if uid:
        command += [f"--ambient-caps={only}", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    return command


def without(*capabilities: int) -> str:
    """Python that gives capabilities up by their numbers, for what has to be imported first with them."""
    kept = "".join(f" & ~(1 << {number})" for number in capabilities)
    return f"""
import ctypes
_head, _data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
_libc = ctypes.CDLL(None)
assert _libc.syscall(125, _head, _data) == 0
_held = (_data[0] | _data[3] << 32){kept}
_data[0] = _data[1] = _held & 0xFFFFFFFF
_data[3] = _data[4] = _held >> 32
assert _libc.syscall(126, _head, _data) == 0
"""


def python(*script: str) -> Sequence[str]:
    return (sys.executable, "-c", "\n".join(script))
