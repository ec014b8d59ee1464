import logging
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from collectors.host.hosts import real_host, values
from collectors.host.trees import write_process
from fakes import FakeClock
from oomcast.contract import Context, Roots
from oomcast.metric import Sample
from oomcast_collectors.host.files import Parsed
from oomcast_collectors.host.processes import ProcessFinder
from oomcast_collectors.host.serving import ServingStarts
from oomcast_collectors.host.usage import ProcessUsage, parse_status

MIB = 1 << 20
NAME = "oomcastmemory"


def usage(proc: Path, *patterns: str, names: int = 20) -> ProcessUsage:
    roots, clock = Roots(proc=proc), FakeClock()
    starts = ServingStarts(Context(roots, clock, logging.getLogger("host"), lambda facts: None))
    return ProcessUsage(roots, ProcessFinder(roots, patterns), starts, clock, names)


def lines(samples: list[Sample]) -> dict[str, object]:
    found: dict[str, object] = {s.series.head.strip().removeprefix("oomcast_process_"): s.value for s in samples}
    assert len(found) == len(samples), "a series came twice"
    return found


def test_sums_by_name(tmp_path: Path) -> None:
    write_process(tmp_path, 4, "vllm", size=9, anon=100, file=20, shmem=3, swap=4, locked=5, faults=70)
    write_process(tmp_path, 5, "vllm-worker", size=9, anon=1000, file=200, shmem=30, swap=40, locked=50)
    write_process(tmp_path, 6, "ollama", size=9, anon=7)
    write_process(tmp_path, 7, "bash", size=9, anon=7)
    assert lines(usage(tmp_path, "vllm*", "ollama", "sglang*").scan().samples) == {
        'resident_bytes{kind="anon",process="vllm"}': 1100 << 10,
        'resident_bytes{kind="file",process="vllm"}': 220 << 10,
        'resident_bytes{kind="shmem",process="vllm"}': 33 << 10,
        'swap_bytes{process="vllm"}': 44 << 10,
        'locked_bytes{process="vllm"}': 55 << 10,
        'oomcast_processes{process="vllm"}': 2,
        'resident_bytes{kind="anon",process="ollama"}': 7 << 10,
        'resident_bytes{kind="file",process="ollama"}': 0,
        'resident_bytes{kind="shmem",process="ollama"}': 0,
        'swap_bytes{process="ollama"}': 0,
        'locked_bytes{process="ollama"}': 0,
        'oomcast_processes{process="ollama"}': 1,
        'major_faults_total{process="vllm"}': 0,
        'major_faults_total{process="ollama"}': 0,
        'major_faults_total{process="sglang"}': 0,
        "names_dropped": 0,
    }


def test_families_are_in_one_piece(tmp_path: Path) -> None:
    for pid, comm in ((4, "a"), (5, "b"), (6, "c")):
        write_process(tmp_path, pid, comm, size=9)
    order = [s.series.metric.name for s in usage(tmp_path, "*").scan().samples]
    assert [n for i, n in enumerate(order) if n not in order[:i]] == [
        n for i, n in enumerate(order) if i == 0 or order[i - 1] != n
    ]


def test_faults_never_go_back(tmp_path: Path) -> None:
    scan = usage(tmp_path, "vllm").scan

    def faults() -> object:
        return lines(scan().samples)['major_faults_total{process="vllm"}']

    write_process(tmp_path, 4, "vllm", size=9, start=100, faults=5000)
    assert faults() == 0  # what was before the first look
    write_process(tmp_path, 4, "vllm", size=9, start=100, faults=5010)
    assert faults() == 10
    write_process(tmp_path, 4, "vllm", size=9, start=200, faults=3)  # another process with the same pid
    assert faults() == 13
    write_process(tmp_path, 9, "vllm", size=9, start=300, faults=100)
    assert faults() == 113
    write_process(tmp_path, 9, "vllm", size=9, start=300, faults=90)
    assert faults() == 113
    for pid in (4, 9):
        (tmp_path / f"{pid}/stat").unlink()
    gone = scan()
    assert lines(gone.samples) == {
        'oomcast_processes{process="vllm"}': 0,
        'major_faults_total{process="vllm"}': 113,
        "names_dropped": 0,
    }
    assert {s.created for s in gone.samples if s.series.metric.kind == "counter"} == {FakeClock().time()}


