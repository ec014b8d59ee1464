from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from collectors.cgroup import trees
from host import memory_mount
from oomcast.contract import NotPresent
from oomcast_collectors.hierarchy import Hierarchies, Mount, MountLine, find_hierarchies, parse_mountinfo
from requires import needs

LINE = "28 25 0:27 / {point} rw,relatime shared:13 - {kind} {kind} {options}\n"
CGROUP2 = LINE.format(point="/sys/fs/cgroup", kind="cgroup2", options="rw,nsdelegate")
MEMORY = LINE.format(point="/sys/fs/cgroup/memory", kind="cgroup", options="rw,memory")
NO_OPTIONS: frozenset[str] = frozenset()


def find(host: trees.Host) -> Hierarchies:
    return find_hierarchies(host.proc, host.root)


@pytest.mark.parametrize("name", ["v2-root", "v2-systemd", "v2-k8s"])
def test_a_v2_host(tmp_path: Path, name: trees.TreeName) -> None:
    host = trees.copy(name, tmp_path)
    mount = Mount(host.root / "sys/fs/cgroup", 2, "/")
    assert mount.path == host.memory == host.unified
    options = frozenset({"nsdelegate", "memory_recursiveprot"})
    assert find(host) == Hierarchies(mount, mount, options, "v2", namespaced=False)


def test_a_container_on_a_v2_host_sees_a_part(tmp_path: Path) -> None:
    found = find(trees.copy("v2-container", tmp_path))
    assert (found.mode, found.namespaced) == ("v2", True)


def test_a_v1_host(tmp_path: Path) -> None:
    host = trees.copy("v1-docker", tmp_path)
    assert find(host) == Hierarchies(Mount(host.memory, 1, "/"), None, NO_OPTIONS, "v1", namespaced=False)


def test_a_hybrid_host(tmp_path: Path) -> None:
    host = trees.copy("hybrid", tmp_path)
    expected = Hierarchies(Mount(host.memory, 1, "/"), Mount(host.unified, 2, "/"), NO_OPTIONS, "hybrid", False)
    assert find(host) == expected
    assert (host.unified / "system.slice/vllm.service/memory.pressure").is_file()


@pytest.mark.parametrize(
    "options", ["rw,memory_localevents", "rw,memory_hugetlb_accounting,nsdelegate", "rw,favordynmods", "rw"]
)
def test_the_mount_options_that_change_meanings(tmp_path: Path, options: str) -> None:
    host = trees.copy("v2-root", tmp_path)
    host.mountinfo(CGROUP2.replace("rw,nsdelegate", options))
    assert find(host).options == frozenset(options.split(",")) - {"rw", "favordynmods"}


def test_the_memory_controller_may_share_its_mount(tmp_path: Path) -> None:
    host = trees.copy("v1-docker", tmp_path)
    host.mountinfo(MEMORY.replace("rw,memory", "rw,hugetlb,memory,freezer"))
    assert find(host).memory == Mount(host.memory, 1, "/")


def test_a_mount_point_with_blanks(tmp_path: Path) -> None:
    host = trees.copy("v1-docker", tmp_path)
    host.memory.rename(host.memory.with_name("mem ory\\x"))
    host.mountinfo(MEMORY.replace("/memory rw", "/mem\\040ory\\134x rw"))
    assert find(host).memory == Mount(host.memory.with_name("mem ory\\x"), 1, "/")


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        ([("/", "/b/long"), ("/", "/a")], "/a"),
        ([("/docker/x", "/a"), ("/", "/b/long")], "/b/long"),
        ([("/docker/x/y", "/a"), ("/docker", "/b/long")], "/b/long"),
        ([("/", "/a"), ("/../..", "/b/long")], "/b/long"),
        ([("/", "/gone"), ("/", "/b/long")], "/b/long"),
    ],
)
def test_of_several_mounts_the_one_that_shows_most(
    tmp_path: Path, mounts: list[tuple[str, str]], expected: str
) -> None:
    host = trees.copy("v1-docker", tmp_path)
    for point in ("a", "b/long"):
        (host.root / point).mkdir(parents=True)
    host.mountinfo("".join(f"28 25 0:27 {root} {point} rw - cgroup cgroup rw,memory\n" for root, point in mounts))
    assert find(host).memory.path == host.root / expected.lstrip("/")


