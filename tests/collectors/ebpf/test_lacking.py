"""Each reason for which the kernel lets a process load no programs, brought about for real, and what is said of it."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from collectors.ebpf.privileged import STRANGER, having, python, without
from oomcast_collectors.ebpf import privileges
from requires import needs

pytestmark = needs("ebpf")

# Not as a part of its package, of which all would be imported with it.
ASK = f"import runpy; globals().update(runpy.run_path({privileges.__file__!r}))"
KERNEL, PROGRAMS = "print(lacking_for_kernel())", "print(lacking_for_programs())"
NEWER, OLDER = (
    "import platform; platform.release = lambda: '6.10.0'",
    "import platform; platform.release = lambda: '6.9.12-1'",
)
DAC_READ_SEARCH = 2
EPERM, EACCES, ENOSYS = 1, 13, 38
BPF, PERF_EVENT_OPEN = 321, 298
READ = "dac_read_search"
BOTH = ("bpf", "perfmon")
LESS, MORE = "CAP_CHECKPOINT_RESTORE (or CAP_SYS_ADMIN)", "CAP_SYS_ADMIN (kernels from 6.10 on want less)"
ADD = "which the daemon lacks; add that to the capabilities of its unit or container (docs/ebpf.md)"
MOUNT = "mount -t tracefs tracefs /sys/kernel/tracing, in a container mount the host's"


def said(held: Sequence[str], *script: str) -> str:
    done = subprocess.run([*held, *python(ASK, *script)], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.removesuffix("\n")


def filtered(call: int, number: int) -> str:
    """Python that has this system call fail with an error from now on, by a filter as containers have one."""
    return f"""
import ctypes, struct
_code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in (
    (0x20, 0, 0, 0), (0x15, 0, 1, {call}), (6, 0, 0, 0x50000 | {number}), (6, 0, 0, 0x7fff0000))), 32)
