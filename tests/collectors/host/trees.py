"""A /proc of processes as files, for what a test cannot do to real ones."""

from pathlib import Path

STATUS = "Name:\t{comm}\nState:\tS (sleeping)\n"
MEMORY = (
    "VmSize:\t{size} kB\nVmLck:\t{locked} kB\nRssAnon:\t{anon} kB\nRssFile:\t{file} kB\nRssShmem:\t{shmem} kB\n"
    "VmSwap:\t{swap} kB\n"
)


def write_process(
    proc: Path,
    pid: int,
    comm: str | bytes,
    argv: tuple[str, ...] = (),
    *,
    start: int = 100,
    faults: int = 0,
    flags: int = 0x400000,
    cgroup: str = "0::/system.slice/x.service\n",
    **memory: int,
) -> None:
    """Writes /proc/PID; memory: kB of anon, file, shmem, swap, locked, size."""
    folder = proc / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    name = comm if isinstance(comm, bytes) else comm.encode()
    tail = f" S 1 1 1 0 -1 {flags} 5 6 {faults} 8 9 10 11 12 20 0 1 0 {start} 3133440 383\n"
    (folder / "stat").write_bytes(f"{pid} (".encode() + name + b")" + tail.encode())
    (folder / "cmdline").write_bytes("".join(f"{arg}\0" for arg in argv).encode())
    (folder / "cgroup").write_text(cgroup)
    sizes = {"size": 0, "locked": 0, "anon": 0, "file": 0, "shmem": 0, "swap": 0} | memory
    status = STATUS.format(comm="x") + ("" if flags & 0x200000 else MEMORY.format(**sizes))
    (folder / "status").write_text(status)
