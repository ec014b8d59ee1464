"""A Debian machine to install on: a real systemd, in namespaces of its own, over files that a test may change.

The files are the small Debian of scripts/setup deploy, with an overlay above it. The machine sees no other network than
a cable to a namespace in which nobody but the test is, and of the kernel what systemd-nspawn lets it see: not the
kernel's log, and no eBPF.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from cgroups import Cgroup
from deploy.node_cgroups import own_cgroups
from host import cache

ADDRESS = "10.191.28.2"
_OURS = "10.191.28.1"
_CABLE = "ve-oomnode"
_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
_ENVIRONMENT |= {"LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}

# All of it in mount and network namespaces that end with the last process in them, so nothing is left to clean up. What
# systemd-nspawn notes below /run is of this machine alone too. Nothing is synced, as nothing has to outlive a power
# failure; the kernel then leaves a mark that the files may not be mounted once more, which may not stop us.
_ENTER = """\
for group in $CGROUPS; do echo $$ >"$group/cgroup.procs"; done
mount -t tmpfs tmpfs /run
(cd "$OVER/work" && rm -rf work/incompat)
mount -t overlay overlay -o "volatile,lowerdir=$BELOW,upperdir=$OVER/upper,workdir=$OVER/work" "$OVER/root"
ip link set lo up
exec systemd-nspawn --quiet --directory="$OVER/root" --machine=oomnode --register=no --keep-unit "$@"
"""

_FETCH = """\
import sys, urllib.error, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
request = urllib.request.Request(sys.argv[1], headers={"Accept": sys.argv[2]})
try:
    answer = opener.open(request, timeout=20)
except urllib.error.HTTPError as error:
    answer = error
print(answer.status)
print(answer.read().decode(), end="")
"""


_MEMORY = Path("/dev/shm")
"""A file system without a disk, on which a package is unpacked in a third of the time."""


class NodeError(Exception):
    """The machine did not start, or what was asked of it failed; with the end of what it said."""


@contextmanager
def node(shared: Path | None = None, below: "Node | None" = None) -> Iterator["Node"]:
    """A machine's files, some 50 MB in memory when a package is on them; removed afterwards."""
    place = _MEMORY if _MEMORY.is_dir() else None
    with TemporaryDirectory(prefix="oomcast-node-", dir=place) as directory:
        yield Node(Path(directory), shared, below)


class Answer(NamedTuple):
    status: int
    text: str


