"""Programs that crash in every way, all at once, before one child."""

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from collectors.ebpf.live import Live
from ebpf_lab.lab import Target, build
from ebpf_lab.own_libc import in_root, libc_of, own_libc_root, replace_libc
from ebpf_lab.recipes import CRASHES
from oomcast.contract import Event
from oomcast_collectors.ebpf import metrics
from requires import needs

pytestmark = needs("ebpf", "cc", "rustc", "netns")

FATAL = {kind: end for kind, end in CRASHES.items() if end}
RUST = ("panics", "panics_legacy", "panics_nofp")
REPORTER = "import ctypes, faulthandler; faulthandler.enable(); ctypes.string_at(0)"
CULPRITS = {"library": "libcrash_read", "thread": "crash_in_thread", "stack_overflow": "crash_stack_overflow_deeper"}


@dataclass
class Crashed:
    """events: by what crashed. pids: likewise. fatal, handled: the counters' rows when all was over."""

    events: Mapping[str, list[Event]]
    pids: Mapping[str, int]
    fatal: Mapping[tuple[str, ...], float]
    handled: Mapping[tuple[str, ...], float]

    def event(self, what: str) -> Event:
        (event,) = self.events[what]
        return event

    def of(self, process: str) -> dict[tuple[str, ...], float]:
        """Its fatal signals, by signal and module."""
        return {labels[1:]: value for labels, value in self.fatal.items() if labels[0] == process}


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crashed]:
    root = own_libc_root(tmp_path_factory.mktemp("root"), build("crash"))
    # It looks for the library beside itself by /proc, which that root lacks.
    shutil.copy2(build("libcrash.so"), libc_of(root).parent)
    with ExitStack() as stack:
        targets = {kind: stack.enter_context(Target(build("crash"), kind)) for kind in CRASHES}
        targets |= {name: stack.enter_context(Target(build(name), "segv")) for name in RUST}
        targets["rust_abort"] = stack.enter_context(Target(build("panics_abort"), "main"))
        targets["own_libc"] = stack.enter_context(in_root(root, "crash", "double_free"))
        settings = {"engines": False, "processes": ["crash", *RUST, "panics_abort"]}
        live = stack.enter_context(Live(["crashes"], settings))
        live.targets(len(targets))
        replace_libc(root)
        for name in RUST:
            targets[name].step()
        for target in targets.values():
            target.go()
        assert targets["handled"].said() == {"phase": "survived"}
        # It ends, and by no signal that is of interest.
        os.kill(targets["handled"].pid, signal.SIGTERM)
        pids = {name: target.pid for name, target in targets.items()}
        assert {name: -target.wait() for name, target in targets.items()} == ends()
        commands = {"stranger": ["sh", "-c", "kill -SEGV $$"], "reporter": [sys.executable, "-c", REPORTER]}
        for name, command in commands.items():
            pids[name] = ended(command, -signal.SIGSEGV)
        live.until(lambda: len(live.events) >= len(pids) - 1)
        live.settle()
        events = {name: [event for event in live.events if event.fields["pid"] == pid] for name, pid in pids.items()}
        rows = [
            {labels: value for (row, labels), value in live.rows.items() if row == metric.name}
            for metric in (metrics.CRASHES, metrics.HANDLED_SIGNALS)
        ]
        assert not live.logs
        yield Crashed(events, pids, *rows)


def ends() -> dict[str, signal.Signals]:
    others = {"rust_abort": signal.SIGABRT, "own_libc": signal.SIGABRT, "handled": signal.SIGTERM}
    return FATAL | dict.fromkeys(RUST, signal.SIGSEGV) | others


def ended(command: list[str], status: int) -> int:
    """Runs a command that ends with that status. Returns its pid."""
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        assert process.wait() == status
    return process.pid


def functions(event: Event) -> list[str]:
    """Of the stack, from the innermost one on."""
    return [line.removeprefix("? ").partition("+")[0] for line in str(event.fields["stack"]).split("\n")]


@pytest.mark.parametrize("kind", FATAL)
def test_every_kind_has_its_signal_module_and_function(crashed: Crashed, kind: str) -> None:
    event, module = crashed.event(kind), "libcrash.so" if kind == "library" else "crash"
    assert event.fields["signal"] == FATAL[kind].name
    assert event.fields["module"] == module
    assert event.summary == f"crash[{crashed.pids[kind]}] died of {FATAL[kind].name} in {module}"
    assert CULPRITS.get(kind, f"crash_{kind}") in functions(event)
    assert len(functions(event)) <= 30


