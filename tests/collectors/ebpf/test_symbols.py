"""Names of addresses in real programs and in files made up."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ebpf_lab.lab import Target, build
from oomcast_collectors.ebpf.child.deaths.blame import blamed
from oomcast_collectors.ebpf.child.mapped import mapped
from oomcast_collectors.ebpf.child.symbols import symbols as module
from oomcast_collectors.ebpf.child.symbols.demangle import demangled
from oomcast_collectors.ebpf.child.symbols.perfmap import PerfMap
from oomcast_collectors.ebpf.child.symbols.symbols import UNKNOWN, Frame, Symbols
from oomcast_collectors.ebpf.child.symbols.unwind import Call
from requires import needs

LIVE = needs("ebpf", "cc")

# In a process of its own, that ends with the files it holds open.
LOOKUP = """
import sys
from oomcast_collectors.ebpf.child.symbols.symbols import Symbols
symbols = Symbols("/proc")
pid = int(sys.argv[1])
assert symbols.prime(pid)
print("primed", flush=True)
input()
for address in sys.argv[2:]:
    print(symbols.frame(int(address, 16), pid), flush=True)
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("malloc", "malloc"),
        ("_ZN6panics6engine9scheduler11decode_step17h0123456789abcdefE", "panics::engine::scheduler::decode_step"),
        ("_RNvCskwGfYPst2Cb_3foo3bar", "foo::bar"),
        ("_ZN2at6native3addERKNS_6TensorE", "at::native::add(at::Tensor const&)"),
        ("_ZNSt6vectorIiSaIiEE9push_backEOi", "std::vector<int, std::allocator<int> >::push_back(int&&)"),
        ("_Z", "_Z"),
        ("_R", "_R"),
        ("_ZN" + "1a" * 2000 + "E", "_ZN" + "1a" * 2000 + "E"),
        ("_RNv" + "B_" * 200, "_RNv" + "B_" * 200),
        ("_Z\udcff", "_Z\udcff"),
    ],
)
def test_demangled(name: str, expected: str) -> None:
    assert demangled(name) == expected


PAIRS = "".join(f"S0_IS{n}_S{n}_E" for n in "123456789ABCDEFGHIJKLMNOP")


@pytest.mark.parametrize(
    ("name", "cut"),
    [
        ("_Z1f1a1pIS_S_E" + PAIRS, False),  # 400 MB
        ("_Z1f1a1pIS_S_E" + PAIRS[: 6 * 11], True),
        ("_RINvC1a1bTaaETB7_B7_ETBb_Bb_ETBj_Bj_ETBr_Br_ETBz_Bz_ETBH_BH_ETBP_BP_EE", True),
    ],
)
def test_a_name_that_doubles_with_each_word_of_it(name: str, cut: bool) -> None:
    began = time.monotonic()
    found = demangled(name)
    assert len(found) == 1024 if cut else found == name
    assert time.monotonic() - began < 1


def address_of(target: Target, program: str, function: str) -> int:
    """Where a function of a program is in the process, as nm and the maps have it."""
    symbols = subprocess.run(["nm", build(program)], capture_output=True, text=True, check=True, timeout=30).stdout
    (value,) = re.findall(rf"^([0-9a-f]+) \w {function}$", symbols, re.MULTILINE)
    base = Path(f"/proc/{target.pid}/maps").read_text().partition("-")[0]
    return int(base, 16) + int(value, 16)


