"""Uprobes by links and by perf events: both see each call of all threads, and are gone when the child is."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from collectors.ebpf.live import COMMAND, Live
from ebpf_lab.lab import Target, build
from requires import needs

pytestmark = needs("ebpf", "cc")

# A kernel from before links were for whole processes.
_OLDER = (
    sys.executable,
    "-c",
    "import os, platform; platform.release = lambda: '6.9.12-1'\n"
    "from oomcast_collectors.ebpf.child.__main__ import main\nos._exit(main())",
)
_FUNCTIONS = ("malloc", "calloc", "realloc", "aligned_alloc", "posix_memalign", "valloc", "pvalloc", "free")
_PROGRAM = """
#include <uapi/linux/ptrace.h>
BPF_TABLE("percpu_array", u32, u64, calls, 3);
static __always_inline int seen(u32 which) {
    u64 *count = calls.lookup(&which);
    if (count)
        ++*count;
    return 0;
}
int on_malloc(struct pt_regs *ctx) { return seen(0); }
int on_return(struct pt_regs *ctx) { return seen(1); }
int on_other(struct pt_regs *ctx) { return seen(2); }
"""
_POINTS = "\n".join(
    f"  - {{library: 'libc.so*', symbol: {name}, "
    + ("entry: on_malloc, leave: on_return}" if name == "malloc" else "entry: on_other, leave: on_other}")
    for name in _FUNCTIONS
)
_DESCRIPTION = f"""
help: calls of malloc
uprobes:
{_POINTS}
tables:
  calls: {{table: calls, key: {{of: number}}}}
"""


@pytest.fixture
def live(tmp_path: Path) -> Callable[[str, tuple[str, ...]], Live]:
    (tmp_path / "mallocs.c").write_text(_PROGRAM)
    (tmp_path / "mallocs.yaml").write_text(_DESCRIPTION)
    return lambda process, command: Live(
        ["mallocs"], {"processes": [process]}, {"folder": str(tmp_path)}, command=command
    )


@pytest.mark.parametrize("command", [COMMAND, _OLDER], ids=["links", "perf events"])
def test_every_call_of_every_thread_is_seen(
    command: tuple[str, ...], live: Callable[[str, tuple[str, ...]], Live]
) -> None:
    with Target(build("threads")) as target, live("threads", command) as child:
        child.targets(1)
        said = target.step()
        child.settle()
        # The C library allocates on its own account as well, when threads start.
        for which in ("0", "1"):
            seen = child.value("oomcast_ebpf_hits_total", "mallocs", "calls", which)
            assert seen is not None
            assert said["allocs"] <= seen <= said["allocs"] + 50


def test_a_child_takes_many_out_at_once(live: Callable[[str, tuple[str, ...]], Live]) -> None:
    with Target(build("threads")), Target(build("threads")), live("threads", COMMAND) as child:
        child.targets(2)
        assert child.value("oomcast_ebpf_probe_points", "mallocs") == 2 * 2 * len(_FUNCTIONS)
        began = time.monotonic()
        child.__exit__(None, None, None)
        # One after another they would take three seconds.
        assert time.monotonic() - began < 1.5