@pytest.mark.parametrize(
    ("root", "namespaced"), [("/", False), ("/docker/x", True), ("/../..", False), ("/../../a/b/c", True)]
)
def test_a_subtree_is_a_part(tmp_path: Path, root: str, namespaced: bool) -> None:
    host = trees.copy("v1-docker", tmp_path)
    host.mountinfo(MEMORY.replace(" / ", f" {root} "))
    found = find(host)
    assert (found.memory.root, found.namespaced) == (root, namespaced)


def test_of_another_processs_table_the_first_ones_is_read(tmp_path: Path) -> None:
    host = trees.copy("v1-docker", tmp_path)
    (host.proc / "1").mkdir()
    (host.proc / "1" / "mountinfo").write_text(MEMORY)
    host.mountinfo("")
    assert find(host).memory == Mount(host.memory, 1, "/")
    with pytest.raises(NotPresent):
        find_hierarchies(host.proc)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("", "no cgroup hierarchy with a memory controller is mounted: mount cgroup2 at /sys/fs/cgroup"),
        (
            CGROUP2.replace("/sys/fs/cgroup ", "/elsewhere "),
            "cgroups are mounted at /elsewhere, which cannot be reached below {root}: mount the host's /sys",
        ),
        (
            CGROUP2.replace("/sys/fs/cgroup ", "/sys/fs/cgroup/unified "),
            "{root}/sys/fs/cgroup/unified has no memory controller: "
            "boot with cgroup_enable=memory, without cgroup_disable=memory",
        ),
        (
            CGROUP2.replace("/sys/fs/cgroup ", "/sys/fs/cgroup/unified ").replace(" / ", " /a "),
            "{root}/sys/fs/cgroup/unified has no memory controller: enable it in its parent's cgroup.subtree_control",
        ),
    ],
)
def test_no_memory_controller_is_not_present(tmp_path: Path, table: str, reason: str) -> None:
    host = trees.copy("hybrid", tmp_path)
    host.mountinfo(table)
    with pytest.raises(NotPresent) as raised:
        find(host)
    assert str(raised.value) == reason.format(root=host.root)


def test_no_procfs_is_not_present(tmp_path: Path) -> None:
    with pytest.raises(NotPresent) as raised:
        find_hierarchies(tmp_path)
    assert str(raised.value) == f"{tmp_path}/self/mountinfo is not there: no procfs is mounted at its place"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("1 2 0:3 / /m rw - cgroup cgroup rw,memory", ("0:3", "/", "/m", "cgroup", {"rw", "memory"})),
        ("1 2 0:3 /../.. /m rw shared:1 master:2 - cgroup2 c rw", ("0:3", "/../..", "/m", "cgroup2", {"rw"})),
        ("1 2 0:3 / /a\\011b\\012c rw - cgroup2 c rw", ("0:3", "/", "/a\tb\nc", "cgroup2", {"rw"})),
        ("1 2 0:3 / /m rw - cgroup2  rw", None),
        ("1 2 0:3 / /m rw - cgroup2", None),
        ("1 2 0:3 / /m rw cgroup2 c rw", None),
        ("1 2 0:3 / - cgroup2 c rw", None),
        ("1 2 0:3 / relative rw - cgroup2 c rw", None),
        ("1 2 0:3 / /m rw - tmpfs cgroup rw,mode=755", None),
        ("", None),
    ],
)
def test_lines_of_mountinfo(line: str, expected: tuple[str, str, str, str, set[str]] | None) -> None:
    found = [MountLine(*expected[:4], frozenset(expected[4]))] if expected else []
    assert list(parse_mountinfo([line + "\n"])) == found


@settings(deadline=None)
@given(st.lists(st.text(alphabet="012:/. -\\cgroup2rw,memory\n\udcff", max_size=200), max_size=20))
@example(["1 2 0:3 / /m\\400 rw - cgroup2 c rw"])
def test_no_line_of_mountinfo_fails(lines: list[str]) -> None:
    for line in parse_mountinfo(lines):
        assert line.kind in ("cgroup", "cgroup2")
        assert line.point.startswith("/")


@needs("cgroup")
def test_this_machine() -> None:
    expected = memory_mount()
    found = find_hierarchies(Path("/proc"))
    assert (found.memory.version, found.memory.path) == expected
    assert found.namespaced == (found.memory.path.stat().st_ino != 1)
