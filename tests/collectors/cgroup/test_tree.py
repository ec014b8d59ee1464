import contextlib
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.cgroup import trees
from fakes import FakeClock
from oomcast_collectors.cgroup.population import population
from oomcast_collectors.cgroup.tree import Found, Tree
from oomcast_collectors.hierarchy import Mount, find_hierarchies
from requires import needs


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def make(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path.lstrip("/")).mkdir()


def at(root: Path, *paths: str) -> list[Found]:
    return [Found(path, (root / path.lstrip("/")).stat().st_ino) for path in paths]


def paths(found: list[Found]) -> list[str]:
    return [one.path for one in found]


class Cases:
    """What holds on every file system: on a real hierarchy and on a copy of one."""

    def test_everything_is_found_nearest_first(self, root: Path, clock: FakeClock) -> None:
        make(root, "/b", "/a", "/b/c", "/b/c/d", "/a/e")
        tree = Tree(root, clock)
        assert tree.scan() == (at(root, "/", "/a", "/b", "/a/e", "/b/c", "/b/c/d"), [])
        assert tree.scan() == ([], [])
        assert tree.truncated == 0

    def test_what_comes_and_goes(self, root: Path, clock: FakeClock) -> None:
        make(root, "/a", "/b")
        tree = Tree(root, clock)
        tree.scan()
        gone = at(root, "/b")
        (root / "b").rmdir()
        make(root, "/c", "/d", "/c/e")
        assert tree.scan() == (at(root, "/c", "/d", "/c/e"), gone)

    def test_a_risen_population_has_the_first_child_of_an_old_directory_found_at_once(
        self, root: Path, clock: FakeClock
    ) -> None:
        make(root, "/a")
        count = 1
        tree = Tree(root, clock, full_every=60, population=lambda: count)
        tree.scan()
        clock.advance(59)
        tree.scan()
        make(root, "/a/first")
        assert tree.scan() == ([], [])
        count += 1
        assert paths(tree.scan()[0]) == ["/a/first"]
        assert tree.scan() == ([], [])

    def test_the_first_child_of_a_new_directory_is_found_at_once(self, root: Path, clock: FakeClock) -> None:
        tree = Tree(root, clock)
        tree.scan()
        make(root, "/a")
        assert paths(tree.scan()[0]) == ["/a"]
        clock.advance(1)
        make(root, "/a/b")
        assert paths(tree.scan()[0]) == ["/a/b"]

    def test_the_first_child_of_an_old_directory_is_found_in_time(self, root: Path, clock: FakeClock) -> None:
        make(root, "/a", "/b", "/c")
        tree = Tree(root, clock, full_every=60)
        tree.scan()
        make(root, "/c/d")
        found = []
        for _ in range(61):
            clock.advance(1)
            found += tree.scan()[0]
        assert found == at(root, "/c/d")

    def test_the_same_path_made_anew_goes_and_comes(self, root: Path, clock: FakeClock) -> None:
        make(root, "/a", "/a/b", "/z")
        tree = Tree(root, clock)
        tree.scan()
        old = at(root, "/a", "/a/b")
        (root / "a/b").rmdir()
        (root / "a").rmdir()
        # An inode number just freed may be given out again at once, which a file system that is no cgroup does.
        make(root, "/spacer", "/spacer/s", "/a", "/a/b")
        tree.suspect("/a/b")
        added, removed = tree.scan()
        assert sorted(added) == sorted(at(root, "/a", "/a/b", "/spacer", "/spacer/s"))
        assert sorted(removed) == sorted(old)

    def test_another_in_the_place_of_a_suspect_is_found_at_once(self, root: Path, clock: FakeClock) -> None:
        make(root, "/a", "/a/old")
        tree = Tree(root, clock)
        tree.scan()
        gone = at(root, "/a/old")
        (root / "a/old").rmdir()
        make(root, "/a/new")
        tree.suspect("/a/old")
        assert tree.scan() == (at(root, "/a/new"), gone)

    def test_all_is_verified_within_the_period(self, root: Path, clock: FakeClock) -> None:
        make(root, "/a", "/b")
        tree = Tree(root, clock, full_every=10)
        tree.scan()
        gone = at(root, "/a")
        (root / "a").rmdir()
        make(root, "/c")
        changes = []
        for _ in range(11):
            clock.advance(1)
            changes.append(tree.scan())
        assert [change for change in changes if change != ([], [])] == [(at(root, "/c"), gone)]

    def test_a_suspect_that_is_well_or_unknown_changes_nothing(self, root: Path, clock: FakeClock) -> None:
        make(root, "/a")
        tree = Tree(root, clock)
        tree.scan()
        for path in ("/", "/a", "/nowhere", ""):
            tree.suspect(path)
        assert tree.scan() == ([], [])

    def test_globs_choose(self, root: Path, clock: FakeClock) -> None:
        make(root, "/a", "/a/x", "/b", "/b/x", "/b/y")
        assert paths(Tree(root, clock, include=["/b*"]).scan()[0]) == ["/b", "/b/x", "/b/y"]
        assert paths(Tree(root, clock, exclude=["/b/*", "/"]).scan()[0]) == ["/a", "/b", "/a/x"]
        assert paths(Tree(root, clock, include=["*/x", "/b"], exclude=["/a/?"]).scan()[0]) == ["/b", "/b/x"]

    def test_the_depth_is_bounded(self, root: Path, clock: FakeClock) -> None:
        make(root, "/a", "/a/b", "/a/b/c")
        tree = Tree(root, clock, max_depth=2)
        assert paths(tree.scan()[0]) == ["/", "/a", "/a/b"]
        assert tree.truncated == 0

    def test_the_cap_cuts_the_deep_ones_and_counts_them(self, root: Path, clock: FakeClock) -> None:
        make(root, "/a", "/a/x", "/a/y", "/b")
        tree = Tree(root, clock, cap=4)
        assert paths(tree.scan()[0]) == ["/", "/a", "/b", "/a/x"]
        assert tree.truncated == 1
        cut = at(root, "/a/x")
        make(root, "/c")
        assert tree.scan() == (at(root, "/c"), cut)
        assert tree.truncated == 2
        (root / "b").rmdir()
        assert paths(tree.scan()[0]) == ["/a/x"]
        assert tree.truncated == 1

    def test_far_more_than_the_cap_is_counted_not_kept(self, root: Path, clock: FakeClock) -> None:
        make(root, *(f"/c{number:03}" for number in range(200)))
        tree = Tree(root, clock, cap=2)
        assert len(tree.scan()[0]) == 2
        assert tree.truncated == 199
        for number in range(200):
            (root / f"c{number:03}").rmdir()
        clock.advance(61)
        tree.scan()
        assert tree.truncated == 0

    def test_a_name_of_any_bytes(self, root: Path, clock: FakeClock) -> None:
        name = b"caf\xe9 \xff\\x2d"
        os.mkdir(os.fsencode(root) + b"/" + name)  # noqa: PTH102 - a name that is not text
        assert paths(Tree(root, clock).scan()[0]) == ["/", "/" + os.fsdecode(name)]

    def test_a_root_that_went_away_is_an_error(self, root: Path, clock: FakeClock) -> None:
        make(root, "/top")
        tree = Tree(root / "top", clock)
        tree.scan()
        (root / "top").rmdir()
        with pytest.raises(FileNotFoundError, match="/top/"):
            tree.scan()
        make(root, "/top", "/top/a")
        assert paths(tree.scan()[0])[-1] == "/a"

    @pytest.mark.parametrize("seed", range(3))
    def test_while_all_changes_nothing_fails_and_in_the_end_it_agrees(
        self, root: Path, clock: FakeClock, seed: int
    ) -> None:
        tree = Tree(root, clock, full_every=5)
        known: dict[str, int] = {}
        changes = threading.Thread(target=churn, args=(root, random.Random(seed), 400))
        changes.start()
        while changes.is_alive():
            follow(tree, known)
            clock.advance(1)
        changes.join()
        clock.advance(5)
        follow(tree, known)
        directories = ["/" + os.path.relpath(where, root) for where, _, _ in os.walk(root)]
        assert known == dict(at(root, *("/" if path == "/." else path for path in directories)))


