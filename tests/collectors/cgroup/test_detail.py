"""The full set of series, and who gets it."""

import errno
import shutil
from pathlib import Path

import pytest

from collectors.cgroup import trees
from collectors.cgroup.conftest import MakeBench
from collectors.cgroup.support import open_files, v1, v2
from oomcast_collectors.cgroup.files import File

FULL = ("memory_stat_bytes", "memory_limit_hits_total", "memory_high_hits_total", "reclaim_pages_total")
PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total={some}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total={full}\n"


def test_the_values_on_v2(root: trees.Host, bench: MakeBench) -> None:
    root.write("/a", v2(anon=11, file=12, slab=13, limit=99))
    root.write("/a", {"memory.high": "77\n", "memory.swap.current": "5\n", "cgroup.stat": "nr_dying_descendants 6\n"})
    root.write("/a", {"memory.pressure": PRESSURE.format(some=1500000, full=250000)})
    at = bench(root, full=["/a"]).run()
    kinds = {"anon": 11, "file": 12, "shmem": 0, "active_file": 0, "inactive_file": 12, "slab_reclaimable": 13}
    assert at.labelled("memory_stat_bytes", "/a", "kind") == kinds
    assert at.labelled("workingset_refaults_total", "/a", "kind") == {"file": 7}
    assert at.labelled("reclaim_pages_total", "/a", "kind") == {"scan": 30, "steal": 20}
    assert at.labelled("pressure_seconds_total", "/a", "kind") == {"some": 1.5, "full": 0.25}
    singles = {
        "memory_max_bytes": 99, "memory_high_bytes": 77, "swap_used_bytes": 5, "memory_limit_hits_total": 3,
        "memory_high_hits_total": 4, "dying_descendants": 6,
    }  # fmt: skip
    assert {name: at.value(name, "/a") for name in singles} == singles
    assert at.info("/a")["tier"] == "full"


def test_the_values_on_v1(tmp_path: Path, bench: MakeBench) -> None:
    host = trees.copy("v1-docker", tmp_path)
    host.write("/a", v1(rss=11, cache=12, total_cache=14, total_swap=5, total_pgpgin=8, total_pgpgout=9, limit=99))
    host.write("/a", {"memory.failcnt": "4\n"})
    at = bench(host, full=["/a"]).run()
    kinds = {"anon": 11, "file": 14, "shmem": 0, "active_file": 0, "inactive_file": 12}
    assert at.labelled("memory_stat_bytes", "/a", "kind") == kinds
    assert at.labelled("page_charges_total", "/a", "direction") == {"in": 8, "out": 9}
    singles = {"memory_max_bytes": 99, "swap_used_bytes": 5, "memory_limit_hits_total": 4}
    assert {name: at.value(name, "/a") for name in singles} == singles
    assert at.samples("pressure_seconds_total", "/a") == []


def test_others_have_the_core_alone(root: trees.Host, bench: MakeBench) -> None:
    root.write("/a", v2(limit=9))
    at = bench(root, full=["/b*"]).run()
    assert [name for name in FULL if at.samples(name, "/a")] == []
    assert at.info("/a")["tier"] == "core"


def test_pressure_on_a_hybrid_host_is_that_of_the_unified_hierarchy(tmp_path: Path, bench: MakeBench) -> None:
    host = trees.copy("hybrid", tmp_path)
    path = "/system.slice/vllm.service"
    (host.unified / path[1:] / "cpu.pressure").write_text(PRESSURE.format(some=2000000, full=0))
    at = bench(host, full=["*"]).run()
    found = {
        tuple(sorted(dict(s.series.labels).items()))[1:]: s.value for s in at.samples("pressure_seconds_total", path)
    }
    assert found == {
        (("kind", "some"), ("resource", "cpu")): 2.0,
        (("kind", "full"), ("resource", "cpu")): 0.0,
        (("kind", "some"), ("resource", "memory")): 0.151724,
        (("kind", "full"), ("resource", "memory")): 0.151724,
    }


