"""What is said about cgroups: use, limits, what cannot be reclaimed, levels, and counters that never go back."""

import math
import os
from pathlib import Path

import pytest

from collectors.cgroup import trees
from collectors.cgroup.conftest import MakeBench
from collectors.cgroup.support import MIB, swaps, v1, v2
from oomcast.contract import Level, NotPresent
from oomcast_collectors.cgroup.node import noise


@pytest.fixture
def legacy(tmp_path: Path) -> trees.Host:
    """A v1 host without any cgroup but its root."""
    host = trees.copy("v1-docker", tmp_path)
    host.remove("/docker")
    return host


def inode(host: trees.Host, path: str) -> int:
    return host.cgroup(path).stat().st_ino


def test_the_effective_limit_is_the_lowest_of_all_around(root: trees.Host, bench: MakeBench) -> None:
    root.write("/a", v2(limit=90 * MIB))
    root.write("/a/b", v2())
    root.write("/a/b/c", v2(limit=40 * MIB))
    root.write("/a/b/d", v2(limit=100 * MIB))
    root.write("/e", v2())
    at = bench(root).run()
    limits = {path: at.value("memory_effective_limit_bytes", path) for path in ("/a", "/a/b", "/a/b/c", "/a/b/d", "/e")}
    assert limits == {"/a": 90 * MIB, "/a/b": 90 * MIB, "/a/b/c": 40 * MIB, "/a/b/d": 90 * MIB, "/e": None}


def test_a_limit_that_changes_above_changes_what_is_below(root: trees.Host, bench: MakeBench) -> None:
    root.write("/a", v2(limit=90 * MIB))
    root.write("/a/b", v2())
    at = bench(root).run()
    root.write("/a", {"memory.max": f"{50 * MIB}\n"})
    assert at.run().value("memory_effective_limit_bytes", "/a/b") == 50 * MIB
    root.write("/a", {"memory.max": "max\n"})
    assert at.run().value("memory_effective_limit_bytes", "/a/b") is None
    assert "/a" not in at.levelled()


def test_the_limits_of_ancestors_that_are_not_selected_bind(root: trees.Host, bench: MakeBench) -> None:
    root.write("/a", v2(limit=90 * MIB))
    root.write("/a/b", v2(limit=200 * MIB))
    root.write("/a/b/c", v2())
    at = bench(root, include=["/a/b/c"]).run()
    assert at.shown() == {"/a/b/c"}
    assert at.value("memory_effective_limit_bytes", "/a/b/c") == 90 * MIB
    assert at.value("memory_effective_limit_bytes", "/a/b") is None
    within = {level.labels[0][1]: level.within for level in at.facts.levels}
    assert within == {"/a": "", "/a/b": "/a"}


def test_what_the_v1_kernel_says_about_limits_above_the_mount_counts(legacy: trees.Host, bench: MakeBench) -> None:
    legacy.write("/a", v1(limit=80 * MIB, hierarchical_memory_limit=30 * MIB))
    at = bench(legacy).run()
    assert at.value("memory_effective_limit_bytes", "/a") == 30 * MIB
    assert at.level("/a") == Level(
        "cgroup_memory", (("cgroup", "/a"),), 1.0 * MIB, 80 * MIB, inode(legacy, "/a"), "", noise(80 * MIB)
    )


def test_unlimited_on_v1_is_no_limit(legacy: trees.Host, bench: MakeBench) -> None:
    legacy.write("/a", v1(limit=9223372036854771712))
    at = bench(legacy).run()
    assert at.value("memory_used_bytes", "/a") == MIB
    assert at.value("memory_effective_limit_bytes", "/a") is None
    assert "/a" not in at.levelled()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (v2(used=100, anon=30, file=50, slab=5), 45),
        (v2(used=100, anon=70, file=50, slab=5), 70),
        (v2(used=0), 0),
        # A charge still under way: the file pages are counted, the use is not yet.
        (v2(used=10, file=50), 0),
    ],
)
def test_unreclaimable_on_v2(root: trees.Host, bench: MakeBench, files: dict[str, str], expected: int) -> None:
    root.write("/a", files)
    assert bench(root).run().value("memory_unreclaimable_bytes", "/a") == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (v1(used=1000, rss=300, cache=640), 340),
        (v1(used=1000, rss=400, cache=640), 400),
        (v1(used=1000, rss=100, cache=320, total_shmem=90), 670),
    ],
)
def test_unreclaimable_on_v1(legacy: trees.Host, bench: MakeBench, files: dict[str, str], expected: int) -> None:
    legacy.write("/a", files)
    assert bench(legacy).run().value("memory_unreclaimable_bytes", "/a") == expected