def test_each_death_is_counted_once(crashed: Crashed) -> None:
    expected = Counter((end.name, "libcrash.so" if kind == "library" else "crash") for kind, end in FATAL.items())
    expected["SIGABRT", "crash"] += 1  # own_libc
    assert crashed.of("crash") == expected


def test_what_is_handled_is_no_crash(crashed: Crashed) -> None:
    assert crashed.events["handled"] == []
    assert crashed.handled["crash", "SIGSEGV"] == 2  # handled and reraised


def test_where_a_null_pointer_was_called(crashed: Crashed) -> None:
    event = crashed.event("exec_null")
    assert functions(event)[:3] == ["[unknown]", "crash_exec_null", "main"]
    assert event.fields["ip"] == "0"


def test_a_thread_is_named(crashed: Crashed) -> None:
    fields = crashed.event("thread").fields
    assert fields["thread"] == "tokio-runtime-w"
    assert fields["tid"] != fields["pid"]
    assert fields["process"] == "crash"


def test_when_it_was(crashed: Crashed) -> None:
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    assert uptime - 60 < crashed.event("abort").monotonic <= uptime + 1


@pytest.mark.parametrize("program", RUST)
def test_rust_is_demangled_and_counted_once(crashed: Crashed, program: str) -> None:
    """Its own handler sees the signal first, and lets it come again."""
    expected = ["panics::engine::scheduler::wild_write", "panics::crash_at_once"]
    assert functions(crashed.event(program))[:2] == expected
    assert crashed.of(program) == {("SIGSEGV", program): 1}
    assert crashed.handled[program, "SIGSEGV"] == 1


def test_an_abort_of_rust_is_the_programs(crashed: Crashed) -> None:
    event = crashed.event("rust_abort")
    assert event.fields["module"] == "panics_abort"
    assert "<panics::engine::scheduler::Batch<u16> as panics::engine::scheduler::Step>::advance" in functions(event)


def test_a_library_of_another_mount_namespace_that_was_replaced(crashed: Crashed) -> None:
    event = crashed.event("own_libc")
    assert event.fields["module"] == "crash"
    assert "crash_double_free" in functions(event)
    assert "abort" in functions(event)


def test_a_process_that_is_no_target_counts_under_its_name(crashed: Crashed) -> None:
    assert [labels[0] for labels in crashed.of("sh")] == ["SIGSEGV"]
    assert crashed.event("stranger").fields["process"] == "sh"


def test_a_crash_reporter_does_not_hide_the_crash(crashed: Crashed) -> None:
    """Python's handler raises the signal again, at a place that says nothing."""
    fields = crashed.event("reporter").fields
    assert fields["code"] == 1
    assert sum(crashed.of(str(fields["process"])).values()) == 1


LOADER = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(15, b"loader")  # PR_SET_NAME
print('{"pid": %d}' % os.getpid(), flush=True)
input()
library = ctypes.CDLL(sys.argv[1])
print('{"phase": "loaded"}', flush=True)
input()
library.libcrash_parse(None)
"""


def test_a_library_that_was_loaded_later() -> None:
    with (
        Target(sys.executable, "-c", LOADER, build("libcrash.so")) as target,
        Live(["crashes"], {"engines": False, "processes": ["loader"]}) as live,
    ):
        live.targets(1)
        target.step()
        # A process that came lately is looked at each second.
        live.settle()
        live.settle()
        target.go()
        assert target.wait() == -signal.SIGSEGV
        live.until(lambda: bool(live.events))
        (event,) = live.events
    assert event.fields["module"] == "libcrash.so"
    assert functions(event)[:2] == ["libcrash_read", "libcrash_parse"]


STORM = """
import ctypes, os, signal
libc = ctypes.CDLL(None)
libc.signal(11, ctypes.cast(libc.abs, ctypes.c_void_p))
print('{"pid": %d}' % os.getpid(), flush=True)
input()
for _ in range(20000): libc["raise"](11)
print('{"phase": "survived"}', flush=True)
input()
"""


def test_a_storm_of_handled_signals_is_counted_and_not_told() -> None:
    with Target(sys.executable, "-c", STORM) as target, Live(["crashes"], {"engines": False}) as live:
        live.settle()
        target.step()
        live.settle()
        counts = [value for (name, _), value in live.rows.items() if name == metrics.HANDLED_SIGNALS.name]
        assert max(counts) == 20_000
        assert live.value(metrics.PROBE_LOST.name, "crashes", "faults") == 0
        assert live.events == []
        # It may be gone by the next report, and then it keeps its name.
        target.stop()
        live.settle()
        assert max(value for (name, _), value in live.rows.items() if name == metrics.HANDLED_SIGNALS.name) == 20_000
