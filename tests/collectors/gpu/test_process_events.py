"""Events of the processes on a GPU: what it grew by, and who went."""

import os
import subprocess
from pathlib import Path

import pytest

from collectors.gpu.processes_bench import GIB, GPU, USABLE, Bench, write_processes
from collectors.host.trees import write_process
from oomcast.contract import Event


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    return write_processes(tmp_path)


def test_a_step_names_who_took_it(proc: Path) -> None:
    bench = Bench(proc)
    bench.look({1: 10 * GIB, 2: 5 * GIB}, used=16 * GIB)
    (step,) = bench.look({1: 15 * GIB, 2: 5 * GIB}, used=22 * GIB, seconds=40)
    assert step == Event(
        "gpu_memory_step",
        bench.clock.wall,
        bench.clock.mono,
        "GPU-7f3a1b2c grew 6.4 GB in 40 s, p1 (pid 1) in s1.service by 5.4 GB",
        {
            "gpu": GPU, "bytes": 6 * GIB, "seconds": 40, "pid": 1, "process": "p1",
            "cgroup": "/system.slice/s1.service", "owner": "s1.service", "process_bytes": 5 * GIB,
            "unattributed_bytes": GIB,
        },
    )  # fmt: skip


def test_a_step_that_nobody_or_somebody_unknown_took(proc: Path) -> None:
    bench = Bench(proc)
    bench.look({}, used=0)
    (step,) = bench.look({}, used=4 * GIB)
    assert step.summary == "GPU-7f3a1b2c grew 4.3 GB in 2 s"
    assert step.fields == {"gpu": GPU, "bytes": 4 * GIB, "seconds": 2, "unattributed_bytes": 4 * GIB}
    (step,) = bench.look({999: 4 * GIB}, used=8 * GIB)
    assert step.summary == "GPU-7f3a1b2c grew 4.3 GB in 2 s, pid 999 by 4.3 GB"
    assert step.fields.keys() == {"gpu", "bytes", "seconds", "pid", "process_bytes", "unattributed_bytes"}
    (step,) = bench.look(None, used=12 * GIB)
    assert step.fields.keys() == {"gpu", "bytes", "seconds"}


def test_the_threshold_of_a_step(proc: Path) -> None:
    bench = Bench(proc, step_ratio=0.1)
    bench.look({}, used=0)
    assert bench.look({}, used=8 * GIB - 1) == []
    assert len(bench.look({}, used=8 * GIB)) == 1
    small = Bench(proc, step_ratio=0.1)
    small.look({}, used=0, usable=5 * GIB)
    assert small.look({}, used=GIB - 1, usable=5 * GIB) == []
    assert len(small.look({}, used=GIB, usable=5 * GIB)) == 1


def test_the_event_has_the_time_of_the_reading(proc: Path) -> None:
    bench = Bench(proc)
    bench.look({}, used=0)
    late = bench.clock.mono - 0.5
    (step,) = bench.processes.update(GPU, 9 * GIB, USABLE, [], {}, late)
    assert (step.time, step.monotonic) == (bench.clock.wall - 0.5, late)


def test_the_end_of_a_large_process(proc: Path) -> None:
    bench = Bench(proc)
    bench.look({1: 5 * GIB, 2: GIB, 3: GIB - 1, 999: 2 * GIB})
    bench.look({1: 3 * GIB, 2: GIB, 3: GIB - 1, 999: 2 * GIB})
    (proc / "2/stat").unlink()
    ended = bench.look({}, accounting={2: 7 * GIB})
    assert [(e.kind, e.summary) for e in ended] == [
        (
            "gpu_process_ended",
            "p1 (pid 1) in s1.service released all memory of GPU-7f3a1b2c: it held 3.2 GB, 5.4 GB at most",
        ),
        ("gpu_process_ended", "pid 999 is no longer on GPU-7f3a1b2c: it held 2.1 GB, 2.1 GB at most"),
        ("gpu_process_ended", "p2 (pid 2) in s2.service ended on GPU-7f3a1b2c: it held 1.1 GB, 7.5 GB at most"),
    ]
    assert ended[0].fields == {
        "gpu": GPU, "pid": 1, "process": "p1", "cgroup": "/system.slice/s1.service", "owner": "s1.service",
        "bytes": 3 * GIB, "peak_bytes": 5 * GIB, "alive": 1,
    }  # fmt: skip
    assert ended[1].fields == {"gpu": GPU, "pid": 999, "bytes": 2 * GIB, "peak_bytes": 2 * GIB}
    assert (ended[2].fields["peak_bytes"], ended[2].fields["alive"]) == (7 * GIB, 0)
    assert bench.look({}) == []


def test_on_a_large_gpu_an_end_is_one_percent(proc: Path) -> None:
    bench = Bench(proc)
    bench.look({1: 3 * GIB, 2: 2 * GIB}, usable=300 * GIB)
    assert [event.fields["pid"] for event in bench.look({}, usable=300 * GIB)] == [1]


def test_a_name_cannot_break_a_summary(proc: Path) -> None:
    write_process(proc, 1, b'a\n"\x1b[0m')
    bench = Bench(proc)
    bench.look({1: 3 * GIB})
    (ended,) = bench.look({})
    assert ended.summary.startswith('a?"?[0m (pid 1) in x.service released')
    assert ended.fields["process"] == 'a\n"\x1b[0m'
    bench.look({1: 3 * GIB})
    assert r'process="a\n\"' in bench.text()


def test_without_readings_of_memory_an_end_is_a_gibibyte(proc: Path) -> None:
    bench = Bench(proc)
    bench.look({1: GIB, 2: GIB - 1}, used=None, usable=None)
    assert [event.fields["pid"] for event in bench.look({}, used=None, usable=None)] == [1]


def test_real_processes_one_killed_and_one_that_frees() -> None:
    bench = Bench(Path("/proc"))
    with subprocess.Popen(["sleep", "600"]) as one, subprocess.Popen(["sleep", "600"]) as other:
        try:
            assert bench.look({one.pid: 5 * GIB, other.pid: 4 * GIB}) == []
            assert bench.values("process_memory_bytes") == {str(one.pid): 5 * GIB, str(other.pid): 4 * GIB}
            assert bench.text().count('process="sleep"') == 2
            one.kill()
            os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)
            ended = bench.look({})
            assert [(e.fields["pid"], e.fields["alive"]) for e in ended] == [(one.pid, 0), (other.pid, 1)]
        finally:
            one.kill()
            other.kill()
