"""Copies of recorded cgroup trees that a test may change: whole hosts, and one cgroup's files at one moment."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

FIXTURES = Path(__file__).parents[2] / "fixtures" / "cgroup"
TreeName = Literal["v2-root", "v2-systemd", "v2-k8s", "v2-container", "v1-docker", "hybrid"]
POD_UID = "17efb6ec-09ab-4eec-8ad6-f953eb1a7466"
SERVER_ID = "0123456789abcdef" * 4
POD = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD_UID.replace('-', '_')}.slice"
SERVER = f"{POD}/cri-containerd-{SERVER_ID}.scope"


class Host:
    """A host's tree in a directory of the test. root: the prefix of what its mountinfo names; proc, sys, pods: roots.

    Paths of cgroups are as the collector has them: "/" and "/system.slice/vllm.service".
    """

    def __init__(self, root: Path, memory: str, unified: str) -> None:
        self.root = root
        self.proc = root / "proc"
        self.sys = root / "sys"
        self.pods = root / "var" / "log" / "pods"
        self.memory = root / "sys/fs/cgroup" / memory
        self.unified = root / "sys/fs/cgroup" / unified

    def cgroup(self, path: str) -> Path:
        """The directory of a cgroup in the hierarchy that has the memory controller."""
        return self.memory / path.lstrip("/")

    def write(self, path: str, files: Mapping[str, str]) -> None:
        """Sets files of a cgroup, made where it is missing: `write("/a", {"memory.current": "4096\\n"})`."""
        directory = self.cgroup(path)
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (directory / name).write_text(text)

    def state(self, path: str, state: str) -> None:
        """Gives a cgroup the files of a recorded moment ("v2-climb/late"), made where it is missing."""
        shutil.copytree(FIXTURES / "states" / state, self.cgroup(path), dirs_exist_ok=True)

    def recreate(self, path: str) -> None:
        """Removes a cgroup and makes it again, with the same files and another inode."""
        directory = self.cgroup(path)
        kept = directory.with_name(directory.name + ".new")
        shutil.copytree(directory, kept)
        shutil.rmtree(directory)
        kept.rename(directory)

    def remove(self, path: str) -> None:
        shutil.rmtree(self.cgroup(path))

    def mountinfo(self, text: str) -> None:
        (self.proc / "self" / "mountinfo").write_text(text)


def copy(name: TreeName, to: Path) -> Host:
    """A copy of the named tree in a new directory below `to`."""
    root = Path(shutil.copytree(FIXTURES / name, to / name, symlinks=True))
    memory = {"v1-docker": "memory", "hybrid": "memory"}.get(name, "")
    return Host(root, memory, "unified" if name == "hybrid" else "")
