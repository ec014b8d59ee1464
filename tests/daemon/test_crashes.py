"""What several witnesses tell of crashes, put together."""

import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from fakes import FakeClock
from oomcast.contract import Event
from oomcast.crashes import GATHER, MAX_OPEN, CrashReconciler

BOOT = "0123456789abcdef0123456789abcdef"
SUMMARY = "vllm[100] died of SIGSEGV in libcuda.so.1"


class Bench:
    def __init__(self, coredumps: Path) -> None:
        self.clock = FakeClock()
        self.coredumps = coredumps
        self.reconciler = CrashReconciler(self.clock, coredumps, logging.getLogger("test"))

    def see(self, kind: str, fields: Mapping[str, str | int], summary: str = "a summary") -> None:
        self.reconciler.see([Event(kind, self.clock.time(), self.clock.monotonic(), summary, fields)])

    def probe(self, pid: int = 100, tid: int = 104, thread: str = "worker", **more: str | int) -> None:
        fields: dict[str, str | int] = {
            "pid": pid,
            "tid": tid,
            "thread": thread,
            "signal": "SIGSEGV",
            "process": "vllm",
        }
        self.see("crash", fields | more, SUMMARY)

    def log(self, pid: int | None = 104, comm: str = "worker", **more: str | int) -> None:
        fields: dict[str, str | int] = {"comm": comm, "cause": "segfault", "module": "libc.so.6", "address": "10"}
        self.see("segfault", fields | more | ({} if pid is None else {"pid": pid}))

    def core(self, pid: int = 100, comm: str = "vllm", suffix: str = ".zst", late: float = 0.0) -> Path:
        stamp = int((self.clock.time() + late) * 1e6)
        path = self.coredumps / f"core.{comm}.0.{BOOT}.{pid}.{stamp}{suffix}"
        path.touch()
        return path

    def settle(self, seconds: float = GATHER) -> list[Event]:
        self.clock.advance(seconds)
        return self.reconciler.settle()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_all_witnesses_are_one_event(bench: Bench) -> None:
    at = bench.clock.time()
    bench.log()
    bench.clock.advance(0.5)
    bench.probe(module="libcuda.so.1", stack="f+0x1 (libcuda.so.1)", cgroup="/pod")
    path = bench.core()
    assert bench.settle(GATHER - 1) == []
    (event,) = bench.settle(1)
    assert event.kind == "crash_joined"
    assert (event.time, event.summary) == (at + 0.5, SUMMARY)
    assert event.fields == {
        "pid": 100,
        "tid": 104,
        "thread": "worker",
        "process": "vllm",
        "signal": "SIGSEGV",
        "cause": "segfault",
        "module": "libcuda.so.1",
        "address": "10",
        "stack": "f+0x1 (libcuda.so.1)",
        "cgroup": "/pod",
        "core": str(path),
        "witnesses": "ebpf,kernel_log,coredump",
    }
    assert bench.settle(60) == []


def test_the_log_knows_the_module_where_the_probe_does_not(bench: Bench) -> None:
    bench.probe()
    bench.log()
    (event,) = bench.settle()
    assert (event.fields["module"], event.fields["witnesses"]) == ("libc.so.6", "ebpf,kernel_log")


def test_one_witness_is_enough(bench: Bench) -> None:
    bench.probe(signal="SIGABRT")
    bench.clock.advance(1)
    bench.log(pid=7)
    (first,) = bench.settle(GATHER - 1)
    (second,) = bench.settle(1)
    assert (first.fields["witnesses"], first.fields["signal"]) == ("ebpf", "SIGABRT")
    assert (second.fields["witnesses"], second.fields["tid"]) == ("kernel_log", 7)
    assert "pid" not in second.fields


def test_a_core_file_is_the_logs_too(bench: Bench) -> None:
    bench.log(pid=100)
    bench.core()
    (event,) = bench.settle()
    assert (event.fields["pid"], event.fields["witnesses"]) == (100, "kernel_log,coredump")


def test_threads_and_times_are_kept_apart(bench: Bench) -> None:
    bench.probe(tid=104)
    bench.log(pid=105)
    bench.clock.advance(4)
    bench.log(pid=104)
    assert [event.fields["witnesses"] for event in bench.settle()] == ["ebpf", "kernel_log", "kernel_log"]


def test_two_crashes_of_one_thread_number_are_two(bench: Bench) -> None:
    for _ in range(2):
        bench.probe()
        bench.log()
        bench.clock.advance(1)
    assert [event.fields["witnesses"] for event in bench.settle()] == ["ebpf,kernel_log"] * 2


def test_a_line_without_number_goes_by_the_name(bench: Bench) -> None:
    bench.probe(tid=104, thread="worker")
    bench.probe(tid=105, thread="other")
    bench.log(pid=None, comm="other")
    assert [event.fields["witnesses"] for event in bench.settle()] == ["ebpf", "ebpf,kernel_log"]


@pytest.mark.parametrize(
    "name",
    [
        f"core.vllm.0.{BOOT}.101.1700000000000000.zst",  # another process
        f"core.vllm.0.{BOOT}.100.1600000000000000.zst",  # another time
        f"core.vllm.0.{BOOT}.100.zst",
        "core.vllm.0.xyz.100.1700000000000000",
        f".#core.vllm.0.{BOOT}.100.1700000000000000",
        "garbage",
    ],
)
def test_files_that_are_not_its_core(bench: Bench, name: str) -> None:
    (bench.coredumps / name).touch()
    bench.probe()
    (event,) = bench.settle()
    assert "core" not in event.fields


def test_the_name_of_a_core_file_is_no_text_to_trust(bench: Bench) -> None:
    path = bench.core(comm="a.b\n\x1b[31m")
    bench.probe()
    (event,) = bench.settle()
    assert event.fields["core"] == str(path).replace("\n", "?").replace("\x1b", "?")


def test_without_the_folder(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.coredumps.rmdir()
    bench.probe()
    assert len(bench.settle()) == 1
    assert caplog.text == ""


def test_a_folder_that_cannot_be_read_is_told_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.coredumps.rmdir()
    bench.coredumps.write_text("a file")
    for _ in range(2):
        bench.probe()
        assert len(bench.settle()) == 1
    assert caplog.messages == [f"{bench.coredumps} cannot be read: Not a directory"]


def test_a_storm_costs_no_more_than_so_many(bench: Bench) -> None:
    for pid in range(2 * MAX_OPEN):
        bench.probe(pid=pid, tid=pid)
    assert len(bench.settle()) == MAX_OPEN
    bench.probe()
    assert len(bench.settle()) == 1


def test_other_events_are_none(bench: Bench) -> None:
    bench.see("oom_kill", {"pid": 100})
    bench.see("rust_panic", {"pid": 100, "tid": 104})
    assert bench.settle() == []
    assert bench.reconciler.samples() == []
