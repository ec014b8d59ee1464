"""Panics of Rust programs, compared with what the programs do."""

import subprocess
from pathlib import Path

import pytest

from collectors.ebpf.live import Live
from ebpf_lab.lab import Target, build
from oomcast_collectors.ebpf import metrics
from requires import needs

pytestmark = needs("ebpf", "cc", "rustc")

PANICS = metrics.PANICS.name


@pytest.mark.parametrize("program", ["panics", "panics_legacy", "panics_nofp"])
def test_a_panic_in_a_thread(program: str) -> None:
    with (
        Target(build(program), "thread") as target,
        Live(["panics"], {"engines": False, "processes": [program]}) as live,
    ):
        live.targets(1)
        live.until(lambda: live.value(PANICS, program) == 0)
        tid = target.step()["tid"]
        target.go()
        live.until(lambda: bool(live.events))
        live.settle()
        (event,) = live.events
        assert live.value(PANICS, program) == 1
    assert event.kind == "rust_panic"
    assert (event.fields["pid"], event.fields["tid"]) == (target.pid, tid)
    assert (event.fields["thread"], event.fields["process"]) == ("tokio-runtime-w", program)
    assert event.summary == f"Rust code panicked in the thread tokio-runtime-w of {program}[{target.pid}]"
    stack = str(event.fields["stack"]).split("\n")
    assert stack[0].startswith("std::panicking::")
    assert any("panics::panic_at_once+" in line for line in stack)
    assert any(line.startswith("<panics::engine::scheduler::Batch<") for line in stack)


def test_a_program_without_symbols_has_no_counter(tmp_path: Path) -> None:
    stripped = tmp_path / "panics_bare"
    subprocess.run(["strip", "-s", "-o", stripped, build("panics")], check=True, timeout=30)
    with (
        Target(stripped, "thread") as target,
        Live(["panics"], {"engines": False, "processes": ["panics_bare"]}) as live,
    ):
        live.targets(1)
        target.step()
        target.step()
        live.settle()
        assert live.value(PANICS, "panics_bare") is None
        assert live.events == []
        assert live.value(metrics.PROBE_FAILURES.name, "panics") == 0
