"""A virtual machine with a kernel of its own and this machine's files: cgroup v2, and OOM kills that harm nobody.

Everything is emulated: /dev/kvm is not there everywhere, and where it is, not every kernel starts on it.
"""

import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from host import VIRTIOFSD
from vm.initramfs import initramfs

INIT = Path(__file__).with_name("init.sh")
START = "start"
"""The file in `shared` that runs the command and then ends the machine, for a shell that is root."""
SWAP_MIB = 256
CPUS = 2

_START = """\
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root {environment}
cd {shared}
{command} >output 2>&1 </dev/null
echo $? >status
sync
busybox poweroff -f || systemctl poweroff --force --force
"""


class MachineError(Exception):
    """The machine did not start, or did not end in time; with the end of what it said."""


@dataclass(frozen=True, slots=True)
class Guest:
    """What the machine is made of. root: the directory that it sees as /, below a layer of memory.

    files: a directory below `shared` whose files are laid over it. init: the program that becomes process 1; it has to
    see to it that START runs in the end. Without one the command is all that runs. memory: MiB.
    """

    root: Path = Path("/")
    files: Path | None = None
    init: str = ""
    memory: int = 640


def run(
    kernel: Path,
    shared: Path,
    command: Sequence[str],
    environment: Mapping[str, str],
    seconds: float,
    guest: Guest = Guest(),
) -> None:
    """Starts the machine, runs the command as root in it, with `shared` read-write at the same path, and ends it.

    What the command writes is shared/output. Raises MachineError where it did not succeed within `seconds`.
    """
    variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
    start = _START.format(environment=variables, shared=shlex.quote(str(shared)), command=shlex.join(command))
    (shared / START).write_text(start)
    (shared / "status").unlink(missing_ok=True)
    console = shared / "console"
    with TemporaryDirectory(prefix="oomcast-vm-") as temporary, ExitStack() as running:
        work = Path(temporary)
        (work / "initrd").write_bytes(_first_files(kernel, shared, guest))
        with (work / "swap").open("wb") as swap:
            swap.truncate(SWAP_MIB << 20)
        for name, directory in (("host", guest.root), ("shared", shared)):
            running.enter_context(_serving(directory, work / name, shared / f"virtiofsd-{name}"))
        with console.open("wb") as out:
            machine = running.enter_context(_process(_qemu(kernel, work, guest.memory), out.fileno()))
        try:
            machine.wait(seconds)
        except subprocess.TimeoutExpired:
            raise MachineError(f"it was not done after {seconds:g} s\n{_said(shared)}") from None
    status = shared / "status"
    if machine.returncode or not status.exists() or status.read_text() != "0\n":
        raise MachineError(f"exit code {machine.returncode} of the machine\n{_said(shared)}")


def _first_files(kernel: Path, shared: Path, guest: Guest) -> bytes:
    busybox = shutil.which("busybox")
    assert busybox is not None
    files = str(guest.files.relative_to(shared)) if guest.files else ""
    script = INIT.read_text()
    for name, value in (("SHARED", str(shared)), ("FILES", files), ("INIT", guest.init), ("START", START)):
        script = script.replace(f"%{name}%", shlex.quote(value))
    return initramfs(kernel, Path(busybox), script)


def _qemu(kernel: Path, work: Path, memory: int) -> list[str]:
    (image,) = (kernel / "boot").glob("vmlinuz-*")
    command = ["qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(CPUS)]
    command += ["-m", str(memory), "-nodefaults", "-no-user-config", "-no-reboot", "-nographic", "-serial", "stdio"]
    # virtiofsd reaches into the guest's memory.
    command += ["-object", f"memory-backend-memfd,id=memory,size={memory}M,share=on", "-numa", "node,memdev=memory"]
    for name in ("host", "shared"):
        command += ["-chardev", f"socket,id={name},path={work / name}"]
        command += ["-device", f"vhost-user-fs-pci,chardev={name},tag={name}"]
    command += ["-drive", f"file={work / 'swap'},format=raw,if=virtio,cache=unsafe"]
    command += ["-kernel", str(image), "-initrd", str(work / "initrd")]
    return [*command, "-append", "console=ttyS0 quiet panic=-1 mitigations=off"]


@contextmanager
def _serving(directory: Path, socket: Path, log: Path) -> Iterator[None]:
    """Gives the directory to the machine that connects to the socket."""
    served = next(path for path in VIRTIOFSD if path.exists())
    options = [f"source={directory}", "cache=always", "sandbox=chroot"]
    command = [str(served), f"--socket-path={socket}", *(part for option in options for part in ("-o", option))]
    with log.open("wb") as out, _process(command, out.fileno()) as server:
        end = time.monotonic() + 10
        while not socket.exists():
            if server.poll() is not None or time.monotonic() > end:
                raise MachineError(f"virtiofsd does not serve {directory}: {log.read_text()[-1000:]}")
            time.sleep(0.02)
        yield


@contextmanager
def _process(command: Sequence[str], out: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _said(shared: Path) -> str:
    texts = [f"{name}:\n{_end(shared / name)}" for name in ("console", "output", "oomcast.log")]
    return "\n".join(texts)


def _end(path: Path) -> str:
    return path.read_text(errors="replace")[-3000:] if path.exists() else "(nothing)"
