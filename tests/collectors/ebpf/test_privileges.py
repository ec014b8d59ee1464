"""What works with which of the superuser's privileges, and what is said of the rest: real children under setpriv."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from collectors.ebpf.followed import expect, follow, own, program
from collectors.ebpf.live import COMMAND, Live
from collectors.ebpf.privileged import STRANGER, having, python, without
from collectors.ebpf.test_generic import attached
from e2e.program import command
from oomcast_collectors.ebpf.privileges import LINKS, release
from requires import needs

_PARANOID = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())
pytestmark = [
    needs("ebpf", "cc"),
    pytest.mark.skipif(_PARANOID > 2, reason=f"kernel.perf_event_paranoid is {_PARANOID}, so all takes CAP_SYS_ADMIN"),
]

PROBES = ["allocations", "crashes", "oom_kills"]
KERNEL = ("bpf", "perfmon")
LESS = release() >= LINKS
ADMIN = ("sys_admin", "sys_ptrace")
PROGRAMS = (*KERNEL, "checkpoint_restore", "sys_ptrace") if LESS else ADMIN
READ = "dac_read_search"
DAC_READ_SEARCH = 2
LACKING = "CAP_CHECKPOINT_RESTORE (or CAP_SYS_ADMIN)" if LESS else "CAP_SYS_ADMIN (kernels from 6.10 on want less)"
CHILD = "import os\nfrom oomcast_collectors.ebpf.child.__main__ import main"


def crashes(live: Live, process: str) -> dict[tuple[str, ...], float]:
    """By signal and module."""
    metric = "oomcast_crashes_total"
    return {labels[1:]: n for (name, labels), n in live.rows.items() if name == metric and labels[0] == process}


def ids(set_: tuple[int, tuple[str, ...]]) -> str:
    return f"{'root' if set_[0] == 0 else 'user'}-{'-'.join(set_[1])}"


@pytest.mark.parametrize("held", [(0, KERNEL), (STRANGER, (*KERNEL, READ))], ids=ids)
def test_events_of_the_kernel_take_two(held: tuple[int, tuple[str, ...]]) -> None:
    uid, capabilities = held
    with program("crash", "null_read") as (crashing, target), program("leak") as (leaking, leak):
        targets = {"engines": False, "processes": [crashing, leaking]}
        with Live(PROBES, targets, command=(*having(uid, *capabilities), *COMMAND)) as live:
            live.targets(2)
            assert [attached(live, name) for name in PROBES] == [(0, 1), (1, 0), (1, 0)]
            target.go()
            assert target.wait() < 0
            live.until(lambda: sum(crashes(live, crashing).values()) == 1)
            leak.step()
            live.settle()
            assert not [labels for metric, labels in live.rows if metric.startswith("oomcast_alloc")]
            assert {signal for signal, _ in crashes(live, crashing)} == {"SIGSEGV"}
            # The daemon says what is lacking, and the child works without a word.
            assert not live.logs


@pytest.mark.parametrize("held", [(0, PROGRAMS), (STRANGER, (*PROGRAMS, READ)), (STRANGER, (*ADMIN, READ))], ids=ids)
def test_functions_of_programs_take_more(held: tuple[int, tuple[str, ...]]) -> None:
    uid, capabilities = held
    with program("crash", "null_read") as (crashing, target), program("leak") as (leaking, leak):
        targets = {"engines": False, "processes": [crashing, leaking]}
        settings = {"allocations": {"libc": "full", "budget": 100}}
        with Live(PROBES, targets, settings, command=(*having(uid, *capabilities), *COMMAND)) as live:
            live.targets(2)
            assert [attached(live, name) for name in PROBES] == [(1, 0)] * 3
            follow(live, leaking)
            expect(live, leaking, "libc", leak.step())
            target.go()
            assert target.wait() < 0
            live.until(lambda: bool(live.events))
            assert "crash_null_read" in str(live.events[0].fields["stack"])
            live.settle()
            assert crashes(live, crashing) == {("SIGSEGV", crashing): 1}
            # What a call costs cannot be measured on a machine that is busy, which is said as well.
            assert not [line for line in live.logs if "could not be measured" not in line]


@pytest.mark.parametrize("reads", [True, False])
def test_processes_of_others_take_it_of_root_too(reads: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        sleeping = Path(folder, own("sleep"))
        shutil.copy("/bin/sleep", sleeping)
        user = [f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups"]
        process = subprocess.Popen(["setpriv", *user, str(sleeping), "600"])
        targets = {"engines": False, "processes": [sleeping.name]}
        # Which look into two files of it, one after another.
        settings = {"allocations": {"pairs": ["rust"]}}
        held = having(0, *PROGRAMS, *([READ] if reads else []))
        try:
            with Live(["allocations"], targets, settings, command=(*held, *COMMAND)) as live:
                live.targets(1)
                failures = live.value("oomcast_ebpf_probe_failures_total", "allocations") or 0
                live.settle()
                live.settle()
                assert ((live.value("oomcast_ebpf_probe_points", "allocations") or 0) > 0) == reads
                if reads:
                    assert not live.logs
                else:
                    # It goes on failing, and says so once.
                    assert (live.value("oomcast_ebpf_probe_failures_total", "allocations") or 0) > failures
                    (line,) = live.logs
                    assert line.startswith(f"the probe allocations is not attached to process {process.pid}: ")
                    assert line.endswith("; if it is another user's, that takes CAP_DAC_READ_SEARCH")
        finally:
            process.kill()
            process.wait()


def settings(tmp_path: Path, probes: str = "[allocations, crashes, oom_kills]") -> str:
    path = tmp_path / "oomcast.yaml"
    path.write_text(f"collectors: {{ebpf: {{enabled: true, probes: {probes}}}}}\n")
    return str(path)


def run(held: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*held, *command(*arguments)], capture_output=True, text=True, check=False, timeout=60)


def lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What is said of the collector on the standard output, spaces folded."""
    return [" ".join(line.split()[1:]) for line in done.stdout.splitlines() if line.startswith("ebpf ")]