def churn(root: Path, chance: random.Random, steps: int) -> None:
    """Makes and removes directories all over the tree, the same few names again and again."""
    for _ in range(steps):
        directory = root.joinpath(*(chance.choice("abcd") for _ in range(chance.randint(1, 4))))
        with contextlib.suppress(OSError):
            directory.rmdir() if chance.random() < 0.4 else directory.mkdir()


def follow(tree: Tree, known: dict[str, int]) -> None:
    """Applies a scan as a collector does: what is removed was known, and what is added was not."""
    added, removed = tree.scan()
    for found in removed:
        assert known.pop(found.path) == found.inode
    for found in added:
        assert found.path not in known
        known[found.path] = found.inode


class TestCopy(Cases):
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        return tmp_path

    def test_files_and_links_are_no_cgroups(self, root: Path, clock: FakeClock) -> None:
        make(root, "/a")
        (root / "file").write_text("")
        (root / "link").symlink_to(root / "a", target_is_directory=True)
        assert paths(Tree(root, clock).scan()[0]) == ["/", "/a"]

    def test_the_root_may_be_a_link(self, root: Path, clock: FakeClock) -> None:
        make(root, "/real", "/real/a")
        (root / "link").symlink_to("real", target_is_directory=True)
        assert paths(Tree(root / "link", clock).scan()[0]) == ["/", "/a"]

    def test_a_recorded_tree(self, root: Path, clock: FakeClock) -> None:
        host = trees.copy("v2-k8s", root)
        tree = Tree(find_hierarchies(host.proc, host.root).memory.path, clock, include=[trees.POD + "/*"])
        found = paths(tree.scan()[0])
        assert found == [f"{trees.POD}/cri-containerd-{'0123456789abcdef' * 4}.scope", found[1]]
        old = at(host.memory, trees.SERVER)
        host.recreate(trees.SERVER)
        tree.suspect(trees.SERVER)
        assert tree.scan() == (at(host.memory, trees.SERVER), old)
        host.state("/new.slice", "v2-climb/late")
        host.write("/new.slice", {"memory.current": "1\n"})
        assert (host.cgroup("/new.slice") / "memory.current").read_text() == "1\n"


