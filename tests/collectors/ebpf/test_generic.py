"""Probes that somebody drops in a folder: read by their descriptions, and no harm to each other."""

import os
from pathlib import Path

import pytest

from collectors.ebpf.live import Live
from ebpf_lab.lab import Target, build
from oomcast_collectors.ebpf import metrics
from requires import needs

pytestmark = needs("ebpf", "cc")

COUNTING = """
struct key { u32 pid; char comm[16]; };
BPF_TABLE("hash", struct key, u64, calls, 1024);
BPF_TABLE("percpu_hash", u32, u64, pids, 1024);
BPF_TABLE("array", u32, u64, all, 1);
int on_call(void *ctx) {
    struct key key = {};
    u64 none = 0, *count;
    u32 first = 0;
    key.pid = bpf_get_current_pid_tgid() >> 32;
    bpf_get_current_comm(key.comm, sizeof(key.comm));
    count = calls.lookup_or_try_init(&key, &none);
    if (count)
        __sync_fetch_and_add(count, 1);
    count = pids.lookup_or_try_init(&key.pid, &none);
    if (count)
        (*count)++;
    count = all.lookup(&first);
    if (count)
        __sync_fetch_and_add(count, 1);
    return 0;
}
"""
MALLOC = """
help: calls of malloc
uprobes:
  - {library: "libc.so*", symbol: malloc, entry: on_call}
tables:
  by_name: {table: calls, key: {pid: process, comm: text}}
  by_process: {table: pids, key: {pid: process}}
  all: {table: all}
  now: {table: all, kind: gauge}
"""
TRACEPOINT = "help: broken\ntracepoints:\n  - {event: 'sched:sched_process_exec', function: on_call}\n"
UNVERIFIABLE = "int on_call(void *ctx) { u64 *where = (u64 *)8; return *where; }\n"
TABLE = 'BPF_TABLE("hash", u32, u64, hits, 64);\nint on_call(void *ctx) { return 0; }\n'


def probe(folder: Path, name: str, description: str, program: str) -> None:
    (folder / f"{name}.yaml").write_text(description)
    (folder / f"{name}.c").write_text(program)


def attached(live: Live, name: str) -> tuple[float | None, float | None]:
    """Whether it is, and how often that failed."""
    return live.value(metrics.PROBE_ATTACHED.name, name), live.value(metrics.PROBE_FAILURES.name, name)


def hits(live: Live, table: str) -> dict[str, float]:
    return {
        labels[2]: v for (name, labels), v in live.rows.items() if name == metrics.COUNT.name and labels[1] == table
    }


def test_tables_become_series_and_outlive_their_process(tmp_path: Path) -> None:
    probe(tmp_path, "mallocs", MALLOC, COUNTING)
    with (
        Target(build("leak")) as target,
        Live(["mallocs"], {"processes": ["leak"]}, {"folder": str(tmp_path)}) as live,
    ):
        live.targets(1)
        assert attached(live, "mallocs") == (1, 0)
        said = target.step()
        live.settle()
        expected = hits(live, "by_name")["pid=leak,comm=leak"]
        assert expected >= said["allocs"]
        assert hits(live, "by_process") == {"leak": expected}
        assert hits(live, "all") == {"": expected}
        assert live.value(metrics.VALUE.name, "mallocs", "now", "") == expected
        target.stop()
        live.targets(0)
        assert hits(live, "by_process") == {"leak": expected}
        assert hits(live, "by_name") == {"pid=leak,comm=leak": expected}


BROKEN = {
    "kills_the_compiler": (
        TRACEPOINT,
        "int on_call(u64 *ctx) { return ((unsigned __int128)ctx[1] * ctx[2]) >> 64; }\n",
        "the compiler dies of it",
    ),
    "compiles_not": (TRACEPOINT, "int on_call(void *ctx) { return nothing; }\n", "undeclared identifier"),
    "empty": (TRACEPOINT, "", "on_call"),
    "refused": (TRACEPOINT, UNVERIFIABLE, "refused"),
    "other_function": (TRACEPOINT.replace("on_call", "on_nothing"), TABLE, "on_nothing"),
    "no_tracepoint": (TRACEPOINT.replace("sched_process_exec", "sched_nothing"), TABLE, "sched:sched_nothing"),
    "no_table": (TRACEPOINT + "tables: {a: {table: misses}}\n", TABLE, "no table misses"),
    "text_of_a_number": (TRACEPOINT + "tables: {a: {table: hits, key: {x: text}}}\n", TABLE, "not to be read as text"),
    "garbage": ("\t[", "", "garbage.yaml"),
}


def test_one_that_is_no_good_costs_no_other(tmp_path: Path) -> None:
    for name, (description, program, _) in BROKEN.items():
        probe(tmp_path, name, description, program)
    probe(tmp_path, "mallocs", MALLOC, COUNTING)
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")
    os.mkfifo(tmp_path / "fifo.yaml")
    names = [*BROKEN, "loop", "fifo", "absent"]
    with (
        Target(build("leak")) as target,
        Live([*names, "mallocs"], {"processes": ["leak"]}, {"folder": str(tmp_path)}) as live,
    ):
        live.targets(1)
        assert {name: attached(live, name) for name in names} == dict.fromkeys(names, (0, 1))
        assert attached(live, "mallocs") == (1, 0)
        target.step()
        live.settle()
        assert hits(live, "by_process")["leak"] > 100
    assert len(live.logs) == len(names)
    for name, (_, _, reason) in BROKEN.items():
        (log,) = [log for log in live.logs if f"the probe {name} " in log]
        assert name == "refused" or reason in log, log


def test_one_whose_values_cannot_be_read_is_taken_out(tmp_path: Path) -> None:
    program = 'struct pair { u64 a, b; };\nBPF_TABLE("array", u32, struct pair, hits, 4);\n' + TABLE.split("\n")[1]
    probe(tmp_path, "pairs", TRACEPOINT + "tables: {a: {table: hits}}\n", program)
    probe(tmp_path, "mallocs", MALLOC, COUNTING)
    with Live(["pairs", "mallocs"], {"processes": ["nobody"]}, {"folder": str(tmp_path)}) as live:
        live.settle()
        assert (attached(live, "pairs"), attached(live, "mallocs")) == ((0, 1), (1, 0))


def test_keys_have_an_end(tmp_path: Path) -> None:
    program = """
BPF_TABLE("hash", u64, u64, seen, 4096);
int on_call(void *ctx) { u64 key = bpf_ktime_get_ns(), one = 1; seen.update(&key, &one); return 0; }
"""
    probe(tmp_path, "moments", MALLOC.partition("tables")[0] + "tables: {t: {table: seen, key: {t: hex}}}\n", program)
    with (
        Target(build("leak")) as target,
        Live(["moments"], {"processes": ["leak"]}, {"folder": str(tmp_path)}) as live,
    ):
        live.targets(1)
        for _ in range(3):
            target.step()
        live.settle()
        assert len(hits(live, "t")) == 101
        assert hits(live, "t")["other"] > 1


@pytest.mark.parametrize("count", [1, 0])
def test_a_table_without_entries_has_no_series(tmp_path: Path, count: int) -> None:
    probe(tmp_path, "mallocs", MALLOC, COUNTING)
    with Live(["mallocs"][:count], {"processes": ["nobody"]}, {"folder": str(tmp_path)}) as live:
        live.settle()
        assert (hits(live, "by_name"), hits(live, "all")) == ({}, {"": 0} if count else {})