def test_what_is_lacking_is_said_of_each_probe(tmp_path: Path) -> None:
    done = run(having(0, *KERNEL), "check", "--ebpf", "--config", settings(tmp_path))
    ran, *tried = lines(done)
    assert ran.startswith("ok ")
    assert [line.split(":")[0] for line in tried] == ["FAILED allocations", "ok crashes", "ok oom_kills"]
    lacking = f"to probe functions of programs takes {LACKING} and CAP_SYS_PTRACE, which the daemon lacks; add that to"
    assert lacking in tried[0]
    (logged,) = [line for line in done.stderr.splitlines() if "level=warning" in line and "logger=oomcast.ebpf" in line]
    assert f"not loaded: allocations: {lacking}" in logged


def test_the_collector_is_absent_where_no_probe_is_left(tmp_path: Path) -> None:
    done = run(having(0, *KERNEL), "check", "--config", settings(tmp_path, "[allocations, panics]"))
    (line,) = lines(done)
    assert line.startswith(f"absent allocations, panics: to probe functions of programs takes {LACKING} and ")
    assert done.returncode == 0


def test_with_nothing_the_collector_is_absent(tmp_path: Path) -> None:
    done = run(having(0), "check", "--ebpf", "--config", settings(tmp_path))
    lacking = "programs in the kernel take CAP_BPF and CAP_PERFMON (or CAP_SYS_ADMIN), which the daemon lacks; add that"
    assert [line.partition(lacking)[0] for line in lines(done)] == ["absent ", "FAILED "]


def test_stacks_are_of_programs() -> None:
    done = run(having(0, *KERNEL), "stacks", "--pid", "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"takes {LACKING} and CAP_SYS_PTRACE" in done.stderr


def test_a_child_that_is_refused_says_so_and_ends() -> None:
    with Live(["crashes"], {}, command=(*having(0, "bpf"), *COMMAND)) as live:
        live.until(lambda: bool(live.absent))
        assert "Operation not permitted" in live.absent[0]


def test_a_tracepoint_that_is_not_to_be_read_is_no_other_kernels() -> None:
    child = python(CHILD, without(DAC_READ_SEARCH), "os._exit(main())")
    with Live(["crashes"], {}, command=(*having(STRANGER, *KERNEL, READ), *child)) as live:
        live.until(lambda: bool(live.absent))
        assert live.absent[0].startswith("tracepoint task:task_newtask cannot be attached: open(/sys/kernel/")
        assert live.absent[0].endswith("/events/task/task_newtask/id): Permission denied")