def named(pid: int, *addresses: int, meanwhile: Callable[[], None] = lambda: None) -> list[str]:
    """Frames of a process that was primed, after `meanwhile`."""
    command = [sys.executable, "-c", LOOKUP, str(pid), *(f"{address:x}" for address in addresses)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "primed\n"
        meanwhile()
        said, _ = process.communicate("\n", timeout=60)
    return said.splitlines()


@LIVE
def test_names_outlive_the_process() -> None:
    with Target(build("crash"), "abort") as target:
        address = address_of(target, "crash", "crash_abort")
        # The first mapping that may be executed begins at the start of the code, which has no name.
        code = next(file for file in mapped("/proc", target.pid) if file.program)
        found = named(target.pid, address + 4, code.start, 0x10, meanwhile=target.stop)
    assert found[0] == "crash_abort+0x4 (crash)"
    assert found[1].endswith("+0x1000 (crash)") or found[1].startswith("_init+0x0")
    assert found[2] == "[unknown]"


@LIVE
def test_of_a_stripped_program_the_file_is_known(tmp_path: Path) -> None:
    stripped = tmp_path / "bare"
    subprocess.run(["strip", "-s", "-o", stripped, build("leak")], check=True, timeout=30)
    with Target(stripped) as target:
        code = next(file for file in mapped("/proc", target.pid) if file.program)
        (found,) = named(target.pid, code.start + 0x200)
    assert found == f"[unknown]+{code.offset + 0x200:#x} (bare)"


@LIVE
def test_a_process_that_is_gone_cannot_be_primed() -> None:
    code = LOOKUP.replace("assert symbols.prime(pid)", "assert not symbols.prime(pid)")
    process = subprocess.run([sys.executable, "-c", code, "4194304", "0"], input="\n", text=True, capture_output=True)
    assert process.stdout == "primed\nNone\n"


def code_of(target: Target) -> int:
    """Where the target's program is mapped."""
    return next(file.start for file in mapped("/proc", target.pid) if file.program)


@needs("cc")
def test_the_files_of_a_process_that_ended_are_let_go() -> None:
    """A volume cannot be unmounted while a file on it is open."""
    symbols = Symbols("/proc")
    with Target(build("leak")) as target:
        code = code_of(target)
        assert symbols.prime(target.pid)
    assert str(build("leak")) in opened()
    now = time.monotonic()
    symbols.refresh(now + 20)
    symbols.refresh(now + 40)
    assert symbols.frame(code, target.pid) is not None
    symbols.refresh(now + 60)
    assert symbols.frame(code, target.pid) is None
    assert str(build("leak")) not in opened()


@needs("cc")
def test_there_is_an_end_to_reading_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    with Target(build("leak")) as target:
        main = code_of(target) + 0x300
        for seconds, named in ((5.0, True), (0.0, False)):
            monkeypatch.setattr(module, "_ALLOWED", seconds)
            symbols = Symbols("/proc")
            assert symbols.prime(target.pid)
            frame = symbols.frame(main, target.pid)
            assert frame is not None
            assert (frame.function != UNKNOWN) == named
            assert frame.module == "leak"


def opened() -> set[str]:
    """What this process has open."""
    descriptors = list(Path("/proc/self/fd").iterdir())
    return {os.readlink(one) for one in descriptors if one.is_symlink()}  # noqa: PTH115 - it may lead to no path


def test_a_perf_map_names_code_made_at_run_time(tmp_path: Path) -> None:
    folder = tmp_path / "7" / "root" / "tmp"
    folder.mkdir(parents=True)
    (tmp_path / "7" / "status").write_text("Name:\tpython\nNSpid:\t7\t3\n")
    (folder / "perf-3.map").write_bytes(b"7f00 10 py::decode\nnonsense\n7f10 8 py::step\xff\n" + b"zz 1 x\n")
    names = PerfMap(str(tmp_path), 7)
    assert names.at(0x7F0F) == ("py::decode", 15)
    assert names.at(0x7F10) == ("py::step\ufffd", 0)
    assert names.at(0x7F18) is None
    assert names.at(0x7EFF) is None


def test_a_perf_map_that_is_a_trap(tmp_path: Path) -> None:
    folder = tmp_path / "7" / "root" / "tmp"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "perf-7.map")
    assert PerfMap(str(tmp_path), 7).at(0) is None
    (folder / "perf-7.map").unlink()
    (folder / "perf-7.map").symlink_to("/dev/zero")
    assert PerfMap(str(tmp_path), 7).at(0) is None


@pytest.mark.parametrize(
    ("modules", "sent", "expected"),
    [
        (["libc.so.6", "engine"], False, "libc.so.6"),
        (["libc.so.6", "libc.so.6", "engine"], True, "engine"),
        (["libc.so.6", "libstdc++.so.6.0.30", "libtorch_cpu.so", "python3.11"], True, "libtorch_cpu.so"),
        (["ld-musl-x86_64.so.1", "engine"], True, "engine"),
        (["libc.so.6"], True, "libc.so.6"),
        (["", "engine"], False, "engine"),
        ([""], False, ""),
        ([], True, ""),
    ],
)
def test_who_is_to_blame(modules: list[str], sent: bool, expected: str) -> None:
    calls = [Call(Frame("f", module, 1), certain=True) for module in modules]
    assert blamed(calls, sent=sent) == expected
