"""`check`: each probe compiled, loaded, attached and taken out again, and what is said of it."""

import logging
import os
import time
from pathlib import Path

import pytest

from collectors.ebpf.test_generic import BROKEN, COUNTING, MALLOC, probe
from collectors.ebpf.test_lifecycle import held
from oomcast.clock import SystemClock
from oomcast.contract import Context, NotPresent, Roots
from oomcast_collectors import ebpf
from oomcast_collectors.ebpf import EbpfCollector, EbpfSettings, check, question
from requires import needs

pytestmark = needs("ebpf", "cc")


def context() -> Context:
    return Context(Roots(), SystemClock(), logging.getLogger("test.ebpf"), lambda facts: None)


def settings(folder: Path | None = None, *probes: str) -> EbpfSettings:
    return EbpfSettings.model_validate({"enabled": True, "probes": probes, "folder": folder})


def test_each_probe_has_a_line(tmp_path: Path) -> None:
    for name, (description, program, _) in BROKEN.items():
        probe(tmp_path, name, description, program)
    probe(tmp_path, "mallocs", MALLOC, COUNTING)
    names = [*BROKEN, "mallocs", "absent"]
    tried = list(check(settings(tmp_path, *names), context()))
    assert [line.split(":")[0] for _, line in tried] == names
    assert [fine for fine, _ in tried] == [name == "mallocs" for name in names]
    lines = dict(line.split(": ", 1) for _, line in tried)
    assert "1 function" in lines["mallocs"]
    for name, (_, _, reason) in BROKEN.items():
        assert name == "refused" or reason in lines[name]
    assert held(os.getpid()) == 0


def test_the_shipped_ones_work_here() -> None:
    tried = list(check(settings(None, "major_faults", "unified_memory"), context()))
    assert [fine for fine, _ in tried] == [True, True], tried
    assert "2 tracepoints" in tried[0][1]


def test_a_machine_that_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ebpf, "missing", lambda: "no BCC")
    assert list(check(settings(None, "crashes"), context())) == [(False, "no BCC")]
    collector = EbpfCollector(settings(), context())
    collector.start()
    # It is not tried again with each run, nor is what comes later taken for the reason.
    monkeypatch.setattr(ebpf, "missing", lambda: "")
    with pytest.raises(NotPresent, match="no BCC"):
        collector.collect()
    collector.stop(time.monotonic() + 1)


def child(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr(question, "COMMAND", ("sh", "-c", f"read order; {script}"))


@pytest.mark.parametrize("script", ["exit 3", "kill -9 $$"])
def test_a_child_that_ends_before_it_is_done(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, script)
    tried = list(check(settings(None, "crashes", "panics"), context()))
    ended = "the child ended, or said nothing any more, before it was tried"
    assert tried == [(False, f"crashes: {ended}"), (False, f"panics: {ended}")]


@pytest.mark.parametrize("said", ["Segmentation fault", '["checked", "unknown", true, ""]', "[7"])
def test_a_child_that_says_something_else(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, f"echo '{said}'")
    *_, (fine, line) = list(check(settings(None, "crashes"), context()))
    assert not fine
    assert line.startswith("crashes: ")


def test_a_child_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ebpf, "_CHECK_SECONDS", 0.5)
    child(monkeypatch, "trap '' TERM; while :; do sleep 1; done")
    began = time.monotonic()
    assert [fine for fine, _ in check(settings(None, "crashes"), context())] == [False]
    assert time.monotonic() < began + 5
