"""Since when engines run: which cgroups have it, what they and their owners are called, and that it stays the same."""

import logging
import random
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from cgroups import Cgroup, parent
from collectors.cgroup import trees
from collectors.cgroup.conftest import MakeBench, bench
from collectors.host.trees import write_process
from fakes import FakeClock
from oomcast.clock import Clock, SystemClock
from oomcast.contract import Context, Event, Roots
from oomcast.core import Core
from oomcast.metric import Sample
from oomcast.store import Store
from oomcast_collectors.host import HostCollector, HostSettings
from oomcast_collectors.host.processes import Found
from oomcast_collectors.host.serving import START, ServingStarts
from requires import needs

__all__ = ["bench"]
LOG = logging.getLogger("oomcast.host")
BOOT = 1_600_000_000
BURSTABLE = "/kubepods.slice/kubepods-burstable.slice"
SIDECAR = f"{trees.POD}/cri-containerd-{'a' * 64}.scope"
UNIT = "/system.slice/vllm.service"


def starts(roots: Roots, clock: Clock | None = None) -> ServingStarts:
    return ServingStarts(Context(roots, clock or FakeClock(), LOG, lambda facts: None))


def booted(proc: Path, at: int = BOOT) -> None:
    (proc / "stat").write_text(f"cpu  1 2 3\nintr 55 0 btime 7\nctxt 9\nbtime {at}\nprocesses 12\n")


def ran(*cgroups: str, start: int = 100) -> list[Found]:
    return [Found(pid, start, "vllm", path) for pid, path in enumerate(cgroups, 1)]


def shown(samples: list[Sample] | None) -> dict[tuple[str, str], object]:
    """The values by cgroup and owner."""
    assert samples is not None
    labels = [dict(sample.series.labels) for sample in samples]
    found: dict[tuple[str, str], object] = {
        (one["cgroup"], one["owner"]): s.value for one, s in zip(labels, samples, strict=True)
    }
    assert len(found) == len(samples), "a series came twice"
    return found


def collected(roots: Roots, clock: Clock, *serving: str) -> list[Sample]:
    """One run of the host collector; on a busy machine its look at the processes may come late."""
    host = HostCollector(HostSettings.model_validate({}), Context(roots, clock, LOG, lambda facts: None, serving))
    facts = host.collect()
    while host._scan is not None:
        facts = host.collect()
    return facts.samples


def seen(roots: Roots, clock: Clock, *serving: str) -> dict[tuple[str, str], object]:
    return shown([sample for sample in collected(roots, clock, *serving) if sample.series.metric is START])


def tree(name: trees.TreeName, to: Path) -> trees.Host:
    host = trees.copy(name, to)
    booted(host.proc)
    (host.proc / "meminfo").write_text("MemTotal: 100 kB\nMemAvailable: 50 kB\n")
    return host


@pytest.fixture
def k8s(tmp_path: Path) -> trees.Host:
    return tree("v2-k8s", tmp_path)


def roots(host: trees.Host) -> Roots:
    return Roots(proc=host.proc, sys=host.sys, pods=host.pods, host=host.root)


def test_an_engine_in_a_pod_its_pod_and_all_around_it(k8s: trees.Host) -> None:
    write_process(k8s.proc, 7, "vllm", size=9, start=250, cgroup=f"0::{trees.SERVER}\n")
    write_process(k8s.proc, 8, "vllm", size=9, start=400, cgroup=f"0::{trees.SERVER}\n")
    write_process(k8s.proc, 9, "nginx", size=9, start=900, cgroup=f"0::{SIDECAR}\n")
    assert seen(roots(k8s), FakeClock(), "vllm*") == {
        ("/kubepods.slice", "kubepods.slice"): BOOT + 2.5,
        (BURSTABLE, "kubepods-burstable.slice"): BOOT + 2.5,
        (trees.POD, "llm/vllm-0"): BOOT + 2.5,
        (trees.SERVER, "llm/vllm-0/server"): BOOT + 2.5,
    }


def test_the_oldest_of_a_cgroup_and_the_youngest_below_an_ancestor(tmp_path: Path) -> None:
    booted(tmp_path)
    running = [
        Found(1, 100, "vllm", "/a.slice/old.service"),
        Found(2, 700, "vllm", "/a.slice/old.service"),
        Found(3, 300, "vllm", "/a.slice/new.service"),
        Found(4, 900, "vllm", "/a.slice/new.service"),
        Found(5, 200, "ollama", "/a.slice"),
        Found(6, 650, "ollama", "/b.slice"),
        Found(7, 600, "ollama", "/b.slice/c.slice"),
    ]
    assert shown(starts(Roots(proc=tmp_path)).samples(running)) == {
        ("/a.slice", "a.slice"): BOOT + 3,
        ("/a.slice/old.service", "old.service"): BOOT + 1,
        ("/a.slice/new.service", "new.service"): BOOT + 3,
        ("/b.slice", "b.slice"): BOOT + 6.5,
        ("/b.slice/c.slice", "c.slice"): BOOT + 6,
    }


