"""The Rust programs without a tracer."""

import signal
import subprocess

import pytest

from ebpf_lab.lab import Target, build
from requires import needs

pytestmark = needs("cc", "rustc")


def symbols(name: str) -> str:
    return subprocess.run(["nm", str(build(name))], capture_output=True, text=True, check=True).stdout


def test_arena() -> None:
    with Target(build("arena")) as target:
        allocated, freed, failing = (target.step() for _ in range(3))
    assert (allocated["phase"], freed["phase"], failing["phase"]) == ("allocated", "freed", "failing")
    assert (failing["allocs"], failing["frees"], failing["failures"]) == (100, 50, 1)
    assert allocated["bytes"] == sum(range(1000, 1100))
    assert freed["freed_bytes"] == sum(range(1000, 1050))
    assert " T arena_alloc\n" in symbols("arena")


def test_an_arena_that_is_full() -> None:
    with Target(build("arena"), "3000") as target:
        said = target.step()
    assert (said["allocs"], said["bytes"], said["failures"]) == (2, 2001, 98)


@pytest.mark.parametrize("name", ["panics", "panics_legacy"])
def test_a_panic_in_a_thread(name: str) -> None:
    with Target(build(name), "thread") as target:
        assert target.step()["tid"] > target.pid
        assert target.step() == {"phase": "joined", "panicked": True}
        assert "thread 'tokio-runtime-w'" in target.errors()
        assert "index out of bounds: the len is 1 but the index is 4" in target.errors()


@pytest.mark.parametrize("name", ["panics_abort", "panics_nofp"])
def test_a_panic_that_aborts(name: str) -> None:
    with Target(build(name), "thread") as target:
        target.step()
        target.go()
        assert target.wait() == -signal.SIGABRT


def test_a_panic_in_main() -> None:
    with Target(build("panics"), "main") as target:
        target.go()
        assert target.wait() == 101
        assert "thread 'main'" in target.errors()


def test_a_segmentation_fault_in_a_thread() -> None:
    with Target(build("panics"), "segv") as target:
        target.step()
        target.go()
        assert target.wait() == -signal.SIGSEGV


def test_both_manglings() -> None:
    def mangled(name: str) -> set[str]:
        return {line.split()[2][:4] for line in symbols(name).splitlines() if "decode_step" in line}

    assert mangled("panics") == {"_RNv"}
    assert mangled("panics_legacy") == {"_ZN6"}
