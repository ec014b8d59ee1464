"""Processes that anybody could start to be rid of the child, or of its memory."""

import subprocess
import sys
import time
from pathlib import Path

from collectors.ebpf.followed import program
from collectors.ebpf.live import Live
from collectors.ebpf.test_generic import COUNTING, MALLOC, attached, hits, probe
from ebpf_lab.lab import Target, build
from oomcast_collectors.ebpf import metrics
from oomcast_collectors.ebpf.child.deaths.crashes import Crashes
from requires import needs

pytestmark = needs("ebpf", "cc")

MANY_FILES = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
libc.prctl(15, b"mapper")  # PR_SET_NAME
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
for number in range(25_000):
    path = f"{sys.argv[1]}/{number}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.write(fd, bytes(4096))
    libc.mmap(None, 4096, 5, 2, fd, 0)
    os.close(fd)
    os.unlink(path)
print('{"pid": %d}' % os.getpid(), flush=True)
input()
"""

STRANGERS = """
import ctypes, mmap, os, resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
for number in range(int(sys.argv[2])):
    if not os.fork():
        ctypes.CDLL(None).prctl(15, b"stranger-%d" % number)
        with open(f"{sys.argv[1]}/module-{number}.so", "w+b") as file:
            file.write(b"\\x0f\\x0b" * 2048)  # ud2
            file.flush()
            code = mmap.mmap(file.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
    os.wait()
"""

EXECUTES = """
import ctypes, os, sys, threading
ctypes.CDLL(None).prctl(15, b"executes")
print('{"pid": %d}' % os.getpid(), flush=True)
input()
threading.Thread(target=os.execv, args=(sys.argv[1], sys.argv[1:])).start()
threading.Event().wait()
"""

# In a process of its own, as what is loaded there ends with it.
FULL = """
from oomcast_collectors.ebpf.child import follow
from oomcast_collectors.ebpf.child.bcc import Bcc
from oomcast_collectors.ebpf.child.events import Events
description, text = follow.read("follow", None)
constants = {**description.constants, "MOST_TARGETS": 2}
follow.read = lambda *_: (description.model_copy(update={"constants": constants}), text)
bcc = Bcc()
follower = follow.Follower(bcc, None, Events(bcc, None))
for pid in range(1, 5):
    follower.follow(pid)
print(*(f"{row.labels[1]}={row.value:g}" for row in follower.rows()))
"""

EVER_NEW_KEYS = """
BPF_TABLE("lru_hash", u64, u64, keys, 64);
BPF_TABLE("array", u32, u64, all, 1);
int on_call(void *ctx) {
    u32 first = 0;
    u64 *next = all.lookup(&first), one = 1, key;
    if (!next)
        return 0;
    key = __sync_fetch_and_add(next, 1);
    keys.update(&key, &one);
    return 0;
}
"""
ROTATING = """
help: never the same key
uprobes:
  - {library: "libc.so*", symbol: malloc, entry: on_call}
tables:
  keys: {table: keys, key: {key: number}}
"""


def descriptors(live: Live) -> int:
    return len(list(Path(f"/proc/{live.pid}/fd").iterdir()))


def test_a_target_that_has_ten_thousands_of_files_mapped(tmp_path: Path) -> None:
    probes = ["crashes", "major_faults", "cuda_streams", "allocations"]
    with (
        Target(sys.executable, "-c", MANY_FILES, tmp_path) as target,
        Live(probes, {"engines": False, "processes": ["mapper"]}) as live,
    ):
        assert len(Path(f"/proc/{target.pid}/maps").read_bytes().splitlines()) > 25_000
        live.targets(1)
        before = time.monotonic()
        for _ in range(2):
            live.settle()
        assert time.monotonic() - before < 10
        assert descriptors(live) < 3000
        assert [attached(live, name) for name in probes] == [(1, 0)] * 4


def test_strangers_that_crash_in_files_called_anything(tmp_path: Path) -> None:
    with (
        Target(build("crash"), "abort") as target,
        Live(["crashes"], {"engines": False, "processes": ["crash"]}) as live,
    ):
        live.targets(1)
        before = descriptors(live)
        subprocess.run([sys.executable, "-c", STRANGERS, tmp_path, "200"], check=True, timeout=60)
        live.until(lambda: len(live.events) == 200)
        target.go()
        target.wait()
        live.until(lambda: len(live.events) == 201)
        live.settle()
        crashes = {labels: value for (name, labels), value in live.rows.items() if name == metrics.CRASHES.name}
        assert sum(crashes.values()) == 201
        assert len({process for process, _, _ in crashes}) == 66
        assert crashes["crash", "SIGABRT", "crash"] == 1
        assert live.value(metrics.TARGETS.name, "other") is None
        assert descriptors(live) <= before


def test_there_is_an_end_to_modules() -> None:
    crashes = Crashes()
    for number in range(1000):
        crashes.add("stranger", "SIGILL", f"module-{number}.so", target=False)
    crashes.add("engine", "SIGSEGV", "libtorch.so", target=True)
    for number in range(1000):
        crashes.add("engine", "SIGILL", f"module-{number}.so", target=True)
    numbers = dict(crashes.items())
    assert len(numbers) <= 252
    assert sum(numbers.values()) == 2001
    assert numbers["other", "SIGILL", "other"] == 850
    assert numbers["engine", "SIGSEGV", "libtorch.so"] == 1
    assert numbers["engine", "SIGILL", "other"] > 850


def test_a_thread_that_executes_another_program(tmp_path: Path) -> None:
    """Its process' first thread ends before, and the new program has that one's pid."""
    probe(tmp_path, "mallocs", MALLOC, COUNTING)
    settings = {"folder": str(tmp_path)}
    with (
        Target(sys.executable, "-c", EXECUTES, build("leak")) as target,
        Live(["mallocs"], {"engines": False, "processes": ["executes"]}, settings) as live,
    ):
        live.targets(1)
        live.until(lambda: live.value(metrics.PROBE_POINTS.name, "mallocs") == 1)
        assert target.step()["pid"] == target.pid
        live.settle()
        live.until(lambda: live.value(metrics.PROBE_POINTS.name, "mallocs") == 1)
        before = hits(live, "by_process").get("executes", 0)
        said = target.step()
        live.settle()
        assert hits(live, "by_process")["executes"] - before >= said["allocs"]


def test_more_forks_than_can_be_followed() -> None:
    done = subprocess.run([sys.executable, "-c", FULL], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "lives=0 targets=2\n"


def test_there_is_an_end_to_keys_however_often_they_change(tmp_path: Path) -> None:
    probe(tmp_path, "rotating", ROTATING, EVER_NEW_KEYS)
    seen: set[str] = set()
    with (
        program("leak") as (name, target),
        Live(["rotating"], {"engines": False, "processes": [name]}, {"folder": str(tmp_path)}) as live,
    ):
        live.targets(1)
        live.until(lambda: live.value(metrics.PROBE_POINTS.name, "rotating") == 1)
        while target.step()["phase"] != "leaks":
            pass
        for _ in range(4):
            target.step()
            live.settle()
            seen |= {labels[2] for row, labels in live.rows if row == metrics.COUNT.name}
        assert "other" in seen
        assert len(seen) <= 101


def test_one_of_the_folder_that_is_called_as_a_shipped_one(tmp_path: Path) -> None:
    for name in ("crashes", "panics", "major_faults", "mallocs"):
        probe(tmp_path, name, MALLOC, COUNTING)
    probes = ["crashes", "panics", "major_faults", "mallocs"]
    with Live(probes, {"engines": False}, {"folder": str(tmp_path)}) as live:
        live.settle()
        assert [attached(live, name) for name in probes] == [(0, 1), (0, 1), (0, 1), (1, 0)]
        assert sum("is not loaded" in line for line in live.logs) == 3