@pytest.mark.parametrize(
    ("name", "line", "expected"),
    [
        (
            "v1-docker",
            f"9:name=systemd:/x\n4:memory:/docker/{trees.SERVER_ID}\n",
            {("/docker", "/docker"), (f"/docker/{trees.SERVER_ID}", "docker:0123456789ab")},
        ),
        ("hybrid", f"4:memory:{UNIT}\n0::/\n", {("/system.slice", "system.slice"), (UNIT, "vllm.service")}),
        ("v2-systemd", f"0::{UNIT}\n", {("/system.slice", "system.slice"), (UNIT, "vllm.service")}),
        ("v2-container", "0::/\n", {("/", "/")}),
        ("v2-container", "0::/../outside\n", set()),
        ("v2-systemd", "0::/\n", set()),
        ("v2-systemd", "0::/../outside\n", set()),
        ("v2-systemd", "", set()),
    ],
)
def test_the_names_are_those_of_the_cgroup_collector(
    tmp_path: Path, bench: MakeBench, name: trees.TreeName, line: str, expected: set[tuple[str, str]]
) -> None:
    host = tree(name, tmp_path)
    write_process(host.proc, 7, "vllm", size=9, cgroup=line)
    found = seen(roots(host), FakeClock(), "vllm")
    assert found.keys() == expected
    assert {cgroup for cgroup, _ in found} <= bench(host).run().shown()


def test_in_a_mount_of_a_part_its_root_has_it_too(tmp_path: Path) -> None:
    host = tree("v2-root", tmp_path)
    table = (host.proc / "self/mountinfo").read_text()
    host.mountinfo(table.replace(" / /sys/fs/cgroup ", " /outer /sys/fs/cgroup "))
    assert shown(starts(roots(host)).samples(ran("/outer/a", "/elsewhere"))).keys() == {("/", "/"), ("/a", "/a")}


@pytest.mark.parametrize("limit", [trees.SERVER, trees.POD, BURSTABLE, "/kubepods.slice"])
def test_the_owners_are_those_of_the_counter_of_kills(k8s: trees.Host, limit: str) -> None:
    clock = FakeClock()
    core = Core((), roots(k8s), clock)
    fields: dict[str, str | int | float] = {"pid": 7, "cgroup": trees.SERVER, "limit_cgroup": limit}
    core._pipeline.note([Event("oom_kill", clock.time(), clock.monotonic(), "a kill", fields)])
    core.tick()
    [group] = next(groups for metric, groups in core.store.families() if metric.name == "oomcast_oom_kills_total")
    [kill] = [dict(sample.series.labels) for sample in group if sample.value == 1]
    owners = dict(shown(starts(roots(k8s), clock).samples(ran(trees.SERVER))).keys())
    assert (kill["owner"], kill["limit_owner"]) == (owners[trees.SERVER], owners[limit])


def test_an_owner_whose_name_comes_late_has_one_series_before_and_after(k8s: trees.Host, tmp_path: Path) -> None:
    clock = FakeClock()
    of = starts(roots(k8s), clock)
    k8s.pods.rename(tmp_path / "later")
    before = shown(of.samples(ran(trees.SERVER)))
    assert [owner for cgroup, owner in before if cgroup == trees.SERVER] == [
        f"pod:{trees.POD_UID}/{trees.SERVER_ID[:12]}"
    ]
    (tmp_path / "later").rename(k8s.pods)
    clock.advance(10)
    after = shown(of.samples(ran(trees.SERVER)))
    assert [owner for cgroup, owner in after if cgroup == trees.SERVER] == ["llm/vllm-0/server"]
    assert len(before) == len(after) == 4


def test_the_same_process_has_the_same_value_and_the_same_series(tmp_path: Path) -> None:
    booted(tmp_path)
    clock = FakeClock()
    of = starts(Roots(proc=tmp_path), clock)
    first = of.samples(ran("/a", start=12345))
    assert first is not None
    assert [sample.value for sample in first] == [BOOT + 123.45]
    noise = random.Random(0)
    for _ in range(100):
        clock.advance(10)
        clock.jump(noise.uniform(-0.003, 0.003))
        again = of.samples(ran("/a", start=12345))
        assert again == first
        assert again[0].series is first[0].series


def test_a_clock_that_is_set_moves_the_boot(tmp_path: Path) -> None:
    booted(tmp_path)
    clock = FakeClock()
    of = starts(Roots(proc=tmp_path), clock)
    of.samples(ran("/a"))
    booted(tmp_path, BOOT + 3600)
    clock.advance(10)
    assert shown(of.samples(ran("/a"))) == {("/a", "/a"): BOOT + 1}
    clock.jump(3600)
    assert shown(of.samples(ran("/a"))) == {("/a", "/a"): BOOT + 3601}


