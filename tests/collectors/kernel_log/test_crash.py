"""Crashes and Xids. Lines with a capture are tested in test_captures.py."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomcast_collectors.kernel_log.crash import Crash, Xid, parse_crash, parse_xid


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # x86, with names that hold what separates them.
        (
            "a[1]: b[77]: segfault at 7f00 ip 00007f01 sp 00007f02 error 6 in my lib [x].so[7f0000000000+1000]",
            Crash(77, "a[1]: b", "segfault", "my lib [x].so", "7f00", "00007f01"),
        ),
        (
            "python[9]: segfault at 0 ip 0804840a sp bf8f error 4 in libc-2.31.so[12ff,8048000+1000]",
            Crash(9, "python", "segfault", "libc-2.31.so", "0", "0804840a"),
        ),
        (
            "python[9]: segfault at 8 ip 10 sp 20 error 14 likely on CPU 3 (core 1, socket 0)",
            Crash(9, "python", "segfault", "", "8", "10"),
        ),
        ("python[9]: segfault at 8 ip 10 sp 20 error 14", Crash(9, "python", "segfault", "", "8", "10")),
        (
            "traps: a[5] general protection ip:7f01 sp:7f02 error:0 in libc.so.6[7f00+1000]",
            Crash(5, "a", "general protection", "libc.so.6", "", "7f01"),
        ),
        ("traps: a[5] trap divide error ip:7f01 sp:7f02 error:0", Crash(5, "a", "divide error", "", "", "7f01")),
        ("traps: a[5] trap int3 ip:7f01 sp:7f02 error:0 in a[1,7f00+10]", Crash(5, "a", "int3", "a", "", "7f01")),
        (
            "traps: a[5] control protection ip:7f01 sp:7f02 ssp:7f03 error:1(near ret) in a[7f00+1000]",
            Crash(5, "a", "control protection", "a", "", "7f01"),
        ),
        # arm64, new and old, and RISC-V.
        (
            "det[2510]: unhandled exception: DABT (lower EL), ESR 0x92000046, level 2 translation fault in "
            "libnn.so[7fbd4f0000+6000]",
            Crash(2510, "det", "level 2 translation fault", "libnn.so", "", ""),
        ),
        (
            "a[7]: unhandled exception: SP Alignment, ESR 0x000000009a000000, sp/pc alignment exception",
            Crash(7, "a", "sp/pc alignment exception", "", "", ""),
        ),
        (
            "a[7]: unhandled exception: undefined instruction in a[aaaab0b60000+1000]",
            Crash(7, "a", "undefined instruction", "a", "", ""),
        ),
        (
            "a[7]: unhandled level 2 translation fault (11) at 0x00000008, esr 0x92000046, in libx.so[7f00+1000]",
            Crash(7, "a", "level 2 translation fault", "libx.so", "00000008", ""),
        ),
        (
            "a[7]: unhandled signal 11 code 0x1 at 0x0000000000000008 in a[2aaaaab000+1000]",
            Crash(7, "a", "signal 11", "a", "0000000000000008", ""),
        ),
        # kernel.print-fatal-signals, with what older and newer kernels say of the process.
        ("potentially unexpected fatal signal 11.", None),
        ("python: potentially unexpected fatal signal 11.", Crash(None, "python", "signal 11", "", "", "", True)),
        ("core-1: CS: potentially unexpected fatal signal 7.", Crash(None, "CS", "signal 7", "", "", "", True)),
        ("a/2993: potentially unexpected fatal signal 4.", Crash(2993, "a", "signal 4", "", "", "", True)),
        ("a/b: potentially unexpected fatal signal 8.", Crash(None, "a/b", "signal 8", "", "", "", True)),
        ("python: potentially unexpected fatal signal 6.", None),
        ("Code: 8b 45 b0 <8b> 00", None),
        ("Code: Unable to access opcode bytes at 0xffffffffffffffd6.", None),
        ("traps: PANIC: double fault, error_code: 0x0", None),
    ],
)
def test_crash(text: str, expected: Crash | None) -> None:
    assert parse_crash(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.",
            Xid("0000:3b:00.0", 79, 1234, "python", "GPU has fallen off the bus."),
        ),
        (
            "NVRM: Xid (PCI:0000:CB:00): 13, pid='<unknown>', name=<unknown>, Graphics Exception: ESR 0x1=0x2",
            Xid("0000:cb:00.0", 13, None, "", "Graphics Exception: ESR 0x1=0x2"),
        ),
        (
            "NVRM: Xid (PCI:0000:07:00): 48, pid=<unknown>, name=<unknown>, An uncorrectable double bit error",
            Xid("0000:07:00.0", 48, None, "", "An uncorrectable double bit error"),
        ),
        (
            "NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, Ch 00000001",
            Xid("0000:dc:00.0", 45, 1818990, "", "Ch 00000001"),
        ),
        (
            "NVRM: Xid (PCI:0000:01:00): 31, pid=77, name=nvc:[driver], Ch 00000008, intr 1",
            Xid("0000:01:00.0", 31, 77, "nvc:[driver]", "Ch 00000008, intr 1"),
        ),
        (
            "NVRM: Xid (PCI:00000009:01:00.0): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x0)",
            Xid("0009:01:00.0", 149, None, "", "NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x0)"),
        ),
        (
            "NVRM: Xid (PCI:0000:87:00 GPU-I:05): 95, pid=8, name=a, Uncontained ECC error",
            Xid("0000:87:00.0", 95, 8, "a", "Uncontained ECC error", "05"),
        ),
        ("NVRM: Xid (0000:01:00): 32, Channel ID 0", Xid("0000:01:00.0", 32, None, "", "Channel ID 0")),
        ("NVRM: Xid (PCI:0000:01:00): 79", Xid("0000:01:00.0", 79, None, "", "")),
        ("NVRM: Xid (PCI:0000:01:00): 8, " + "x" * 300, Xid("0000:01:00.0", 8, None, "", "x" * 256)),
        ("NVRM: GPU at PCI:0000:01:00: GPU-c4a80165-86e4-bfbb-ecfa-1d81a70b138a", None),
        ("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32", None),
        ("NVRM: Xid (PCI:0000:01:00): none", None),
    ],
)
def test_xid(text: str, expected: Xid | None) -> None:
    assert parse_xid(text) == expected


WORDS = [
    "a[1]: segfault at 0 ip 0 sp 0 error 4",
    " in m[0+1]",
    "traps: a[5] trap int3 ip:7f01 sp:7f02 error:0",
    "a[7]: unhandled exception: DABT, ESR 0x9, fault",
    "a: potentially unexpected fatal signal 11.",
    "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, lost",
    " likely on CPU 1",
    "[",
    ": ",
    "\n",
]
PIECES = st.sampled_from(WORDS + [piece for word in WORDS for piece in re.split(r"(?<=[ :\[])", word)])


@settings(deadline=None)  # the machine may be busy
@given(st.one_of(st.text(max_size=300), st.lists(PIECES, max_size=80).map("".join)))
def test_no_line_breaks_a_parser(text: str) -> None:
    crash, xid = parse_crash(text), parse_xid(text)
    assert crash is None or (len(crash.comm) <= 64 and len(crash.module) <= 255 and len(crash.cause) <= 128)
    assert xid is None or (len(xid.message) <= 256 and re.fullmatch(r"[0-9a-f]{4,8}(:[0-9a-f]{2}){2}\.[0-7]", xid.pci))


@settings(deadline=None)  # the machine may be busy
@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=15),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60),
)
def test_every_name_and_module_comes_back(comm: str, module: str) -> None:
    text = (
        f"{comm}[42]: segfault at 10 ip 20 sp 30 error 4 in {module}[1f,2000+1000] likely on CPU 1 (core 1, socket 0)"
    )
    assert parse_crash(text) == Crash(42, comm, "segfault", module, "10", "20")