def test_the_level_of_a_limit(root: trees.Host, bench: MakeBench) -> None:
    root.write("/a", v2(limit=1 << 40))
    root.write("/a/b", v2())
    root.write("/a/b/c", v2(used=50 * MIB, anon=30 * MIB, file=20 * MIB, limit=64 * MIB))
    at = bench(root).run()
    assert at.level("/a/b/c") == Level(
        "cgroup_memory", (("cgroup", "/a/b/c"),), 30 * MIB, 64 * MIB, inode(root, "/a/b/c"), "/a", noise(64 * MIB)
    )
    assert "/a/b" not in at.levelled()
    assert at.level("/a").noise == 0.001 * (1 << 40)


def test_noise_is_what_the_kernel_may_have_charged_ahead() -> None:
    ahead = 64 * os.sysconf("SC_PAGE_SIZE") * (os.cpu_count() or 1)
    assert noise(64 * MIB) == max(ahead, 4 * MIB)
    assert noise(1 << 50) == 0.001 * (1 << 50)


def test_swap_that_is_left_is_room(root: trees.Host, bench: MakeBench) -> None:
    swaps(root, 100 * MIB, 10 * MIB)
    files = v2(used=50 * MIB, anon=50 * MIB, limit=64 * MIB)
    root.write("/a", {**files, "memory.swap.current": f"{5 * MIB}\n", "memory.swap.max": "max\n"})
    root.write("/b", {**files, "memory.swap.current": "0\n", "memory.swap.max": f"{7 * MIB}\n"})
    root.write("/c", {**files, "memory.swap.current": "0\n", "memory.swap.max": "0\n"})
    at = bench(root).run()
    levels = {level.labels[0][1]: (level.used / MIB, level.capacity / MIB) for level in at.facts.levels}
    assert levels == {"/a": (55, 64 + 95), "/b": (50, 64 + 7), "/c": (50, 64)}


def test_swap_that_others_fill_is_no_room_any_more(root: trees.Host, bench: MakeBench) -> None:
    swaps(root, 100 * MIB, 0)
    root.write("/a", {**v2(limit=64 * MIB), "memory.swap.current": "0\n", "memory.swap.max": "max\n"})
    at = bench(root).run()
    for used in (30, 100):
        swaps(root, 100 * MIB, used * MIB)
        assert at.run().level("/a").capacity == (64 + 100 - used) * MIB


def test_swap_that_comes_later_counts_and_nothing_is_lost_over_it(root: trees.Host, bench: MakeBench) -> None:
    root.write("/a", {**v2(limit=64 * MIB, kills=3), "memory.swap.current": "0\n", "memory.swap.max": "max\n"})
    at = bench(root).run()
    swaps(root, 100 * MIB, 0)
    at.run()
    assert at.run().level("/a").capacity == 164 * MIB
    assert (at.value("oom_kills_total", "/a"), at.events()) == (3, [])


def test_swap_on_v1(legacy: trees.Host, bench: MakeBench) -> None:
    swaps(legacy, 100 * MIB, 0)
    legacy.write("/a", v1(limit=64 * MIB, total_swap=2 * MIB, hierarchical_memsw_limit=80 * MIB))
    legacy.write("/b", v1(limit=64 * MIB, total_swap=2 * MIB, hierarchical_memsw_limit=9223372036854771712))
    legacy.write("/c", v1(limit=64 * MIB))
    at = bench(legacy).run()
    levels = {level.labels[0][1]: (level.used / MIB, level.capacity / MIB) for level in at.facts.levels}
    assert levels == {"/a": (3, 80), "/b": (3, 64 + 102), "/c": (1, 64)}


@pytest.mark.parametrize("swaps_text", ["", "garbage\n", "Filename Type\n/dev/x partition -1 2 3\n"])
def test_swaps_that_do_not_read_cost_nobody_anything(root: trees.Host, bench: MakeBench, swaps_text: str) -> None:
    (root.proc / "swaps").write_text(swaps_text)
    root.write("/a", v2(limit=64 * MIB))
    at = bench(root).run().run()
    assert at.level("/a").capacity == 64 * MIB
    assert at.value("read_errors_total") == 3  # one to begin with, and one on each run


