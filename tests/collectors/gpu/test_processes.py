"""Series of the processes on a GPU, and which of them loads."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.gpu.processes_bench import GIB, GPU, MIB, Bench, write_processes
from collectors.host.trees import write_process
from oomcast_collectors.gpu.driver import ProcessMemory


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    return write_processes(tmp_path)


def test_the_whole(proc: Path) -> None:
    bench = Bench(proc, processes=1)
    assert (
        bench.look({1: 20 * GIB, 2: 30 * GIB, 999: 5 * GIB}, used=60 * GIB, accounting={2: 31 * GIB, 1: 40 * GIB}) == []
    )
    labels = f'cgroup="/system.slice/s2.service",gpu="{GPU}",pid="2",process="p2"'
    assert bench.text() == "\n".join(
        (
            f"oomcast_gpu_process_memory_bytes{{{labels}}} 3.221225472e+10",
            f"oomcast_gpu_process_memory_peak_bytes{{{labels}}} 3.3285996544e+10",
            f'oomcast_gpu_process_memory_other_bytes{{gpu="{GPU}"}} 2.68435456e+10',
            f'oomcast_gpu_memory_unattributed_bytes{{gpu="{GPU}"}} 5.36870912e+09',
            f'oomcast_gpu_processes{{gpu="{GPU}"}} 3.0',
            f'oomcast_gpu_processes_unresolved{{gpu="{GPU}"}} 1.0',
        )
    )


def test_a_process_that_proc_does_not_have_is_its_pid(proc: Path) -> None:
    bench = Bench(proc)
    bench.look({999: 5 * GIB})
    assert f'oomcast_gpu_process_memory_bytes{{gpu="{GPU}",pid="999"}} 5.36870912e+09' in bench.text()


def test_a_gpu_without_processes(proc: Path) -> None:
    bench = Bench(proc)
    bench.look({}, used=7)
    assert [bench.value(name) for name in ("processes", "processes_unresolved", "memory_unattributed_bytes")] == [
        0,
        0,
        7,
    ]
    assert (bench.value("process_memory_other_bytes"), bench.shown()) == (None, set())


def test_no_series_of_their_own(proc: Path) -> None:
    bench = Bench(proc, processes=0)
    bench.look({1: 5, 2: 6}, used=12)
    assert (bench.shown(), bench.value("process_memory_other_bytes")) == (set(), 11)
    assert bench.value("memory_unattributed_bytes") == 1


def test_the_peak_is_the_drivers_and_never_below_what_was_seen(proc: Path) -> None:
    bench = Bench(proc)
    bench.look({1: 5 * GIB, 2: 3 * GIB})
    assert bench.values("process_memory_peak_bytes") == {}
    bench.look({1: 4 * GIB, 2: 3 * GIB}, accounting={1: 2 * GIB, 3: 9 * GIB})
    assert bench.values("process_memory_peak_bytes") == {"1": 5 * GIB}


def test_instances_of_one_process_add_up(proc: Path) -> None:
    bench = Bench(proc)
    bench.look([ProcessMemory(1, 5, 1), ProcessMemory(2, 7, 1), ProcessMemory(1, 6, 2)], used=20)
    assert bench.values("process_memory_bytes") == {"1": 11, "2": 7}
    assert (bench.value("processes"), bench.value("memory_unattributed_bytes")) == (2, 2)
    bench.look([ProcessMemory(1, 5, 1), ProcessMemory(1, None, 2)], used=20)
    assert (bench.shown(), bench.value("memory_unattributed_bytes")) == (set(), None)


def test_memory_that_is_not_told(proc: Path) -> None:
    bench = Bench(proc, processes=1)
    bench.look({1: None, 2: 4, 3: 3}, used=20)
    assert bench.values("process_memory_bytes") == {"2": 4}
    assert (bench.value("process_memory_other_bytes"), bench.value("memory_unattributed_bytes")) == (3, None)
    assert bench.value("processes") == 3
    bench.look({1: None, 2: 4})
    assert bench.value("process_memory_other_bytes") is None
    bench.look({2: 4}, used=None, usable=None)
    assert (bench.shown(), bench.value("memory_unattributed_bytes")) == ({"2"}, None)


def test_unattributed_of_two_readings_that_do_not_fit(proc: Path) -> None:
    bench = Bench(proc)
    assert [bench.look({1: 101}, used=100), bench.value("memory_unattributed_bytes")] == [[], 0]
    assert [bench.look({1: 102}, used=100), bench.value("memory_unattributed_bytes")] == [[], None]


def test_two_of_one_size_do_not_take_turns(proc: Path) -> None:
    bench = Bench(proc, processes=1)
    sizes = [(10 * GIB, 10 * GIB), (10 * GIB, 11 * GIB - MIB), (10 * GIB, 11 * GIB + MIB), (12 * GIB, 11 * GIB + MIB)]
    # Too far apart for any of them to be growing.
    shown = [(bench.look({1: one, 2: other}, seconds=100), bench.shown())[1] for one, other in sizes]
    assert shown == [{"1"}, {"1"}, {"2"}, {"2"}]
    small = Bench(proc, processes=1)
    sizes = [(8 * MIB, 8 * MIB), (8 * MIB, 72 * MIB), (8 * MIB, 73 * MIB)]
    shown = [(small.look({1: one, 2: other}, seconds=100), small.shown())[1] for one, other in sizes]
    assert shown == [{"1"}, {"1"}, {"2"}]


def test_the_fastest_growing_is_shown_beside_the_largest(proc: Path) -> None:
    bench = Bench(proc, processes=1)
    held = {1: 30 * GIB, 2: 2 * GIB, 3: GIB}
    bench.look(held)
    bench.look(held | {2: 2 * GIB + 63 * MIB})
    assert bench.shown() == {"1"}
    bench.look(held | {2: 2 * GIB + 64 * MIB})
    assert bench.shown() == {"1", "2"}
    # It stays when it no longer grows, until another grows clearly more.
    for _ in range(30):
        bench.look(held | {2: 2 * GIB + 64 * MIB})
    assert bench.shown() == {"1", "2"}
    bench.look(held | {3: GIB + 65 * MIB})
    assert bench.shown() == {"1", "3"}


def test_series_are_made_once(proc: Path) -> None:
    bench = Bench(proc)
    found = []
    for _ in range(2):
        bench.look({1: 5, 2: 6}, accounting={1: 7})
        found.append([sample.series for sample in bench.processes.samples()])
    assert found[0] == found[1]


def test_a_process_that_ended_leaves_at_once(proc: Path) -> None:
    bench = Bench(proc)
    bench.look({1: 5, 2: 6})
    bench.look({2: 6})
    assert (bench.shown(), bench.value("processes")) == ({"2"}, 1)


def test_a_reused_pid_has_new_labels_and_is_a_new_process(proc: Path) -> None:
    bench = Bench(proc)
    bench.look({1: 5 * GIB})
    write_process(proc, 1, "other", start=999)
    (ended,) = bench.look({1: 6 * GIB})
    assert (ended.kind, ended.fields["process"], ended.fields["alive"]) == ("gpu_process_ended", "p1", 0)
    assert 'process="other"' in bench.text()
    assert bench.processes.loading_since(GPU) == bench.clock.mono


def test_a_process_that_becomes_known_or_unknown_is_the_same_one(proc: Path) -> None:
    bench = Bench(proc)
    bench.look({50: 5 * GIB})
    write_process(proc, 50, "late")
    assert bench.look({50: 5 * GIB}, seconds=10) == []
    assert 'process="late"' in bench.text()
    (proc / "50/stat").unlink()
    assert bench.look({50: 5 * GIB}) == []
    assert 'process="late"' in bench.text()


def test_a_flood_of_processes_is_bounded_and_counted(proc: Path) -> None:
    bench = Bench(proc, processes=2)
    held: dict[int, int | None] = {pid: GIB + pid for pid in range(1000, 3000)}
    bench.look(held, used=3000 * GIB)
    assert bench.look(held, used=3000 * GIB) == []
    total = sum(value or 0 for value in held.values())
    assert bench.value("processes") == 2000
    assert bench.value("memory_unattributed_bytes") == 3000 * GIB - total
    assert bench.shown() == {"2999", "2998"}
    assert bench.value("processes_unresolved") == 256


def test_each_gpu_by_itself_and_forgotten(proc: Path) -> None:
    bench = Bench(proc)
    bench.look({1: 5 * GIB})
    bench.look({1: 7 * GIB}, gpu="GPU-2")
    assert bench.values("process_memory_bytes") == {"1": 5 * GIB}
    assert bench.values("process_memory_bytes", "GPU-2") == {"1": 7 * GIB}
    assert {dict(s.series.labels)["gpu"] for s in bench.processes.samples({GPU})} == {"GPU-2"}
    bench.processes.forget(GPU)
    bench.processes.forget("never known")
    assert (bench.values("processes"), bench.values("processes", "GPU-2")) == ({}, {"": 1})
    assert bench.processes.loading_since(GPU) is None
    assert bench.look({}) == []


def test_a_list_that_fails_takes_the_series_and_keeps_what_is_known(proc: Path) -> None:
    bench = Bench(proc)
    bench.look({1: 5 * GIB})
    since = bench.processes.loading_since(GPU)
    assert since is not None
    assert bench.look(None, used=5 * GIB) == []
    assert (bench.processes.samples(), bench.processes.loading_since(GPU)) == ([], since)
    assert bench.look({1: 5 * GIB}) == []
    assert (bench.shown(), bench.processes.loading_since(GPU)) == ({"1"}, since)
    bench.look(None, used=5 * GIB)
    (ended,) = bench.look({})
    assert ended.kind == "gpu_process_ended"


def test_the_newest_large_process_is_what_loads(proc: Path) -> None:
    bench = Bench(proc)
    assert bench.processes.loading_since(GPU) is None
    bench.look({})
    bench.look({1: 4 * GIB - 1})
    assert bench.processes.loading_since(GPU) is None
    came = bench.clock.mono
    bench.look({1: 4 * GIB, 2: GIB})
    assert bench.processes.loading_since(GPU) == came
    bench.look({1: 4 * GIB, 2: 5 * GIB})
    assert bench.processes.loading_since(GPU) == came + 2
    bench.look({1: 4 * GIB})
    assert bench.processes.loading_since(GPU) == came
    bench.look({1: 4 * GIB}, usable=None)
    assert bench.processes.loading_since(GPU) is None


def test_what_was_there_at_the_first_look_came_when_it_started(proc: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    (proc / "uptime").write_text("5000.00 1\n")
    write_process(proc, 1, "p1", start=4000 * ticks)
    bench = Bench(proc)
    bench.look(None)
    bench.look({1: 10 * GIB})
    assert bench.processes.loading_since(GPU) == bench.clock.mono - 1000
    write_process(proc, 2, "p2", start=4500 * ticks)
    bench.look({1: 10 * GIB, 2: 10 * GIB})
    assert bench.processes.loading_since(GPU) == bench.clock.mono


@given(
    st.lists(
        st.tuples(st.dictionaries(st.integers(1, 12), st.integers(0, 20 * GIB)), st.integers(0, 5 * GIB)), max_size=8
    ),
    st.integers(0, 3),
)
def test_shown_and_others_and_unattributed_are_what_is_used(
    looks: list[tuple[dict[int, int], int]], count: int
) -> None:
    bench = Bench(Path("/nonexistent"), processes=count)
    for held, rest in looks:
        used = sum(held.values()) + rest
        bench.look(held, used=used)
        shown = bench.values("process_memory_bytes")
        parts = [*shown.values(), bench.value("process_memory_other_bytes"), bench.value("memory_unattributed_bytes")]
        assert sum(part for part in parts if isinstance(part, int)) == used
        assert min(count, len(held)) <= len(shown) <= 2 * count
        assert (bench.value("process_memory_other_bytes") is None) == (len(shown) == len(held))
