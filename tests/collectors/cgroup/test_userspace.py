"""Kills by systemd-oomd and oomd, told by the attributes with which they mark a cgroup."""

import os
from pathlib import Path

import pytest

from collectors.cgroup import trees
from collectors.cgroup.conftest import MakeBench
from collectors.cgroup.support import Bench, v2


def mark(host: trees.Host, path: str, name: str, value: bytes) -> None:
    try:
        os.setxattr(host.cgroup(path), name, value)
    except OSError as error:
        pytest.skip(f"the file system of the tests takes no {name}: {error.strerror}")


def userspace(at: Bench) -> list[dict[str, object]]:
    return [dict(event.fields) for event in at.events("userspace_oom_kill")]


@pytest.mark.parametrize(
    ("attributes", "by"),
    [
        (("user.oomd_kill",), "systemd-oomd"),
        (("user.oomd_kill", "trusted.oomd_kill"), "oomd"),
        (("trusted.oomd_kill",), "oomd"),
    ],
)
def test_kills_by_a_userspace_killer(root: trees.Host, bench: MakeBench, attributes: tuple[str, ...], by: str) -> None:
    root.write("/a", v2())
    root.write("/old", v2())
    for name in attributes:
        mark(root, "/old", name, b"5")
    at = bench(root).run()
    assert userspace(at) == []
    for name in attributes:
        mark(root, "/a", name, b"2")
        mark(root, "/old", name, b"6\0")
    assert userspace(at.run(4.9)) == []
    assert userspace(at.run(0.1)) == [
        {"cgroup": "/a", "by": by, "kills": 2},
        {"cgroup": "/old", "by": by, "kills": 1},
    ]
    assert userspace(at.run(5)) == []


@pytest.mark.parametrize("value", [b"", b"-1", b"many", b"1_0", b"9" * 21, "٣".encode()])
def test_a_mark_that_is_no_number_costs_nothing(root: trees.Host, bench: MakeBench, value: bytes) -> None:
    root.write("/a", v2())
    at = bench(root).run()
    mark(root, "/a", "user.oomd_kill", value)
    assert (userspace(at.run(5)), at.value("memory_used_bytes", "/a")) == ([], 1 << 20)
    mark(root, "/a", "user.oomd_kill", b"1")
    assert [event["kills"] for event in userspace(at.run(5))] == [1]


def test_what_is_remembered_is_bounded(root: trees.Host, bench: MakeBench) -> None:
    at = bench(root).run()
    for batch in range(3):
        for i in range(400):
            root.write(f"/{batch}-{i}", {})
            mark(root, f"/{batch}-{i}", "user.oomd_kill", b"1")
        assert len(userspace(at.run(5))) == 400
        for i in range(400):
            root.remove(f"/{batch}-{i}")
    assert at.collector._sweep
    assert at.collector._sweep._userspace
    assert len(at.collector._sweep._userspace._known) == 1000


def test_there_are_none_on_v1(tmp_path: Path, bench: MakeBench) -> None:
    host = trees.copy("v1-docker", tmp_path)
    at = bench(host).run()
    mark(host, "/docker", "user.oomd_kill", b"1")
    assert userspace(at.run(5)) == []
