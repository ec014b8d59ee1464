"""Where functions are in files, and in what is none; and which first instructions are cheap to probe."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ebpf_lab.lab import build
from oomcast_collectors.ebpf.child.points import cheap_entry
from requires import needs

ENDBR, PUSH, SUB, TEST = b"\xf3\x0f\x1e\xfa", b"\x55", b"\x48\x83\xec\x08", b"\x48\x85\xff"
REST = b"\x90" * 8

# In a process of its own: BCC takes this one's mounts and modules.
LOOK = """
import sys
from oomcast_collectors.ebpf.child.mapped import Mapped
from oomcast_collectors.ebpf.child.points import Points
points = Points()
path = sys.argv[1]
for turn in range(2):
    for symbol in sys.argv[2:]:
        found = points.find(Mapped(path, path, ("0:0", 1), 0, 0, 0), symbol)
        print(*(f"{point.symbol}@{point.offset}" for point in found), sep=",")
    if turn == 0:
        sys.stdout.flush()
        sys.stdin.readline()
"""


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (PUSH + b"\x48\x89\xe5" + REST, (0, False)),
        (b"\x41\x57" + REST, (0, False)),
        (ENDBR + PUSH + REST, (4, False)),
        (ENDBR + TEST + PUSH + REST, (7, False)),
        (TEST + b"\x74\x05" + REST, (3, False)),
        (TEST + b"\x0f\x84\x00\x00\x00\x00" + REST, (3, False)),
        (b"\xe9\x00\x00\x00\x00" + REST, (0, False)),
        (b"\x0f\x1f\x44\x00\x00" + REST, (0, False)),
        (SUB + REST, (0, True)),
        (ENDBR + SUB + REST, (0, True)),
        (b"\x48\x85\x3f" + PUSH + REST, (0, True)),  # test with memory
        (b"", (0, True)),
        (PUSH, (0, True)),
        (ENDBR, (0, True)),
    ],
)
def test_cheap_entry(code: bytes, expected: tuple[int, bool]) -> None:
    assert cheap_entry(code) == expected


def look(path: Path, *symbols: str) -> list[str]:
    command = [sys.executable, "-c", LOOK, str(path), *symbols]
    done = subprocess.run(command, input="\n", capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()[: len(symbols)]


def offsets(path: Path) -> dict[str, int]:
    """As readelf has them; in the lab's programs text is at its own address in the file."""
    said = subprocess.run(["nm", str(path)], capture_output=True, text=True, check=True).stdout
    return {fields[2]: int(fields[0], 16) for fields in map(str.split, said.splitlines()) if len(fields) == 3}


@needs("ebpf", "cc")
def test_by_name_and_by_expression() -> None:
    path = build("leak")
    known = offsets(path)
    small, both, none, broad = look(path, "leak_small", "/^leak_(small|big)$/", "leak_none", "/./")
    assert small == f"leak_small@{known['leak_small']}"
    assert set(both.split(",")) == {f"{name}@{known[name]}" for name in ("leak_small", "leak_big")}
    assert none == ""
    assert len(broad.split(",")) <= 50


@needs("ebpf", "cc")
@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"\x7fELF" + b"\xff" * 5000, os.urandom(5000)])
def test_what_is_no_program_has_no_functions(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(data)
    assert look(tmp_path / "file", "malloc", "/malloc/") == ["", ""]


@needs("ebpf", "cc")
@pytest.mark.parametrize("length", [64, 1000, 5000, 12000])
def test_a_program_that_is_cut_off(length: int, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(build("leak").read_bytes()[:length])
    for found in look(tmp_path / "file", "leak_small", "/leak/"):
        assert found == "" or "leak" in found


@needs("ebpf", "cc")
def test_another_file_with_the_same_inode_number_is_looked_at_anew(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(build("leak").read_bytes())
    command = [sys.executable, "-c", LOOK, str(path), "main"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        first = process.stdout.readline()
        path.write_bytes(build("forks").read_bytes())
        process.stdin.write("\n")
        process.stdin.flush()
        second = process.stdout.readline()
    assert first == f"main@{offsets(build('leak'))['main']}\n"
    assert second == f"main@{offsets(build('forks'))['main']}\n"
