"""The demo as a user runs it: the crash is played, and it was foreseen; where it was not, the demo fails."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from e2e.program import group_members, until
from requires import needs

pytestmark = needs("cc")

ROOT = Path(__file__).parents[2]
SECONDS = 180.0

ROW = re.compile(r"^ +(\d+) s +([\d.]+) GB +([\d.]+) GB +(\S+(?: forecast)?)(?: s)? +([\d.]+) % +[\d.]+ % +(\d+)$")


class Row(NamedTuple):
    """A line of the second stage, or of the crash."""

    at: int
    used: float
    headroom: float
    exhausted_in: float | None
    hits: float
    waiting: int


class Run(NamedTuple):
    text: str
    code: int

    def said(self, pattern: str) -> str:
        found = re.search(pattern, self.text)
        assert found is not None, self.text
        return found[1]

    def rows(self) -> list[Row]:
        found = [match.groups() for line in self.text.splitlines() if (match := ROW.match(line))]
        return [
            Row(int(at), float(used), float(left), None if said == "no forecast" else float(said), float(hits), int(n))
            for at, used, left, said, hits, n in found
        ]


@contextmanager
def demo(directory: Path, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """The demo as a program of its own, in a session of its own; killed afterwards if it still runs."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'demo'}:{ROOT / 'tests'}", "TMPDIR": str(directory)}
    command = [sys.executable, "-m", "incident", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Run]]:
    """The demo, and at the same time one whose daemon is told to forecast nothing."""
    blind = ("--no-prometheus", "--load-grace", "3600", "--speed", "12")
    with demo(tmp_path_factory.mktemp("plain")) as plain, demo(tmp_path_factory.mktemp("blind"), *blind) as other:
        yield {
            name: Run(process.communicate(timeout=SECONDS)[0], process.returncode)
            for name, process in {"plain": plain, "blind": other}.items()
        }


def test_the_crash_is_reached_and_was_foreseen(runs: Mapping[str, Run]) -> None:
    run = runs["plain"]
    assert run.code == 0, run.text
    assert "FAILED" not in run.text
    lead, said = float(run.said(r"FORESEEN  (\d+) s before")), float(run.said(r"memory lasts (\d+) s;"))
    assert lead >= 10
    assert said <= 60


def test_its_numbers_are_those_of_the_incident(runs: Mapping[str, Run]) -> None:
    run = runs["plain"]
    assert float(run.said(r"GPU memory +([\d.]+) GB of 80 GB")) == pytest.approx(18.2, abs=0.3)
    assert float(run.said(r"cache hits +([\d.]+) %")) == pytest.approx(92.4, abs=1.5)
    assert run.said(r"exhausted in +(\S+)") == "never"
    crash = run.rows()[-1]
    assert crash.used == pytest.approx(79.6, abs=0.2)
    assert crash.hits == pytest.approx(3.1, abs=1.5)
    assert run.said(r"up (\d), \w+ +oomcast_engine_up") == "0"
    assert int(run.said(r"empty answers +(\d+)")) == 12


def test_memory_rises_and_hits_fall_until_then(runs: Mapping[str, Run]) -> None:
    rows = runs["plain"].rows()
    assert len(rows) > 10
    used = [row.used for row in rows]
    assert used == sorted(used)
    hits = [row.hits for row in rows]
    assert hits[0] > 50
    assert max(hits[len(hits) // 2 :]) < 10
    assert max(row.waiting for row in rows) >= 4


def test_what_was_promised_is_told_by_length(runs: Mapping[str, Run]) -> None:
    text = runs["plain"].text
    seen = {up_to: int(n) for up_to, n in re.findall(r"prompts up to +(\d+) tokens: .* (\d+) seen", text)}
    assert seen["131072"] == 3
    assert seen["200000"] == 6


@needs("prometheus")
def test_the_alert_that_is_shipped_fires(runs: Mapping[str, Run]) -> None:
    assert "OomcastGpuExhaustion (critical): GPU memory" in runs["plain"].text


def test_without_a_forecast_it_fails_and_says_why(runs: Mapping[str, Run]) -> None:
    run = runs["blind"]
    assert run.code == 1, run.text
    assert re.findall("FAILED: .*", run.text) == ["FAILED: the crash was not forecast 10 s before it"]
    assert {row.exhausted_in for row in run.rows()} == {None}
    assert run.rows()[-1].used == pytest.approx(79.6, abs=0.2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_can_be_interrupted_and_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        text = begun(process)
        process.send_signal(number)
        rest, _ = process.communicate(timeout=30)
    assert (process.returncode, rest) == (130, "\ninterrupted\n")
    assert list(tmp_path.iterdir()) == []
    assert listening(text) == []


def test_its_programs_end_with_it_however_it_ends(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        text = begun(process)
        process.kill()
        process.communicate(timeout=30)
    until(lambda: listening(text) == [])
    assert group_members(process.pid) == []


def begun(process: "subprocess.Popen[str]") -> str:
    """What it has said once the first stage is on."""
    assert process.stdout is not None
    text = ""
    while "1  NORMAL" not in text:
        line = process.stdout.readline()
        assert line, text
        text += line
    return text


def listening(text: str) -> list[int]:
    """Which of the ports that it named somebody listens on."""
    ports = {int(port) for port in re.findall(r"http://127\.0\.0\.1:(\d+)", text)}
    assert len(ports) >= 2
    tcp = Path("/proc/net/tcp").read_text().splitlines()[1:]
    states = [line.split()[1:4] for line in tcp]
    return sorted(
        port for local, _, state in states if state == "0A" and (port := int(local.split(":")[1], 16)) in ports
    )
