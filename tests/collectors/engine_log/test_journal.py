"""The journal of a unit: what journalctl prints, and a program in its place that does what journalctl may do."""

import logging
import re
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.engine_log.support import FIXTURES, matcher
from fakes import FakeClock
from oomcast_collectors.engine_log import journal
from oomcast_collectors.engine_log.lines import Tally

RECORDS = (FIXTURES / "journal-252.json").read_bytes()
Eventually = Callable[[Callable[[], bool]], None]


class Bench:
    """A unit whose journalctl is the shell script of a test."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.clock = FakeClock()
        self.tally = Tally()
        self.known = 0
        self.text = b""
        self._program = directory / "journalctl"
        (directory / "journal" / "id").mkdir(parents=True)
        (directory / "journal" / "id" / "system.journal").touch()
        monkeypatch.setattr(journal, "_JOURNALS", (directory / "journal",))
        log = logging.getLogger("engine_log")
        self.unit = journal.Unit("vllm.service", self.clock, log, self._tally, self._take, str(self._program))

    def script(self, text: str) -> None:
        self._program.write_text(f'#!/bin/sh\necho "$*" >> {self.directory}/arguments\n{text}\n')
        self._program.chmod(stat.S_IRWXU)

    @property
    def arguments(self) -> list[str]:
        path = self.directory / "arguments"
        return path.read_text().splitlines() if path.exists() else []

    def look(self) -> None:
        self.unit.look()
        while self.unit.read():
            pass

    def has_ended(self, times: int) -> bool:
        """After a look, whether journalctl has ended so often."""
        self.look()
        return self.tally.errors >= times

    def _tally(self) -> Tally:
        self.known += 1
        return self.tally

    def _take(self, block: bytes, moment: float) -> None:
        self.text += block


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench(tmp_path, monkeypatch)
    yield made
    made.unit.stop(made.clock.mono + 2)


def test_records_of_journalctl() -> None:
    lines = [journal.unwrap(line) for line in RECORDS.splitlines()]
    assert [line.text for line in lines] == [
        "(EngineCore pid=1) ERROR CUDA out of memory. Tried to allocate 2.00 GiB.",
        'said "memory leak detected!" \\ in <scheduler>',
        "bin �� EngineDeadError",
        "two No free slots",
        "",
    ]
    assert lines[0].time == pytest.approx(1795992765.252446, abs=1e-6)
    block = journal._texts(RECORDS)
    spans = list(matcher().candidates(block))
    assert [matcher().match(journal.unwrap(block[a:b]).text)[0].rule.name for a, b in spans] == [
        "cuda_out_of_memory",
        "memory_leak",
        "engine_dead",
        "no_free_slots",
    ]


@settings(deadline=None)
@given(st.one_of(st.binary(), st.binary().map(lambda b: b'{"MESSAGE":[' + b)))
def test_anything_is_a_record(raw: bytes) -> None:
    assert journal.unwrap(raw).text == "" or raw.startswith(b"{")
    journal._texts(raw)


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"null", b'{"MESSAGE":"x"}', b'{"__REALTIME_TIMESTAMP":"x"}', b"[" * 9999, b'{"MESSAGE":null}']
)
def test_what_is_no_record_is_no_message(raw: bytes) -> None:
    assert journal.unwrap(raw) == ("", None)


def test_it_is_read_as_it_comes_and_taken_up_after_the_last_record(bench: Bench, eventually: Eventually) -> None:
    (bench.directory / "records").write_bytes(RECORDS)
    bench.script(f"cat {bench.directory}/records; [ -e {bench.directory}/stay ] && exec sleep 1000; exit 1")
    eventually(lambda: bench.has_ended(1))
    assert (bench.tally.lines, bench.known) == (5, 1)
    assert bench.text.count(b"__REALTIME_TIMESTAMP") == 5
    (bench.directory / "stay").touch()
    bench.look()
    assert len(bench.arguments) == 1
    bench.clock.advance(1.1)

    def is_taken_up() -> bool:
        bench.look()
        return bench.tally.lines == 10

    eventually(is_taken_up)
    options = "--follow --output=json --output-fields=MESSAGE --all --quiet --unit=vllm.service"
    cursor = re.findall(r'"__CURSOR":"([^"]+)"', RECORDS.decode())[-1]
    assert bench.arguments == [f"{options} --lines=0", f"{options} --no-tail --after-cursor={cursor}"]


def test_one_that_cannot_go_on_is_tried_ever_more_rarely_and_without_its_cursor(
    bench: Bench, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    (bench.directory / "records").write_bytes(RECORDS)
    bench.script(f'case "$*" in *cursor*) exit 1;; esac; cat {bench.directory}/records')
    starts: list[float] = []
    while len(starts) < 6:
        bench.unit.look()
        if bench.unit._child is not None:
            starts.append(bench.clock.mono - 1000)
            eventually(lambda: bench.has_ended(len(starts)))
        bench.clock.advance(0.25)
    assert ["cursor" in arguments for arguments in bench.arguments] == [False, True, False, True, False, True]
    # Each run without a cursor has records, so that the pause is short again.
    assert starts == [0, 1, 3, 4, 6, 7]
    assert caplog.messages.count("unit vllm.service: journalctl has ended") >= 1


def test_pauses_grow_to_a_minute(bench: Bench, eventually: Eventually) -> None:
    bench.script("exit 1")
    starts: list[float] = []
    while bench.clock.mono < 1400:
        bench.unit.look()
        if bench.unit._child is not None:
            starts.append(bench.clock.mono - 1000)
            eventually(lambda: bench.has_ended(len(starts)))
        bench.clock.advance(1)
    assert starts == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243, 303, 363]


def test_no_journalctl_or_no_journal(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.look()
    bench.clock.advance(61)
    bench.look()
    bench.script("exec sleep 1000")
    (bench.directory / "journal" / "id" / "system.journal").unlink()
    bench.clock.advance(61)
    bench.look()
    assert bench.known == 0
    reasons = ["there is no journalctl", "there is no journal"]
    assert caplog.messages == [f"unit vllm.service: not followed: {reason}" for reason in reasons]


def test_stop_ends_the_whole_group(bench: Bench, eventually: Eventually) -> None:
    bench.script(f"sleep 1000 & echo $! > {bench.directory}/pid; wait")
    bench.look()
    pid = bench.directory / "pid"
    eventually(lambda: pid.exists() and pid.read_text().endswith("\n"))
    began = time.monotonic()
    bench.unit.stop(bench.clock.mono + 2)
    assert time.monotonic() - began < 1.5
    child = int(pid.read_text())
    eventually(lambda: not Path(f"/proc/{child}").exists() or Path(f"/proc/{child}/stat").read_text().split()[2] == "Z")
    assert bench.unit.read() == 0