def test_a_malformed_field_is_absent_for_its_name_only(tmp_path: Path) -> None:
    write_process(tmp_path, 4, "vllm", size=9, anon=100, file=20)
    write_process(tmp_path, 5, "vllm", size=9, anon=100, file=20)
    write_process(tmp_path, 6, "ollama", size=9, anon=3)
    (tmp_path / "stat").write_text("btime 1700000000\n")
    status = tmp_path / "5/status"
    status.write_text(status.read_text().replace("RssAnon:\t100 kB", "RssAnon:\tx kB"))
    scan = usage(tmp_path, "vllm", "ollama").scan()
    found = lines(scan.samples)
    assert scan.malformed == {"RssAnon"}
    assert 'resident_bytes{kind="anon",process="vllm"}' not in found
    assert found['resident_bytes{kind="file",process="vllm"}'] == 40 << 10
    assert found['resident_bytes{kind="anon",process="ollama"}'] == 3 << 10


@pytest.mark.parametrize("missing", ["status", "stat"])
def test_a_process_that_ends_while_it_is_measured(tmp_path: Path, missing: str) -> None:
    write_process(tmp_path, 4, "vllm", size=9, anon=1)
    write_process(tmp_path, 5, "vllm", size=9, anon=1)
    (tmp_path / "5" / missing).unlink()
    assert lines(usage(tmp_path, "vllm").scan().samples)['oomcast_processes{process="vllm"}'] == 1


def test_a_zombie_does_not_count(tmp_path: Path) -> None:
    write_process(tmp_path, 4, "vllm")
    (tmp_path / "4/status").write_text("Name:\tvllm\nState:\tZ (zombie)\n")
    assert 'oomcast_processes{process="vllm"}' not in lines(usage(tmp_path, "vllm").scan().samples)


def test_the_largest_names_stay_and_the_rest_is_counted(tmp_path: Path) -> None:
    for pid in range(1, 31):
        write_process(tmp_path, pid, f"name-{pid}", size=9, anon=pid)
    found = lines(usage(tmp_path, "*", names=3).scan().samples)
    assert found["names_dropped"] == 27
    assert {k for k in found if k.startswith("oomcast_processes")} == {
        f'oomcast_processes{{process="name-{n}"}}' for n in (28, 29, 30)
    }
    assert {k for k in found if k.startswith("major")} == {
        f'major_faults_total{{process="name-{n}"}}' for n in (28, 29, 30)
    }


def test_names_without_number_are_forgotten(tmp_path: Path) -> None:
    scanner = usage(tmp_path, "*", "vllm", names=5)
    for round in range(100):
        write_process(tmp_path, 7, f"name-{round}", size=9, start=round)
        found = lines(scanner.scan().samples)
    assert 'oomcast_processes{process="name-99"}' in found
    assert len(found) < 30
    assert len(scanner._faults) < 15
    assert len(scanner._series) < 60


def test_hostile_names_make_one_series_each(tmp_path: Path) -> None:
    write_process(tmp_path, 4, b"\xff", size=9, anon=1)
    write_process(tmp_path, 5, b"\\xff", size=9, anon=2)
    write_process(tmp_path, 6, b'a"b\\c\nd', size=9)
    found = lines(usage(tmp_path, "*").scan().samples)
    assert found['resident_bytes{kind="anon",process="\\\\xff"}'] == 3 << 10
    assert found['oomcast_processes{process="a\\"b\\\\c\\nd"}'] == 1


def test_status_of_a_kernel_without_kinds() -> None:
    assert parse_status(b"VmSize:\t 5 kB\nVmRSS:\t 3 kB\n") == Parsed({"VmSize": 5120})
    assert parse_status(b"VmSize:\t 5 kB\nRssAnon:\t 3") == Parsed({"VmSize": 5120}, frozenset({"(last line)"}))


