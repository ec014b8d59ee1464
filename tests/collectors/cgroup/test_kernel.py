"""The collector on the real kernel: cgroups of the test's own, and processes in them."""

import logging
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cgroups import Cgroup, parent
from collectors.cgroup.support import Bench, open_files
from collectors.cgroup.trees import Host
from oomcast.clock import SystemClock
from oomcast.contract import Context, Roots
from oomcast_collectors.cgroup import CgroupCollector, CgroupSettings
from requires import needs

pytestmark = needs("cgroup")
MIB = 1 << 20


class Machine(Bench):
    """The machine that the test runs on, of which only the cgroups below `above` are selected."""

    def __init__(self, above: Cgroup, **settings: object) -> None:
        super().__init__(Host(Path("/"), "", ""))
        context = Context(Roots(), SystemClock(), logging.getLogger("oomcast.cgroup"), self.pushed.append)
        chosen = CgroupSettings.model_validate({"include": [f"{above.path}/*"], **settings})
        self.collector = CgroupCollector(chosen, context)


@pytest.fixture
def above() -> Iterator[Cgroup]:
    with parent("collector") as cgroup:
        # What has a child is looked at on every run, however many cgroups others make and remove meanwhile.
        cgroup.child("stays")
        yield cgroup


@pytest.fixture
def machine(above: Cgroup) -> Iterator[Machine]:
    made = Machine(above)
    yield made
    made.close()


def number(cgroup: Cgroup, v1: str, v2: str) -> int:
    return int((cgroup.directory / (v1 if cgroup.version == 1 else v2)).read_text())


def holds(process: "subprocess.Popen[bytes]", cgroup: Cgroup, size: int) -> None:
    """Waits until the cgroup is charged with `size` bytes, and stops the process there."""
    while number(cgroup, "memory.usage_in_bytes", "memory.current") < size:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.1)


def test_what_is_charged_is_what_the_files_say(above: Cgroup, machine: Machine) -> None:
    child = above.child("a")
    child.limit(64 * MIB)
    process = child.grow(200, "linear", 30)
    holds(process, child, 20 * MIB)
    machine.run()
    used = number(child, "memory.usage_in_bytes", "memory.current")
    assert machine.value("memory_used_bytes", child.path) == used
    assert machine.value("memory_effective_limit_bytes", child.path) == 64 * MIB
    unreclaimable = machine.value("memory_unreclaimable_bytes", child.path)
    assert isinstance(unreclaimable, int)
    assert 15 * MIB < unreclaimable <= used
    level = machine.level(child.path)
    assert (level.used, level.capacity, level.identity) == (unreclaimable, 64 * MIB, child.directory.stat().st_ino)
    process.kill()
    process.communicate()


def test_a_kill_is_told_once_and_its_counter_outlives_the_cgroup(above: Cgroup, machine: Machine) -> None:
    child = above.child("a")
    child.limit(16 * MIB)
    machine.run()
    process = child.grow(400, "linear", 100)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    told = [event.fields["kills"] for event in machine.run().events()]
    assert told == [1]
    assert machine.value("oom_kills_total", child.path) == 1
    child.remove()
    machine.run().run()
    assert machine.value("memory_used_bytes", child.path) is None
    assert machine.value("oom_kills_total", child.path) == 1
    again = above.child("a")
    machine.run()
    assert machine.value("oom_kills_total", again.path) == 1
    assert machine.value("memory_used_bytes", again.path) is not None
    again.limit(16 * MIB)
    process = again.grow(400, "linear", 100)
    process.communicate()
    assert [event.fields["kills"] for event in machine.run().events()] == [1]
    assert machine.value("oom_kills_total", again.path) == 2


def test_one_made_anew_between_two_runs_is_the_new_one(above: Cgroup, machine: Machine) -> None:
    child = above.child("a")
    child.limit(16 * MIB)
    machine.run()
    before = machine.level(child.path)
    child.remove()
    above.child("a").limit(32 * MIB)
    machine.run().run()
    after = machine.level(child.path)
    assert (before.capacity, after.capacity) == (16 * MIB, 32 * MIB)
    assert before.identity != after.identity
    assert machine.value("read_errors_total") == 0


def test_hundreds_that_come_and_go_leave_nothing_open(above: Cgroup, machine: Machine) -> None:
    machine.run()
    before = open_files()
    for _ in range(2):
        for i in range(300):
            (above.directory / f"c{i}").mkdir()
        assert len(machine.run().shown()) == 301
        assert open_files() - before >= 300 * 4
        for i in range(300):
            (above.directory / f"c{i}").rmdir()
        assert machine.run().run().shown() == {f"{above.path}/stays"}
        assert open_files() == before
    assert machine.value("read_errors_total") == 0


def test_a_hidden_ancestor_made_anew_binds_with_its_new_limit(above: Cgroup) -> None:
    machine = Machine(above, include=[f"{above.path}/a/*"])
    try:
        for size in (16, 32):
            outer = above.child("a")
            if outer.version == 2:
                (outer.directory / "cgroup.subtree_control").write_text("+memory")
            outer.limit(size * MIB)
            inner = outer.child("b")
            machine.run()
            machine.run()
            assert machine.shown() == {inner.path}
            assert machine.value("memory_effective_limit_bytes", inner.path) == size * MIB
            assert machine.level(outer.path).capacity == size * MIB
            outer.remove()
    finally:
        machine.close()


def test_the_full_set_on_this_kernel(above: Cgroup) -> None:
    machine = Machine(above, full=["*"])
    child = above.child("a")
    try:
        machine.run()
        assert machine.labelled("memory_stat_bytes", child.path, "kind").keys() >= {
            "anon",
            "file",
            "shmem",
            "unevictable",
        }
        assert machine.value("memory_limit_hits_total", child.path) == 0
        assert machine.value("read_errors_total") == 0
    finally:
        machine.close()


def test_a_container_reads_the_host_below_the_root_that_it_was_given(above: Cgroup, tmp_path: Path) -> None:
    child = above.child("a")
    host, settings = tmp_path / "host", tmp_path / "oomcast.yaml"
    host.mkdir()
    settings.write_text(f"paths: {{host: {host}}}\ncollectors: {{cgroup: {{include: ['{child.path}']}}}}\n")
    # A mount namespace like a container's, without a /sys of its own.
    script = 'mount --rbind / "$1" && umount -l /sys && exec "$2" -m oomcast run --once --config "$3"'
    argv = ["unshare", "-m", "sh", "-c", script, "sh", str(host), sys.executable, str(settings)]
    text = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout
    assert f'oomcast_cgroup_memory_used_bytes{{cgroup="{child.path}"}}' in text
    assert "\noomcast_cgroups 1.0\n" in text