def test_the_last_answer_about_swap_stands(root: trees.Host, bench: MakeBench) -> None:
    swaps(root, 100 * MIB, 0)
    root.write("/a", {**v2(limit=64 * MIB), "memory.swap.current": "0\n", "memory.swap.max": "max\n"})
    at = bench(root).run()
    (root.proc / "swaps").write_text("garbage\n")
    assert at.run().level("/a").capacity == 164 * MIB


def test_a_container_sees_its_own_limit_at_the_root(tmp_path: Path, bench: MakeBench) -> None:
    host = trees.copy("v2-container", tmp_path)
    host.write("/inside", v2(limit=90 * MIB))
    at = bench(host).run()
    assert at.value("memory_effective_limit_bytes", "/inside") == 64 * MIB
    assert at.level("/inside").within == "/"
    only = bench(host, include=["/inside"]).run()
    assert only.shown() == {"/inside"}
    assert only.value("memory_effective_limit_bytes", "/inside") == 64 * MIB


def test_the_root_of_a_host_is_no_cgroup_like_others(root: trees.Host, bench: MakeBench) -> None:
    root.write("/a", v2())
    at = bench(root).run()
    assert at.shown() == {"/a"}
    assert [s.value for s in at.facts.samples if s.series.metric.name == "oomcast_cgroups"] == [1]


def test_no_hierarchy_is_no_failure_before_there_was_one(root: trees.Host, bench: MakeBench) -> None:
    root.mountinfo("")
    with pytest.raises(NotPresent, match="no cgroup hierarchy"):
        bench(root).run()


def test_the_hierarchy_may_go_and_come_back(root: trees.Host, bench: MakeBench) -> None:
    root.write("/a", v2(kills=2, faults=5))
    at = bench(root).run()
    away = root.memory.with_name("away")
    root.memory.rename(away)
    for _ in range(2):
        with pytest.raises(NotPresent, match="cannot be reached"):
            at.run()
    away.rename(root.memory)
    at.run()
    assert (at.value("oom_kills_total", "/a"), at.value("pgmajfault_total", "/a"), at.events()) == (2, 5, [])
    root.write("/a", v2(kills=3, faults=5))
    assert [event.fields["kills"] for event in at.run().events()] == [1]


def test_a_hierarchy_mounted_in_the_place_of_another_is_found(root: trees.Host, bench: MakeBench) -> None:
    root.write("/a", v2())
    at = bench(root).run()
    root.memory.rename(root.memory.with_name("away"))
    root.write("/b", v2(used=7))
    root.write("/", {"cgroup.controllers": "memory\n"})
    assert at.run().shown() == {"/b"}
    assert at.value("memory_used_bytes", "/b") == 7


def test_memory_localevents_makes_the_counter_the_cgroups_own(root: trees.Host, bench: MakeBench) -> None:
    line = "25 24 0:23 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,memory_localevents\n"
    root.mountinfo(line)
    root.write("/a", v2(kills=1))
    at = bench(root).run()
    assert at.labelled("oom_kills_total", "/a", "scope") == {"own": 1}
    root.write("/a", v2(kills=2))
    assert [event.fields["scope"] for event in at.run().events()] == ["own"]


def test_a_kernel_without_some_files_has_the_other_series(root: trees.Host, bench: MakeBench) -> None:
    root.write("/a", {"memory.current": "5\n"})
    root.write("/b", {"cgroup.procs": ""})
    at = bench(root).run()
    assert at.value("memory_used_bytes", "/a") == 5
    assert [at.value(name, "/a") for name in ("oom_kills_total", "pgmajfault_total", "memory_unreclaimable_bytes")] == [
        None, None, None,
    ]  # fmt: skip
    assert (at.shown(), at.value("read_errors_total")) == ({"/a", "/b"}, 0)


def test_a_controller_that_is_switched_on_later_is_read(root: trees.Host, bench: MakeBench) -> None:
    root.write("/a", {"cgroup.procs": ""})
    at = bench(root).run()
    assert at.value("memory_used_bytes", "/a") is None
    root.write("/a", v2(used=9, limit=10))
    at.run()
    assert (at.value("memory_used_bytes", "/a"), at.value("memory_effective_limit_bytes", "/a")) == (9, 10)


def test_nothing_is_infinite_or_not_a_number(tmp_path: Path, bench: MakeBench) -> None:
    for name in ("v1-docker", "v2-systemd"):
        at = bench(trees.copy(name, tmp_path), full=["*"]).run()
        values = [s.value for s in at.facts.samples]
        assert all(isinstance(value, int | float) and math.isfinite(value) and value >= 0 for value in values)
