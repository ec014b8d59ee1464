"""The functions of ELF files as nm has them, and what is read of files that are made to break something."""

import os
import struct
import subprocess
import time
from pathlib import Path

import pytest

from ebpf_lab.lab import build
from oomcast_collectors.ebpf.child.mapped import Mapped
from oomcast_collectors.ebpf.child.points import Points
from oomcast_collectors.ebpf.child.symbols import elf as module
from oomcast_collectors.ebpf.child.symbols.codefile import CodeFile
from oomcast_collectors.ebpf.child.symbols.elf import Elf, Functions
from requires import needs

pytestmark = needs("cc")

SYMBOLS, STRINGS, FUNCTION = 2, 3, 2


def listed(path: Path) -> dict[str, int]:
    """Functions by name, as nm has them."""
    said = subprocess.run(["nm", path], capture_output=True, text=True, check=True, timeout=30).stdout
    rows = (row for row in map(str.split, said.splitlines()) if len(row) == 3 and row[1] in "tTi")
    return {name: int(address, 16) for address, _, name in rows}


def made(path: Path, entries: bytes, strings: bytes, *, sizes: tuple[int, int] | None = None) -> Path:
    """A file with these symbols, and code that is all of it. sizes: that it has by its headers."""
    sizes = sizes or (len(entries), len(strings))
    first = 64 + 56 + 3 * 64
    head = b"\x7fELF\2\1\1".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 120, 0, 64, 56, 1, 64, 3, 0
    )
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 1 << 20, 1 << 20, 4096)
    sections = [(0, 0, 0, 0, 0), (SYMBOLS, first, sizes[0], 2, 24), (STRINGS, first + len(entries), sizes[1], 0, 0)]
    rows = b"".join(
        struct.pack("<IIQQQQIIQQ", 0, k, 0, 0, at, n, link, 0, 1, each) for k, at, n, link, each in sections
    )
    path.write_bytes(head + segment + rows + entries + strings)
    return path


def symbol(name: int, address: int, size: int = 16) -> bytes:
    return struct.pack("<IBBHQQ", name, FUNCTION, 0, 1, address, size)


def points(path: Path, wanted: str) -> list[int]:
    return [point.offset for point in Points().find(Mapped(str(path), path.name, ("0:0", 1), 0, 0, 0), wanted)]


@pytest.mark.parametrize("program", ["leak", "crash", "libcrash.so"])
def test_each_function_is_found_by_name_and_by_address(program: str) -> None:
    path = build(program)
    elf, known = Elf(str(path)), listed(path)
    table = Functions(elf)
    own = {name: address for name, address in elf.names() if name in known}
    assert own == known
    for name, address in known.items():
        assert address in set(elf.named(name))
        found = table.at(address)
        assert found is not None
        assert known.get(found[0]) == found[1] == address


def test_a_name_that_is_the_end_of_another(tmp_path: Path) -> None:
    path = made(tmp_path / "file", symbol(1, 0x400) + symbol(7, 0x500), b"\0__own_malloc\0")
    assert dict(Elf(str(path)).names()) == {"__own_malloc": 0x400, "malloc": 0x500}
    assert points(path, "malloc") == [0x500]
    assert points(path, "/malloc/") == [0x400, 0x500]
    assert points(path, "alloc") == []


def test_symbols_that_were_taken_out_are_found_by_build_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, bare = tmp_path / "program", tmp_path / "bare"
    command = ["cc", "-Wl,--build-id=0x1234567890abcdef", "-o", str(program), "-x", "c", "-"]
    subprocess.run(command, input=b"int deep(void) { return 1; } int main(void) { return deep(); }", check=True)
    subprocess.run(["strip", "-s", "-o", bare, program], check=True)
    place = listed(program)["deep"]
    assert CodeFile(str(bare)).function(place) is None
    (tmp_path / "12").mkdir()
    program.rename(tmp_path / "12" / "34567890abcdef.debug")
    monkeypatch.setattr(module, "_DEBUG", tmp_path)
    found = CodeFile(str(bare)).function(place)
    assert found is not None
    assert (found.name, found.start) == ("deep", place)


def test_debug_information_that_is_said_to_be_in_a_pipe(tmp_path: Path) -> None:
    """Whoever opened it would wait for ever."""
    os.mkfifo(tmp_path / "pipe")
    path = tmp_path / "program"
    (tmp_path / "link").write_bytes(f"../../../{tmp_path}/pipe".encode().ljust(400, b"\0") + b"\1\2\3\4")
    subprocess.run(["objcopy", f"--add-section=.gnu_debuglink={tmp_path}/link", build("leak"), path], check=True)
    place = listed(path)["leak_small"]
    found = CodeFile(str(path)).function(place)
    assert found is not None
    assert found.name == "leak_small"
    assert points(path, "leak_small") == [place]


@pytest.mark.parametrize("sizes", [(1 << 40, 1 << 40), (1 << 63, 1 << 63), (24, (1 << 64) - 1)])
def test_tables_that_are_larger_than_memory(sizes: tuple[int, int], tmp_path: Path) -> None:
    path = made(tmp_path / "file", symbol(1, 0x400), b"\0main\0", sizes=sizes)
    os.truncate(path, 1 << 42)
    began, before = time.monotonic(), resident()
    points(path, "main")
    points(path, "/main/")
    CodeFile(str(path)).function(0x400)
    assert time.monotonic() - began < 5
    assert resident() - before < 300 << 20


def test_a_million_names_that_are_the_same_megabyte(tmp_path: Path) -> None:
    entries = b"".join(symbol(1 + at % 1000, 0x400 + at) for at in range(200_000))
    path = made(tmp_path / "file", entries, b"\0" + b"x" * (1 << 20))
    began = time.monotonic()
    assert len(points(path, "/x/")) == 50
    assert points(path, "x") == []
    found = CodeFile(str(path)).function(0x400)
    assert found is not None
    assert len(found.name) == 1024
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("place", range(64, 64 + 56 + 3 * 64, 8))
def test_headers_that_lie(place: int, tmp_path: Path) -> None:
    path = made(tmp_path / "file", symbol(1, 0x400), b"\0main\0")
    data = path.read_bytes()
    path.write_bytes(data[:place] + b"\xff" * 8 + data[place + 8 :])
    assert points(path, "main") in ([], [0x400])
    CodeFile(str(path)).function(0x400)


def test_a_device_is_not_opened() -> None:
    assert points(Path("/dev/zero"), "main") == []
    with pytest.raises(OSError, match="no regular file"):
        CodeFile("/dev/zero")


def resident() -> int:
    """The most there was, in bytes."""
    (kib,) = (
        line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")
    )
    return int(kib) << 10
