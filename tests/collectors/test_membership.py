"""In which cgroup a process is, by /proc/PID/cgroup."""

import pytest

from oomcast_collectors.membership import memory_cgroup, unified_cgroup


@pytest.mark.parametrize(
    ("data", "memory", "unified"),
    [
        (b"0::/system.slice/a.service\n", "/system.slice/a.service", "/system.slice/a.service"),
        (b"0::/a (deleted)\n", "/a", "/a"),
        (b"12:cpu,cpuacct:/c\n5:hugetlb,memory:/m:1\n1:name=systemd:/s\n0::/u\n", "/m:1", "/u"),
        (b"12:cpu,cpuacct:/c\n", "", ""),
        (b"", "", ""),
        (b"garbage\n::\n", "", ""),
        (b"garbage\n1:x\n\xff", "", ""),
        (b"0::/cut", "", ""),
    ],
)
def test_the_paths(data: bytes, memory: str, unified: str) -> None:
    assert memory_cgroup(data) == memory
    assert unified_cgroup(data) == unified