def test_pressure_on_a_hybrid_host_may_be_under_another_path(tmp_path: Path, bench: MakeBench) -> None:
    host = trees.copy("hybrid", tmp_path)
    host.write("/job", v1(limit=9))
    host.write("/job", {"cgroup.procs": "41\n42\n"})
    (host.proc / "41").mkdir()
    (host.proc / "41" / "cgroup").write_text("4:memory:/job\n0::/system.slice/vllm.service\n")
    (host.unified / "system.slice/vllm.service/memory.pressure").write_text(PRESSURE.format(some=3000000, full=0))
    host.write("/stray", v1(limit=9))
    host.write("/stray", {"cgroup.procs": "43\n"})
    (host.proc / "43").mkdir()
    (host.proc / "43" / "cgroup").write_text("4:memory:/stray\n0::/\n")
    at = bench(host, full=["*"]).run()
    assert at.labelled("pressure_seconds_total", "/job", "kind") == {"some": 3.0, "full": 0.0}
    assert at.samples("pressure_seconds_total", "/stray") == []


def test_a_hybrid_host_without_the_same_path_has_no_pressure(tmp_path: Path, bench: MakeBench) -> None:
    host = trees.copy("hybrid", tmp_path)
    shutil.rmtree(host.unified / "system.slice")
    at = bench(host, full=["*"]).run()
    assert at.samples("pressure_seconds_total", "/system.slice/vllm.service") == []
    assert at.value("read_errors_total") == 0


def test_pressure_that_is_switched_off_is_none(
    root: trees.Host, bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.write("/a", {**v2(used=5, limit=9), "memory.pressure": "some total=1\n"})
    read = File.read

    def off(file: File) -> bytes:
        # It cannot be switched off here, and then opens as before.
        if file.path.endswith(".pressure"):
            raise OSError(errno.EOPNOTSUPP, "Operation not supported", file.path)
        return read(file)

    monkeypatch.setattr(File, "read", off)
    at = bench(root, full=["*"]).run().run()
    assert at.samples("pressure_seconds_total", "/a") == []
    assert (at.value("memory_max_bytes", "/a"), at.value("read_errors_total")) == (9, 0)


def serving(host: trees.Host, pid: int, comm: str, cgroup: str) -> None:
    """Puts a process into the host's /proc."""
    directory = host.proc / str(pid)
    directory.mkdir()
    fields = ["S", *["0"] * 5, "0", *["0"] * 12, "100", *["0"] * 30]
    (directory / "stat").write_text(f"{pid} ({comm}) {' '.join(fields)}\n")
    (directory / "cmdline").write_text(f"{comm}\0")
    (directory / "cgroup").write_text(f"0::{cgroup}\n")


def test_cgroups_of_engines_get_the_full_set_while_the_engine_runs(root: trees.Host, bench: MakeBench) -> None:
    root.write("/engine", v2(limit=9))
    root.write("/other", v2(limit=9))
    at = bench(root, serving=("vllm*",)).run()
    assert at.info("/engine")["tier"] == "core"
    closed = open_files()
    serving(root, 77, "vllm-worker", "/engine")
    at.run(10)
    assert (at.info("/engine")["tier"], at.info("/other")["tier"]) == ("full", "core")
    assert at.value("memory_max_bytes", "/engine") == 9
    assert at.value("memory_max_bytes", "/other") is None
    shutil.rmtree(root.proc / "77")
    at.run(10)
    assert (at.info("/engine")["tier"], at.value("memory_max_bytes", "/engine")) == ("core", None)
    assert open_files() == closed


def test_engines_may_be_left_at_the_core(root: trees.Host, bench: MakeBench) -> None:
    root.write("/engine", v2(limit=9))
    serving(root, 77, "vllm-worker", "/engine")
    assert bench(root, serving=("vllm*",)).run().info("/engine")["tier"] == "full"
    assert bench(root, serving=("vllm*",), full_for_engines=False).run().info("/engine")["tier"] == "core"


def test_a_part_of_the_hierarchy_calls_the_engines_cgroup_by_the_rest_of_its_path(
    root: trees.Host, bench: MakeBench
) -> None:
    root.mountinfo("25 24 0:23 /outer /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    root.write("/engine", v2(limit=9))
    serving(root, 77, "vllm-worker", "/outer/engine")
    assert bench(root, serving=("vllm*",)).run().info("/engine")["tier"] == "full"


@pytest.mark.parametrize("file", ["memory.stat", "memory.events"])
def test_a_kernel_without_a_core_file_has_the_rest(root: trees.Host, bench: MakeBench, file: str) -> None:
    root.write("/a", {**v2(limit=9), "memory.high": "3\n"})
    (root.cgroup("/a") / file).unlink()
    at = bench(root, full=["*"]).run()
    assert (at.value("memory_high_bytes", "/a"), at.value("read_errors_total")) == (3, 0)
