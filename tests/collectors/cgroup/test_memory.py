"""What comes and goes leaves nothing behind, not even for the collector of garbage to find."""

import gc

from collectors.cgroup import trees
from collectors.cgroup.conftest import MakeBench
from collectors.cgroup.support import v2
from oomcast_collectors.cgroup.node import Node


def nodes() -> list[str]:
    return sorted(one.path for one in gc.get_objects() if type(one) is Node and one.path.startswith("/a"))


def test_a_removed_cgroup_is_freed_at_once(root: trees.Host, bench: MakeBench) -> None:
    gc.collect()
    gc.disable()
    try:
        root.write("/a", v2(limit=9))
        root.write("/a/b", v2(limit=9))
        at = bench(root).run()
        assert nodes() == ["/a", "/a/b"]
        root.remove("/a/b")
        root.remove("/a")
        at.run().run()
        assert nodes() == []
    finally:
        gc.enable()
