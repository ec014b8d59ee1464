"""What a process pays for programs in the kernel that is not followed, beside none: `bystander.c` makes calls and says
how long they take."""

import shutil
import subprocess
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from collectors.ebpf.live import Live
from ebpf_lab.lab import Target, build

from machine import HERE, child, table, verdict
from oomcast_collectors.ebpf.settings import EbpfSettings
from peers import Missing

_TARGET = 0.01
_ROUNDS = 12
_CHUNKS = 40
"""Of each call in a round, of some milliseconds each."""

_CALLS: Mapping[str, tuple[str, int]] = {
    "malloc and free": ("malloc", 200_000),
    "mmap and munmap": ("mmap", 1_000),
    "getpid": ("getpid", 20_000),
    "fork, exec and exit": ("fork", 5),
    "page fault": ("fault", 1_000),
    "handled signal": ("signal", 1_000),
}

# What following mappings by system calls would take: the program returns at once for who is no target.
_PROGRAM = """
#include <uapi/linux/ptrace.h>
BPF_TABLE("hash", u32, u32, followed, 1024);
BPF_TABLE("array", u32, u64, calls, 1);
int on_call(void *args) {
    u32 pid = bpf_get_current_pid_tgid() >> 32, first = 0;
    u64 *count;
    if (!followed.lookup(&pid))
        return 0;
    count = calls.lookup(&first);
    if (count)
        __sync_fetch_and_add(count, 1);
    return 0;
}
"""
_EVENTS = [f"syscalls:sys_{way}_{call}" for call in ("mmap", "munmap", "brk") for way in ("enter", "exit")]
_DESCRIPTION = "help: mappings by system calls\ntracepoints:\n" + "".join(
    f'  - {{event: "{event}", function: on_call}}\n' for event in _EVENTS
)

_STATES = ("no child", "child, all default probes", "and tracepoints of mmap, munmap, brk")


def run() -> None:
    """Prints the table. Raises peers.Missing."""
    taken: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, Target(build("bench"), "1"):
        Path(folder, "syscalls.c").write_text(_PROGRAM)
        Path(folder, "syscalls.yaml").write_text(_DESCRIPTION)
        with child([_compiled(Path(folder))]) as bystander:
            for turn in range(_ROUNDS):
                # A child that has just come is busy for a while: each call is the first now and then.
                names = deque(_CALLS)
                names.rotate(turn)
                for state in _STATES:
                    with _in(state, folder):
                        for name in names:
                            call, count = _CALLS[name]
                            chunks = [float(bystander.ask(f"{call} {count}")) for _ in range(_CHUNKS)]
                            taken.setdefault((name, state), []).extend(chunks)
    rows = []
    for name in _CALLS:
        off, on, traced = (_quick(taken[name, state]) for state in _STATES)
        more = [f"{on:,.1f}", f"{on / off - 1:+.1%}", verdict(on / off - 1, _TARGET)]
        rows.append((name, f"{off:,.1f}", *more, f"{traced:,.1f}", f"{traced / off - 1:+.1%}"))
    columns = ("CPU ns of a bystander's call", _STATES[0], _STATES[1], "added", "<= 1 %", _STATES[2], "added")
    title = f"ebpf: who is not followed, the quickest tenth of {_ROUNDS * _CHUNKS} measurements in turn"
    table(title, columns, rows)


def _quick(measured: list[float]) -> float:
    """The slowest of the quickest tenth: what else the machine does comes on top of the cost, it never takes of it."""
    return sorted(measured)[len(measured) // 10]


@contextmanager
def _in(state: str, folder: str) -> Iterator[None]:
    if state == _STATES[0]:
        yield
        return
    probes = [*EbpfSettings.model_validate({}).probes]
    if state == _STATES[2]:
        probes.append("syscalls")
    settings = {"folder": folder, "allocations": {"libc": "full", "budget": 100}}
    with Live(probes, {"processes": ["bench"]}, settings) as live:
        live.targets(1)
        live.settle()
        for probe in probes:
            if not live.value("oomcast_ebpf_probe_attached", probe):
                raise Missing(f"the probe {probe}: {live.logs[-1:]}")
        yield


def _compiled(folder: Path) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        raise Missing("there is no C compiler")
    program = folder / "bystander"
    subprocess.run([compiler, "-O2", "-o", program, HERE / "bystander.c"], check=True)
    return program