_program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 4, ctypes.addressof(_code)))
assert ctypes.CDLL(None).prctl(38, 1, 0, 0, 0) == 0
assert ctypes.CDLL(None).prctl(22, 2, _program) == 0
"""


@pytest.mark.parametrize(
    ("capabilities", "lacking"),
    [
        ((), "CAP_BPF and CAP_PERFMON"),
        (("bpf",), "CAP_PERFMON"),
        (("perfmon", "sys_ptrace"), "CAP_BPF"),
    ],
)
def test_what_is_lacking_has_a_name(capabilities: Sequence[str], lacking: str) -> None:
    expected = f"programs in the kernel take {lacking} (or CAP_SYS_ADMIN), {ADD}"
    assert said(having(0, *capabilities), KERNEL) == expected


@pytest.mark.parametrize("uid", [0, STRANGER])
@pytest.mark.parametrize("tracefs", [True, False])
def test_one_stands_for_both(uid: int, tracefs: bool) -> None:
    """And where there is no tracefs, it mounts one."""
    assert said(having(uid, "sys_admin", READ, tracefs=tracefs), KERNEL) == ""


@pytest.mark.parametrize(
    ("uid", "capabilities", "script", "lacking"),
    [
        (0, BOTH, "", f"{LESS} and CAP_SYS_PTRACE"),
        (0, (*BOTH, "sys_ptrace"), "", LESS),
        (0, (*BOTH, "checkpoint_restore"), "", "CAP_SYS_PTRACE"),
        (0, ("sys_admin",), "", "CAP_SYS_PTRACE"),
        (0, (*BOTH, "checkpoint_restore", "sys_ptrace"), "", ""),
        (
            STRANGER,
            (*BOTH, READ),
            without(DAC_READ_SEARCH),
            f"{LESS}, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH",
        ),
        (0, (*BOTH, "checkpoint_restore", "sys_ptrace"), OLDER, MORE),
        (0, ("sys_admin", "sys_ptrace"), OLDER, ""),
    ],
)
def test_what_is_lacking_for_functions(uid: int, capabilities: Sequence[str], script: str, lacking: str) -> None:
    expected = f"to probe functions of programs takes {lacking}, {ADD}" if lacking else ""
    assert said(having(uid, *capabilities), NEWER, script, PROGRAMS) == expected


def test_tracepoints_that_are_not_to_be_read() -> None:
    reason = said(having(STRANGER, *BOTH, READ), without(DAC_READ_SEARCH), KERNEL)
    closed = "the tracepoints in /sys/kernel/tracing are not for the daemon to read"
    assert reason == f"{closed}: it takes root or CAP_DAC_READ_SEARCH"


def test_no_tracefs() -> None:
    lacking = f"tracefs is not mounted, and for one of its own the daemon lacks CAP_SYS_ADMIN: {MOUNT}"
    assert said(having(0, *BOTH, tracefs=False), KERNEL) == lacking


def test_a_tracefs_of_its_own_that_it_could_not_read() -> None:
    held = having(STRANGER, "sys_admin", READ, tracefs=False)
    lacking = f"tracefs is not mounted, and to read one of its own the daemon lacks CAP_DAC_READ_SEARCH: {MOUNT}"
    assert said(held, without(DAC_READ_SEARCH), KERNEL) == lacking


@pytest.mark.parametrize(
    ("call", "number", "refused"),
    [
        (BPF, EPERM, "bpf() (Operation not permitted)"),
        (PERF_EVENT_OPEN, EPERM, "perf_event_open() (Operation not permitted)"),
        (PERF_EVENT_OPEN, ENOSYS, "perf_event_open() (Function not implemented)"),
    ],
)
def test_a_seccomp_filter(call: int, number: int, refused: str) -> None:
    reason = said(having(0, "sys_admin"), filtered(call, number), KERNEL)
    assert reason.startswith(f"the kernel refuses {refused} in spite of the daemon's capabilities: there is a seccomp")


@pytest.mark.parametrize(("number", "blamed"), [(EPERM, False), (ENOSYS, True)])
def test_a_kernel_that_may_want_for_locked_memory(number: int, blamed: bool) -> None:
    """It says EPERM, and BCC can get more: that is for the child to try."""
    old = "import platform; platform.release = lambda: '5.10.0-28-amd64'"
    assert bool(said(having(0, *BOTH), old, filtered(BPF, number), KERNEL)) == blamed


@pytest.mark.parametrize("uid", [0, STRANGER])
def test_a_user_namespace(uid: int) -> None:
    """Of root, who can read tracefs there, and of somebody who cannot."""
    reason = said([*having(uid, "setfcap"), "unshare", "--user", "--map-root-user", "--mount"], KERNEL)
    assert reason.endswith(": they are those of a user namespace, and count for nothing here")


@pytest.mark.parametrize(
    ("paranoid", "held", "call", "blamed"),
    [
        ("3", BOTH, PERF_EVENT_OPEN, True),
        ("2", BOTH, PERF_EVENT_OPEN, False),
        ("3", ("sys_admin",), PERF_EVENT_OPEN, False),
        ("3", BOTH, BPF, False),
    ],
)
def test_a_distributions_kernel_that_wants_more(
    tmp_path: Path, paranoid: str, held: Sequence[str], call: int, blamed: bool
) -> None:
    """Such a kernel refuses with that very error, at values that others do not know."""
    (tmp_path / "paranoid").write_text(f"{paranoid}\n")
    bound = f"mount --bind {tmp_path / 'paranoid'} /proc/sys/kernel/perf_event_paranoid"
    command = ["unshare", "--mount", "sh", "-c", f'{bound}; exec "$@"', "sh", *having(0, *held)]
    reason = said(command, filtered(call, EACCES), KERNEL)
    assert reason
    remedy = "give the daemon that, or sysctl kernel.perf_event_paranoid=2"
    assert (reason.startswith("kernel.perf_event_paranoid is 3,") and reason.endswith(remedy)) == blamed
