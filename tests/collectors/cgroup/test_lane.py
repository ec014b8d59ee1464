"""Cgroups about to be full are read ten times a second, and no other."""

import threading
import time

import pytest

from collectors.cgroup import trees
from collectors.cgroup.conftest import MakeBench
from collectors.cgroup.support import MIB, Bench, open_files, swaps, v2


@pytest.fixture
def rising(root: trees.Host, bench: MakeBench) -> Bench:
    """A cgroup /a that has 30 MiB left and takes 10 in a second, and a calm one /b."""
    root.write("/a", v2(used=60 * MIB, limit=100 * MIB))
    root.write("/b", v2(used=99 * MIB, limit=100 * MIB))
    at = bench(root)
    at.collector.start()
    at.run()
    root.write("/a", v2(used=70 * MIB, limit=100 * MIB))
    at.run()
    return at


def fast(at: Bench, count: int, seconds: float = 5) -> list[tuple[str, float, float]]:
    """The next `count` fast readings: cgroup, used, capacity in MiB."""
    at.pushed.clear()
    end = time.monotonic() + seconds
    while sum(len(facts.levels) for facts in at.pushed) < count and time.monotonic() < end:
        time.sleep(0.01)
    levels = [level for facts in list(at.pushed) for level in facts.levels]
    return [(level.labels[0][1], level.used / MIB, level.capacity / MIB) for level in levels][:count]


def test_who_would_be_full_within_a_minute_is_read_between_the_runs(root: trees.Host, rising: Bench) -> None:
    began = time.monotonic()
    assert fast(rising, 3) == [("/a", 70, 100)] * 3
    assert time.monotonic() - began >= 0.15
    root.write("/a", v2(used=80 * MIB, limit=100 * MIB))
    fast(rising, 1)
    assert fast(rising, 1) == [("/a", 80, 100)]


def test_it_stays_for_ten_seconds_after_it_rose_last(rising: Bench) -> None:
    rising.run(9)
    assert fast(rising, 1) == [("/a", 70, 100)]
    rising.run(1)
    assert fast(rising, 1, seconds=0.4) == []


def test_no_more_than_32_are_read_and_they_stay_while_they_rise(root: trees.Host, bench: MakeBench) -> None:
    at = bench(root)
    at.collector.start()
    for used in (20, 30, 40, 50):
        for i in range(40):
            root.write(f"/{i:02d}", v2(used=used * MIB, limit=100 * MIB))
        at.run(6)
    fast(at, 1)
    first = {cgroup for cgroup, _, _ in fast(at, 200)}
    assert first == {f"/{i:02d}" for i in range(32)}


def test_swap_counts_as_in_a_run(root: trees.Host, bench: MakeBench) -> None:
    swaps(root, 50 * MIB, 0)
    swapping = {"memory.swap.current": f"{MIB}\n", "memory.swap.max": "max\n"}
    root.write("/a", {**v2(used=60 * MIB, limit=100 * MIB), **swapping})
    at = bench(root)
    at.collector.start()
    at.run()
    root.write("/a", v2(used=70 * MIB, limit=100 * MIB))
    level = at.run().level("/a")
    assert (level.used, level.capacity) == (71 * MIB, 151 * MIB)
    assert fast(at, 2) == [("/a", 71, 151)] * 2


def test_a_bad_file_is_passed_over(root: trees.Host, rising: Bench) -> None:
    fast(rising, 1)
    root.write("/a", {"memory.stat": "garbage\n"})
    time.sleep(0.15)
    assert fast(rising, 1, seconds=0.3) == []
    root.write("/a", v2(used=75 * MIB, limit=100 * MIB))
    assert fast(rising, 1) == [("/a", 75, 100)]


def test_who_is_gone_is_read_no_more_and_nothing_stays_open(root: trees.Host, rising: Bench) -> None:
    before = open_files()
    fast(rising, 1)
    root.remove("/a")
    rising.run()
    assert open_files() == before - 4
    assert fast(rising, 1, seconds=0.3) == []
    assert open_files() == before - 4


def test_it_reads_nothing_of_a_hierarchy_that_is_given_up(root: trees.Host, rising: Bench) -> None:
    before = open_files()
    root.memory.rename(root.memory.with_name("away"))
    with pytest.raises(Exception, match="cannot be reached"):
        rising.run()
    assert fast(rising, 1, seconds=0.3) == []
    assert open_files() == before - 8


def test_the_thread_ends_at_once(root: trees.Host, bench: MakeBench) -> None:
    at = bench(root)
    at.collector.start()
    at.run()
    at.collector.stop(at.clock.monotonic() + 5)
    assert [thread.name for thread in threading.enumerate() if thread.name == "cgroup-fast-lane"] == []