@needs("cgroup")
def test_the_kernel_counts_what_is_made(clock: FakeClock) -> None:
    mount = find_hierarchies(Path("/proc")).memory
    count = population(Path("/proc"), mount)
    before = count()
    child = mount.path / f"oomcast-population-{os.getpid()}"
    child.mkdir()
    try:
        after = count()
    finally:
        child.rmdir()
    assert before is not None
    assert after is not None
    assert after > before


def test_a_kernel_that_does_not_count_is_asked_in_vain(tmp_path: Path) -> None:
    assert population(tmp_path, Mount(tmp_path, 1))() is None
    (tmp_path / "cgroups").write_text("#subsys_name hierarchy num_cgroups enabled\ncpu\t1\t7\t1\nmemory\t4\t56\t1\n")
    assert population(tmp_path, Mount(tmp_path, 1))() == 56
    (tmp_path / "cgroup.stat").write_text("nr_descendants 12\nnr_dying_descendants 3\n")
    assert population(tmp_path, Mount(tmp_path, 2))() == 12


@needs("cgroup")
class TestKernel(Cases):
    @pytest.fixture
    def root(self) -> Iterator[Path]:
        top = find_hierarchies(Path("/proc")).memory.path / f"oomcast-tree-{os.getpid()}"
        top.mkdir()
        try:
            yield top
        finally:
            for directory, _, _ in os.walk(os.fsencode(top), topdown=False):
                os.rmdir(directory)  # noqa: PTH106 - names that are not text

    def test_an_unchanged_tree_costs_little(self, root: Path, clock: FakeClock) -> None:
        make(root, *(f"/c{number}" for number in range(300)))
        tree = Tree(root, clock)
        tree.scan()
        start = time.process_time()
        for _ in range(100):
            assert tree.scan() == ([], [])
        # 0.01 ms for one pass; listing all 300 takes 30 times as long.
        assert time.process_time() - start < 0.02
