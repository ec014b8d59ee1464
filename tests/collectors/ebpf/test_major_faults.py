"""Major faults by kind of file, compared with what the kernel tells the faulting process itself."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.ebpf import paging
from collectors.ebpf.live import Live
from ebpf_lab.lab import Target, build
from oomcast_collectors.ebpf import metrics
from oomcast_collectors.ebpf.child.faults.file_kinds import FileKinds, kind_of
from requires import needs

LIVE = needs("ebpf", "cc")
FAULTS = metrics.MAJOR_FAULTS.name


@pytest.fixture
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder whose files can be read from a disk again: what /tmp has may be in memory only."""
    folder = Path("/var/tmp", f"oomcast-faults-{os.getpid()}")
    folder.mkdir()
    yield folder
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


def data(path: Path, size: int) -> Path:
    path.write_bytes(os.urandom(size))
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return path


def counts(live: Live, name: str) -> dict[str, float]:
    """Faults so far by kind of file, those without any left out."""
    found = {labels[1]: v for (metric, labels), v in live.rows.items() if metric == FAULTS and labels[0] == name}
    return {kind: value for kind, value in found.items() if value}


@LIVE
def test_each_kind_of_file_has_its_faults(disk: Path) -> None:
    names = ["weights.safetensors", "libweights.so.1", "prompts.txt"]
    files = [data(disk / name, 300_000) for name in names]
    with Target(build("faults"), *files) as target, Live(["major_faults"], {"processes": ["faults"]}) as live:
        live.targets(1)
        before = counts(live, "faults")
        assert sum(target.step()["major_faults"] for _ in files) == 3 * 74
        live.settle()
        assert before == {}
        assert counts(live, "faults") == {"weights": 74, "library": 74, "other": 74}
        assert live.value(metrics.PROBE_LOST.name, "major_faults", "files") == 0
        target.stop()
        live.targets(0)
        assert counts(live, "faults") == {"weights": 74, "library": 74, "other": 74}


@LIVE
def test_what_is_read_ahead_is_no_fault(disk: Path) -> None:
    steps = list(paging.STEPS)
    command: list[str | Path] = [sys.executable, paging.__file__, data(disk / "model.gguf", 16 << 20), *steps]
    with Target(*command) as target, Live(["major_faults"], {"processes": ["paging.py"]}) as live:
        live.targets(1)
        faults = 0
        for step in steps:
            said = target.step()
            faults += said["major_faults"]
            live.settle()
            assert (said["phase"], counts(live, "paging.py")) == (step, {"weights": faults})
    assert faults > 100


@LIVE
def test_a_process_that_is_gone_before_anybody_looked(disk: Path) -> None:
    files = [data(disk / "model.bin", 300_000)]
    with Live(["major_faults"], {"processes": ["faults"]}) as live:
        live.settle()
        for round_ in (1, 2):
            with Target(build("faults"), *files) as target:
                live.targets(1)
                target.step()
                target.go()
                assert target.wait() == 0
            live.targets(0)
            # What the file was called may be lost with the process, the faults are not.
            assert sum(counts(live, "faults").values()) == 74 * round_


@LIVE
def test_what_no_target_reads_is_not_counted(disk: Path) -> None:
    file = data(disk / "model.bin", 300_000)
    with (
        Target(build("faults"), file) as bystander,
        Target(build("leak")) as target,
        Live(["major_faults"], {"processes": ["leak"]}) as live,
    ):
        live.targets(1)
        assert bystander.step()["major_faults"] == 74
        target.step()
        live.settle()
        assert (counts(live, "leak"), counts(live, "faults")) == ({}, {})


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/models/a/model-00001-of-00002.safetensors", "weights"),
        ("/models/pytorch_model.bin", "weights"),
        ("/models/q4.gguf (deleted)", "weights"),
        ("/usr/lib/libc.so.6", "library"),
        ("/usr/lib/python3/_x.cpython-311-x86_64-linux-gnu.so (deleted)", "library"),
        ("/usr/bin/server", "executable"),
        ("/data/server", "other"),
        ("/dev/shm/ring\\012", "other"),
        ("/etc/ld.so.cache", "library"),
        ("/", "other"),
    ],
)
def test_kind_of(path: str, kind: str) -> None:
    assert kind_of(path, "/usr/bin/server") == kind


def maps(folder: Path, *lines: str) -> FileKinds:
    home = folder / "7"
    home.mkdir()
    (home / "exe").symlink_to("/usr/bin/server")
    (home / "maps").write_bytes("".join(f"7f0000000000-7f0000001000 {line}\n" for line in lines).encode("latin-1"))
    kinds = FileKinds(str(folder), 7)
    kinds.look()
    return kinds


def test_files_by_device_and_inode(tmp_path: Path) -> None:
    kinds = maps(
        tmp_path, "r--p 00000000 fe:10 5       /models/a.gguf", "rw-p 00000000 00:00 0 ", "r-xp 0 00:2a 9  /a.so"
    )
    assert kinds.kind(0xFE << 20 | 0x10, 5) == "weights"
    assert kinds.kind(0, 0) is None


def test_a_file_of_an_overlay_is_known_by_its_inode_alone(tmp_path: Path) -> None:
    same = ("r--p 0 00:2a 9  /a.so", "r--p 0 00:2b 9  /b.so.1", "r--p 0 00:2a 8 /a.gguf", "r--p 0 00:2b 8 /b")
    kinds = maps(tmp_path, *same)
    assert kinds.kind(1, 9) == "library"
    assert kinds.kind(1, 8) is None


def test_garbage_instead_of_mappings(tmp_path: Path) -> None:
    kinds = maps(
        tmp_path, "r--p", "r--p 0 zz:00 5 /a", "\xff" * 4000, "r--p 0 00:01 99999999999999999999999 /a\xff.gguf"
    )
    assert kinds.kind(1, 10**23 - 1) == "weights"


def test_a_process_that_is_gone_has_no_files(tmp_path: Path) -> None:
    kinds = FileKinds(str(tmp_path), 7)
    kinds.look()
    assert kinds.kind(1, 2) is None
