"""Containers under crun, which is what podman and CRI-O start them with, by the rules that an engine would give it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECCOMP = Path("/usr/share/containers/seccomp.json")
"""The profile of podman and buildah, from which docker's differs little."""
HYBRID = Path("/sys/fs/cgroup/unified")
"""crun refuses to start where both cgroup hierarchies are mounted."""

_LISTS = ("bounding", "effective", "permitted", "inheritable")
_DENIED = {"allow": False, "access": "rwm"}
_USUAL = [{"allow": True, "type": "c", "major": 1, "minor": minor, "access": "rwm"} for minor in (3, 5, 7, 8, 9)]


@dataclass(frozen=True)
class Rules:
    """What a container may. The defaults are no rights, an ordinary user and nothing of the host.

    groups: by number, beside the one of `user`. capabilities: effective for root only, as engines know no ambient ones.
    devices: of the host, to be read. binds: that in the container by file or directory of the host, read-only with all
    that is mounted below. volumes: the same, to write in. system_calls: allowed beyond the profile. network: the
    process whose network it has, else it gets its own. memory: bytes.
    """

    user: str = "10001:10001"
    capabilities: Sequence[str] = ()
    system_calls: Sequence[str] = ()
    devices: Sequence[Path] = ()
    binds: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    volumes: Mapping[str, str] = field(default_factory=dict)
    host_pids: bool = False
    network: int | None = None
    memory: int = 256 << 20
    groups: Sequence[int] = ()


@dataclass(frozen=True)
class Container:
    """One that runs. process: crun, which ends as it does. pid: on the host. directory: of its bundle and log."""

    process: subprocess.Popen[bytes]
    pid: int
    directory: Path

    @property
    def log(self) -> str:
        return (self.directory / "container.log").read_text()

    def execute(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Runs a program of its own in it, as health checks are."""
        crun = _crun(self.directory, "exec", self.directory.name, *argv)
        return subprocess.run(crun, capture_output=True, text=True, check=False, timeout=60)

    def fetch(self, url: str) -> str:
        """Asked from inside of its network. Raises OSError."""
        script = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=20).read().decode(), end='')"
        done = self.inside(sys.executable, "-S", "-E", "-c", script, url)
        if done.returncode:
            raise OSError(f"{url}: {done.stderr[-300:]}")
        return done.stdout

    def inside(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Runs a program of the host in its network."""
        enter = ["nsenter", "--net", "--target", str(self.pid)]
        return subprocess.run([*enter, *argv], capture_output=True, text=True, check=False, timeout=60)

    def wait_for(self, url: str, seconds: float = 60) -> str:
        """What it answers, as soon as it does."""
        end = time.monotonic() + seconds
        while True:
            assert self.process.poll() is None, self.log
            try:
                return self.fetch(url)
            except OSError:
                if time.monotonic() > end:
                    raise
            time.sleep(0.02)

    def wait_for_series(self, url: str, series: str, seconds: float = 60) -> float:
        """The value of a series of a page, as soon as it is there."""
        end = time.monotonic() + seconds
        while (value := value_of(self.fetch(url), series)) is None:
            assert time.monotonic() < end, f"no {series} at {url}"
            time.sleep(0.1)
        return value

    def end(self) -> tuple[int, float]:
        """Sends its first process SIGTERM; gives its exit status, and the seconds that it took."""
        began = time.monotonic()
        os.kill(self.pid, signal.SIGTERM)
        return self.process.wait(60), time.monotonic() - began


@contextmanager
def container(directory: Path, root: Path, image: Mapping[str, Any], rules: Rules) -> Iterator[Container]:
    """Starts what `image`, its settings, say, in `root`. `directory` has its bundle and log."""
    bundle, log, pid = directory / "bundle", directory / "container.log", directory / "pid"
    bundle.mkdir(parents=True)
    (bundle / "config.json").write_text(json.dumps(_config(root, image, rules, directory.name)))
    argv = _crun(directory, "run", "--bundle", str(bundle), "--pid-file", str(pid), directory.name)
    with log.open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=out)
    try:
        while not (pid.exists() and pid.read_text()):
            assert process.poll() is None, log.read_text()
            time.sleep(0.005)
        yield Container(process, int(pid.read_text()), directory)
    finally:
        if process.poll() is None:
            kill = _crun(directory, "delete", "--force", directory.name)
            subprocess.run(kill, check=False, capture_output=True, timeout=60)
            process.wait(60)
        _remove_cgroup(_cgroup(directory.name))


def _cgroup(name: str) -> str:
    return f"oomcast-{name}-{os.getpid()}"


