"""Which cgroups are watched, and what happens to those around them."""

from collectors.cgroup import trees
from collectors.cgroup.conftest import MakeBench
from collectors.cgroup.support import open_files, v2


def test_what_is_excluded_has_no_series(root: trees.Host, bench: MakeBench) -> None:
    for path in ("/a", "/a/b", "/c"):
        root.write(path, v2())
    at = bench(root, exclude=["/a/*"]).run()
    assert (at.shown(), at.value("truncated")) == ({"/a", "/c"}, 0)


def test_the_depth_is_bounded(root: trees.Host, bench: MakeBench) -> None:
    for path in ("/a", "/a/b", "/a/b/c"):
        root.write(path, v2())
    assert bench(root, max_depth=2).run().shown() == {"/a", "/a/b"}


def test_the_deepest_are_left_out_first(root: trees.Host, bench: MakeBench) -> None:
    for path in ("/a", "/a/b", "/a/b/c", "/d"):
        root.write(path, v2())
    at = bench(root, max_cgroups=4).run()
    assert (at.shown(), at.value("truncated")) == ({"/a", "/a/b", "/d"}, 1)


def test_hidden_ancestors_go_with_the_last_of_theirs(root: trees.Host, bench: MakeBench) -> None:
    for path in ("/a", "/a/b", "/a/b/c"):
        root.write(path, v2(limit=5))
    before = open_files()
    at = bench(root, include=["/a/b/c"]).run()
    assert open_files() == before + 3 * 4
    assert at.levelled() == {"/a", "/a/b", "/a/b/c"}
    root.remove("/a/b/c")
    at.run()
    assert (open_files(), at.levelled()) == (before, set())


def test_a_hidden_ancestor_made_anew_is_read_anew(root: trees.Host, bench: MakeBench) -> None:
    root.write("/a", v2(limit=50))
    root.write("/a/b", v2())
    at = bench(root, include=["/a/b"]).run()
    root.recreate("/a")
    root.write("/a", v2(limit=70))
    at.run()
    assert at.value("memory_effective_limit_bytes", "/a/b") == 70
    assert at.level("/a").identity == root.cgroup("/a").stat().st_ino


def test_a_bad_ancestor_costs_those_inside_nothing(root: trees.Host, bench: MakeBench) -> None:
    root.write("/a", v2(limit=50))
    root.write("/a/b", v2(used=3))
    at = bench(root).run()
    root.write("/a", {"memory.stat": "garbage\n"})
    at.run()
    assert (at.value("memory_used_bytes", "/a/b"), at.value("memory_effective_limit_bytes", "/a/b")) == (3, 50)