ENGINE = """
import ctypes, mmap, sys
anon = mmap.mmap(-1, 48 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
shared = mmap.mmap(-1, 16 << 20, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
file = open(sys.argv[1], "rb")
weights = mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
locked = mmap.mmap(-1, 64 << 10, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
ctypes.CDLL(None).mlock(ctypes.byref(ctypes.c_char.from_buffer(locked)), 64 << 10)
print("ready", flush=True)
for line in sys.stdin:
    if line == "memory\\n":
        for area in (anon, shared):
            for at in range(0, len(area), 4096):
                area[at] = 1
    elif line == "scattered\\n":
        weights.madvise(mmap.MADV_RANDOM)  # without it one fault reads everything ahead
        sum(weights[at] for at in range(0, len(weights), 1 << 20))
    else:
        sum(weights[at] for at in range(0, len(weights), 4096))
    print("done", flush=True)
"""


class Engine:
    """A real process that holds memory of all kinds when told to."""

    def __init__(self, folder: Path) -> None:
        self.weights = folder / "weights"
        self.weights.write_bytes(os.urandom(MIB) * 32)
        script = folder / f"{NAME}.py"
        script.write_text(ENGINE)
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, script, self.weights], stdin=pipe, stdout=pipe, text=True)

    def answer(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline()

    def touch(self, what: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        self.answer()

    def drop_cache(self) -> None:
        """Makes the kernel forget the pages of the weights, so that the next access reads them from the disk."""
        with self.weights.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.fixture
def engine() -> Iterator[Engine]:
    # Not /tmp: files of a tmpfs are shmem.
    with TemporaryDirectory(dir="/var/tmp") as folder:
        made = Engine(Path(folder))
        with made.process:
            made.answer()
            yield made
            made.process.kill()


def grown(before: dict[str, object], after: dict[str, object], key: str) -> float:
    was, is_now = before[key], after[key]
    assert isinstance(was, int | float)
    assert isinstance(is_now, int | float)
    return is_now - was


def test_a_real_process_by_kind_of_memory(engine: Engine) -> None:
    scan = usage(Path("/proc"), NAME).scan
    before = lines(scan().samples)
    engine.touch("memory")
    memory = lines(scan().samples)
    engine.touch("weights")
    after = lines(scan().samples)
    kinds = {k: f'resident_bytes{{kind="{k}",process="{NAME}"}}' for k in ("anon", "file", "shmem")}
    slack = mmap.PAGESIZE * 256
    assert grown(before, memory, kinds["anon"]) == pytest.approx(48 * MIB, abs=slack)
    assert grown(before, memory, kinds["shmem"]) == pytest.approx(16 * MIB, abs=slack)
    assert grown(before, memory, kinds["file"]) == pytest.approx(0, abs=slack)
    assert grown(memory, after, kinds["file"]) == pytest.approx(32 * MIB, abs=slack)
    assert grown(memory, after, kinds["anon"]) == pytest.approx(0, abs=slack)
    assert after[f'oomcast_processes{{process="{NAME}"}}'] == 1
    assert after[f'locked_bytes{{process="{NAME}"}}'] == 64 << 10
    assert after[f'swap_bytes{{process="{NAME}"}}'] == 0


def test_weights_that_fault_in_on_demand_are_major_faults(engine: Engine) -> None:
    scan = usage(Path("/proc"), NAME).scan
    key = f'major_faults_total{{process="{NAME}"}}'
    engine.drop_cache()
    assert lines(scan().samples)[key] == 0
    engine.touch("scattered")
    first = lines(scan().samples)[key]
    assert isinstance(first, int)
    assert 32 <= first <= 40
    assert lines(scan().samples)[key] == first


def test_the_collector_shows_it_at_its_own_pace(engine: Engine) -> None:
    clock = FakeClock()
    machine = real_host(NAME)
    machine.clock = clock
    machine.__post_init__()
    key = f'processes{{process="{NAME}"}}'
    assert values(machine.collect_all())[key] == 1
    engine.process.kill()
    engine.process.wait()
    clock.advance(9.9)
    assert values(machine.collect_all())[key] == 1
    clock.advance(0.1)
    assert values(machine.collect_all())[key] == 0