def _remove_cgroup(name: str) -> None:
    """crun leaves it where a process outlives the first one for a moment, as it may among the host's PIDs."""
    end = time.monotonic() + 30
    while left := [place for depth in ("", "*/") for place in Path("/sys/fs/cgroup").glob(f"{depth}{name}")]:
        assert time.monotonic() < end, f"somebody stays in {left}"
        for place in left:
            with suppress(OSError):
                place.rmdir()
        time.sleep(0.02)


def _crun(directory: Path, *arguments: str) -> list[str]:
    argv = ["crun", "--root", str(directory / "crun"), *arguments]
    if HYBRID.is_mount():
        argv = ["unshare", "--mount", "sh", "-c", f'umount {HYBRID} && exec "$@"', "sh", *argv]
    return argv


def value_of(page: str, series: str) -> float | None:
    """The value of a series with these very labels, or None."""
    found = re.search(rf"^{re.escape(series)} (\S+)$", page, re.MULTILINE)
    return float(found[1]) if found else None


@contextmanager
def tracefs(directory: Path) -> Iterator[Path]:
    """One in `directory`, as /sys/kernel/tracing is on most machines."""
    place = directory / "tracing"
    place.mkdir()
    subprocess.run(["mount", "-t", "tracefs", "tracefs", place], check=True, timeout=60)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True, timeout=60)


def run(directory: Path, root: Path, image: Mapping[str, Any], rules: Rules, *command: str) -> tuple[int, str]:
    """Runs another command of its entry point to the end; gives its exit status and what it printed."""
    with container(directory, root, {**image, "Cmd": list(command)}, rules) as one:
        status = one.process.wait(300)
    return status, one.log


def _config(root: Path, image: Mapping[str, Any], rules: Rules, name: str) -> dict[str, Any]:
    user, _, group = rules.user.partition(":")
    given = rules.capabilities if user == "0" else ()
    lists = {kind: list(rules.capabilities if kind == "bounding" else given) for kind in _LISTS}
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]},
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"]},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=64m"]},
        *(_bind(outer, inner, "rro") for outer, inner in rules.binds.items()),
        *(_bind(outer, inner, "rw") for outer, inner in rules.volumes.items()),
    ]
    kinds = ["mount", "ipc", "uts", *([] if rules.host_pids else ["pid"])]
    network = {"type": "network", **({"path": f"/proc/{rules.network}/ns/net"} if rules.network else {})}
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": int(user), "gid": int(group), "additionalGids": list(rules.groups)},
            "args": [*image["Entrypoint"], *image["Cmd"]],
            "env": [*image["Env"], *(f"{key}={value}" for key, value in rules.environment.items())],
            "cwd": image.get("WorkingDir") or "/",
            "capabilities": lists,
            "noNewPrivileges": True,
        },
        "root": {"path": str(root), "readonly": True},
        "mounts": mounts,
        "linux": {
            "namespaces": [*({"type": kind} for kind in kinds), network],
            "cgroupsPath": f"/{_cgroup(name)}",
            "resources": {
                "memory": {"limit": rules.memory},
                "devices": [_DENIED, *_USUAL, *(_device(path, "access", "r") for path in rules.devices)],
            },
            "devices": [{"path": str(path), **_device(path, "fileMode", 0o444)} for path in rules.devices],
            "seccomp": _seccomp(rules),
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list"],
            "readonlyPaths": ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"],
        },
    }


def _bind(outer: str, inner: str, option: str) -> dict[str, Any]:
    # crun takes that of directories only; nothing is mounted below a file.
    option = "ro" if option == "rro" and Path(outer).is_file() else option
    return {"destination": inner, "type": "bind", "source": outer, "options": ["rbind", option, "rprivate"]}


def _device(path: Path, key: str, value: object) -> dict[str, Any]:
    number = path.stat().st_rdev
    same = {"type": "c", "major": os.major(number), "minor": os.minor(number), key: value}
    return {"allow": True, **same} if key == "access" else same


def _seccomp(rules: Rules) -> dict[str, Any]:
    """The profile as an engine hands it on: without what is for other capabilities and architectures."""
    profile, held = json.loads(SECCOMP.read_text()), set(rules.capabilities)
    chosen = [{"names": list(rules.system_calls), "action": "SCMP_ACT_ALLOW"}] if rules.system_calls else []
    for rule in profile["syscalls"]:
        includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
        names = [name for name in rule["names"] if name not in rules.system_calls]
        applies = set(includes.get("caps", ())) <= held and not set(excludes.get("caps", ())) & held
        if names and applies and "amd64" in includes.get("arches", ["amd64"]):
            kept = {key: rule[key] for key in ("action", "args", "errnoRet") if rule.get(key) is not None}
            chosen.append({"names": names, **kept})
    return {
        "defaultAction": profile["defaultAction"],
        "defaultErrnoRet": profile["defaultErrnoRet"],
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "syscalls": chosen,
    }