class Node:
    """The files of a machine, in `directory`. shared: a directory that it sees, read-only, as /shared.

    below: another one that does not run; this one begins as a copy of it.
    """

    def __init__(self, directory: Path, shared: Path | None = None, below: "Node | None" = None) -> None:
        self._over = directory
        self._layers: list[Path] = [directory / "upper", *(below._layers if below else [cache() / "debian" / "node"])]
        self._options = [f"--bind-ro={shared}:/shared"] if shared else []
        for name in ("upper", "work", "root"):
            (directory / name).mkdir(parents=True)

    def chroot(self, *command: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        """Runs a command on the files where no systemd runs, as a build of an image does. Does not raise."""
        options = [*self._options, "--private-network", "--pipe", "--as-pid2"]
        options += [f"--setenv={name}={value}" for name, value in _ENVIRONMENT.items()]
        with own_cgroups() as groups:
            return subprocess.run(
                self._entering([*options, *command]),
                env=self._environment(groups),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )

    @contextmanager
    def boot(self, seconds: float = 120) -> Iterator["Machine"]:
        """Starts the machine, up to the end of its boot. Raises NodeError if that takes longer than `seconds`.

        Afterwards it is shut down, or ended if it does not.
        """
        console = self._over / "console"
        with own_cgroups() as groups, console.open("wb") as out:
            process = subprocess.Popen(
                self._entering([*self._options, "--network-veth", "--boot"]),
                env=self._environment(groups),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
            try:
                yield _booted(process, console, groups, time.monotonic() + seconds)
            finally:
                _end(process)

    def _entering(self, command: Sequence[str]) -> list[str]:
        # The kernel ends it with the test, whatever ends that.
        enter = ["setpriv", "--pdeathsig", "TERM", "sh", "-euc", _ENTER, "sh"]
        return ["unshare", "--mount", "--net", "--propagation", "private", *enter, *command]

    def _environment(self, groups: Mapping[str, Cgroup]) -> dict[str, str]:
        directories = " ".join(str(group.directory) for group in groups.values())
        below = ":".join(map(str, self._layers[1:]))
        return {**os.environ, "CGROUPS": directories, "BELOW": below, "OVER": str(self._over)}


class Machine:
    """A machine that runs. memory: the cgroup that it sees as the root of those with the memory controller."""

    def __init__(self, outside: int, leader: int, memory: Cgroup) -> None:
        self._outside = outside
        self._leader = leader
        self.memory = memory

    def run(
        self, *command: str, user: str = "root", given: str = "", seconds: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command in it, with nothing of this side's environment. Does not raise if it fails.

        given: its standard input.
        """
        enter = ["nsenter", f"--target={self._leader}", "--all", "--root", "--wd"]
        clean = ["env", "--ignore-environment", *(f"{name}={value}" for name, value in _ENVIRONMENT.items())]
        become = [] if user == "root" else ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
        return subprocess.run(
            [*enter, *clean, *become, *command],
            input=given,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def said(self, *command: str, user: str = "root", given: str = "") -> str:
        """What a command in it prints. Raises NodeError if it fails."""
        done = self.run(*command, user=user, given=given)
        if done.returncode:
            raise NodeError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"[-4000:])
        return done.stdout

    def write(self, path: str, text: str) -> None:
        self.said("sh", "-c", 'mkdir -p "${1%/*}" && cat >"$1"', "sh", path, given=text)

    def fetch(self, url: str, accept: str = "*/*") -> Answer:
        """Asks as a machine at the other end of its cable does. Raises NodeError where there is no answer."""
        enter = ["nsenter", f"--target={self._outside}", "--net"]
        done = subprocess.run(
            [*enter, sys.executable, "-I", "-S", "-c", _FETCH, url, accept],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode:
            raise NodeError(f"{url}: {done.stderr.strip().splitlines()[-1]}")
        status, _, text = done.stdout.partition("\n")
        return Answer(int(status), text)

    def cable(self) -> None:
        """Gives both ends their addresses."""
        for pid, address, name in ((self._outside, _OURS, _CABLE), (self._leader, ADDRESS, "host0")):
            for words in (f"addr add {address}/24 dev {name}", f"link set {name} up"):
                command = ["nsenter", f"--target={pid}", "--net", "ip", *words.split()]
                subprocess.run(command, check=True, capture_output=True, timeout=30)


def _booted(process: subprocess.Popen[bytes], console: Path, groups: Mapping[str, Cgroup], end: float) -> Machine:
    while True:
        leader = _leader(process.pid)
        if leader is not None:
            machine = Machine(process.pid, leader, groups["memory"])
            state = machine.run("systemctl", "is-system-running", "--wait").stdout.strip()
            if state == "running":
                machine.cable()
                return machine
            if state == "degraded":
                raise NodeError(f"units failed: {machine.run('systemctl', '--failed').stdout}")
        if process.poll() is not None or time.monotonic() > end:
            said = console.read_text(errors="replace")[-3000:]
            raise NodeError(f"the machine did not start, exit code {process.returncode}\n{said}")
        time.sleep(0.1)


def _leader(nspawn: int) -> int | None:
    """The pid on this side of the machine's systemd, once that runs."""
    try:
        for child in Path(f"/proc/{nspawn}/task/{nspawn}/children").read_text().split():
            if Path(f"/proc/{child}/comm").read_text() == "systemd\n":
                return int(child)
    except OSError:
        pass
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