def test_one_that_ends_between_two_reads_costs_nobody_anything(k8s: trees.Host) -> None:
    for pid, unit in ((7, "a"), (8, "b"), (9, "c"), (10, "d"), (11, "e")):
        write_process(k8s.proc, pid, "vllm", size=9, cgroup=f"0::/{unit}.service\n")
    (k8s.proc / "7/cgroup").unlink()
    (k8s.proc / "8/status").unlink()
    (k8s.proc / "9/stat").unlink()
    (k8s.proc / "10/status").write_text("Name:\tvllm\nState:\tZ (zombie)\n")
    assert seen(roots(k8s), FakeClock(), "vllm") == {("/e.service", "e.service"): BOOT + 1}


def test_without_a_serving_process_there_is_none_and_the_boot_is_not_asked_for(tmp_path: Path) -> None:
    assert starts(Roots(proc=tmp_path)).samples([]) == []


@pytest.mark.parametrize("stat", ["", "cpu 1\n", "btime x\n", "btime 16000", f"btime {'9' * 40}\n", "xbtime 5\n"])
def test_without_a_time_of_boot_it_is_absent_and_counted(k8s: trees.Host, stat: str) -> None:
    write_process(k8s.proc, 7, "vllm", size=9)
    (k8s.proc / "stat").write_text(stat)
    found = {sample.series.head.strip(): sample.value for sample in collected(roots(k8s), FakeClock(), "vllm")}
    assert not any("oomcast_serving" in head for head in found)
    assert found['oomcast_processes{process="vllm"}'] == 1
    assert found['oomcast_host_parse_errors_total{file="status"}'] == 1


def test_a_time_of_boot_that_was_missing_is_asked_for_again(tmp_path: Path) -> None:
    of = starts(Roots(proc=tmp_path))
    assert of.samples(ran("/a")) is None
    booted(tmp_path)
    assert shown(of.samples(ran("/a"))) == {("/a", "/a"): BOOT + 1}


def test_many_processes_of_a_cgroup_are_one_series(tmp_path: Path) -> None:
    booted(tmp_path)
    assert len(shown(starts(Roots(proc=tmp_path)).samples(ran(*["/a"] * 5000)))) == 1


def test_a_deep_path_ends_where_cgroups_are_watched_no_more(tmp_path: Path) -> None:
    booted(tmp_path)
    deep = [Found(1, 100, "vllm", "/a" * 64), Found(2, 900, "vllm", "/a" * 2000), Found(3, 300, "vllm", "/a" * 65)]
    found = shown(starts(Roots(proc=tmp_path)).samples(deep))
    assert {cgroup for cgroup, _ in found} == {"/a" * level for level in range(1, 65)}
    assert set(found.values()) == {BOOT + 9}


@pytest.mark.parametrize(("count", "dropped"), [(149, 0), (150, 1), (299, 299), (2000, 300)])
def test_of_too_many_cgroups_the_deepest_are_left_out_and_counted(tmp_path: Path, count: int, dropped: int) -> None:
    booted(tmp_path)
    cgroups = [f"/machine/{number:04}/inner" for number in range(count)]
    of, store = starts(Roots(proc=tmp_path)), Store([START])
    store.put("host", of.samples(ran(*cgroups)) or [])
    [(_, [kept])] = store.families()
    names = [dict(sample.series.labels)["cgroup"] for sample in kept]
    assert names[: count + 1] == ["/machine", *(f"/machine/{number:04}" for number in range(min(count, 299)))]
    assert len(names) == min(300, 1 + 2 * count)
    assert sum(store.dropped().values()) == dropped


@pytest.fixture
def above() -> Iterator[Cgroup]:
    with parent("serving") as cgroup:
        yield cgroup


@needs("cgroup")
def test_a_real_engine_in_a_real_cgroup(above: Cgroup, tmp_path: Path) -> None:
    engine = tmp_path / "oomcastengine"
    engine.symlink_to("/bin/sleep")
    inside = above.child("engine")
    clock = SystemClock()
    assert seen(Roots(), clock, engine.name) == {}
    with inside.run(str(engine), "600") as first, inside.run(str(engine), "601") as second:
        known = [psutil.Process(process.pid) for process in (first, second)]
        while any(one.name() != engine.name for one in known):
            assert first.poll() is None
        began = min(one.create_time() for one in known)
        expected = {(above.path, above.path): began, (inside.path, inside.path): began}
        for _ in range(3):
            assert seen(Roots(), clock, engine.name) == pytest.approx(expected, abs=0.005)
        for process in (first, second):
            process.kill()
    assert seen(Roots(), clock, engine.name) == {}
