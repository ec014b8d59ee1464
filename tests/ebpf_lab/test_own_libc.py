"""A target with a C library of its own."""

from pathlib import Path

from ebpf_lab.lab import build
from ebpf_lab.own_libc import in_root, libc_of, own_libc_root, replace_libc
from requires import needs

pytestmark = needs("cc", "netns")


def libc_lines(pid: int) -> list[str]:
    return [line for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if "libc.so.6" in line]


def test_a_libc_of_its_own(tmp_path: Path) -> None:
    root = own_libc_root(tmp_path / "root", build("leak"))
    with in_root(root, "leak") as target:
        assert target.step()["phase"] == "malloc"
        assert Path(f"/proc/{target.pid}/ns/mnt").stat().st_ino != Path("/proc/self/ns/mnt").stat().st_ino
        path = f"/{libc_of(root).relative_to(root)}"
        assert {line.split()[5] for line in libc_lines(target.pid)} == {path}
        assert {int(line.split()[4]) for line in libc_lines(target.pid)} == {libc_of(root).stat().st_ino}
        assert Path(path).stat().st_ino != libc_of(root).stat().st_ino
        assert Path(f"/proc/{target.pid}/root{path}").stat().st_ino == libc_of(root).stat().st_ino


def test_a_libc_that_is_replaced(tmp_path: Path) -> None:
    root = own_libc_root(tmp_path / "root", build("leak"))
    with in_root(root, "leak") as target:
        before = libc_of(root).stat().st_ino
        replace_libc(root)
        assert libc_of(root).stat().st_ino != before
        assert all(line.endswith(" (deleted)") for line in libc_lines(target.pid))
        assert {int(line.split()[4]) for line in libc_lines(target.pid)} == {before}
        assert target.step()["phase"] == "malloc"
