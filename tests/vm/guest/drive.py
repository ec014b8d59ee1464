"""Runs in the guest: starts the daemon, plays all scenarios under it, and writes down what it and the kernel said.

drive.py SHARED: a directory with programs/ and data. Written there: results.json, read by vm.results, and oomcast.log.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from vm.guest.said import note, open_log, records
from vm.guest.scenarios import ALONE, LAST, TOGETHER, Lab, Scenario
from vm.guest.scrape import PORT, UNNAMED_SECONDS, Daemon, Forecasts

SETTINGS = Path(__file__).with_name("oomcast.yaml")
START_SECONDS = 90.0


def main() -> None:
    shared = Path(sys.argv[1])
    log = open_log()
    lab = Lab(shared / "programs", shared / "data")
    with _daemon(shared) as daemon:
        results = _play(lab, daemon)
    results["kmsg"] = list(records(log))
    (shared / "results.json").write_text(json.dumps(results))


def _play(lab: Lab, daemon: Daemon) -> dict[str, object]:
    note("the daemon is ready")
    forecasts = Forecasts(daemon)
    for probe in ("oom_kills", "crashes"):
        daemon.says(f'oomcast_ebpf_probe_attached{{probe="{probe}"}} 1.0', START_SECONDS)
    note("the probes are attached")
    scrapes = {"before": daemon.runs(3, 30)}
    forecasts.during(lambda: _at_once(lab, ALONE))
    note("the climb is over")
    _at_once(lab, TOGETHER)
    note("the rest is over")
    # The kernel's numbers and the daemon's are of the same calm moment.
    truth = {"after": _calm(lab)}
    scrapes["after"] = daemon.runs(2, 30)
    note("memory runs out")
    _at_once(lab, LAST)
    note("it did")
    time.sleep(UNNAMED_SECONDS)
    scrapes["end"] = daemon.runs(2, 30)
    truth["end"] = {path: cell.files() for path, cell in lab.cells.items()}
    ends = {path: cell.ends() for path, cell in lab.cells.items()}
    return {"scrapes": scrapes, "truth": truth, "ends": ends, "forecasts": forecasts.seen}


def _at_once(lab: Lab, scenarios: Sequence[Scenario]) -> None:
    """Plays them in a thread each, and waits. Raises RuntimeError with the names of those that failed."""
    failed: list[str] = []

    def play(scenario: Scenario) -> None:
        try:
            scenario(lab)
        except Exception as error:  # noqa: BLE001 - nobody waits for this thread's exception: it is raised below
            failed.append(f"{scenario.__name__}: {error!r}")

    threads = [threading.Thread(target=play, args=(one,), name=one.__name__, daemon=True) for one in scenarios]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    failed += [f"{thread.name}: is not done" for thread in threads if thread.is_alive()]
    if failed:
        raise RuntimeError("; ".join(failed))


def _calm(lab: Lab, seconds: float = 30) -> Mapping[str, Mapping[str, str]]:
    """What the kernel says once that has not changed for a while: it adds numbers up every other second only."""
    end = time.monotonic() + seconds
    before: list[str] = []
    while True:
        files = {path: cell.files() for path, cell in lab.cells.items()}
        now = [line for texts in files.values() for text in texts.values() for line in text.splitlines()]
        # The averages of PSI fade for minutes.
        now = [line.rpartition(" total=")[2] if " total=" in line else line for line in now]
        if now == before:
            return files
        if time.monotonic() > end:
            raise TimeoutError(f"still changing: {sorted(set(now) - set(before))[:10]}")
        before = now
        time.sleep(2.5)


@contextmanager
def _daemon(shared: Path) -> Iterator[Daemon]:
    """The real one, ready. Raises TimeoutError or, if it ended by itself or badly, RuntimeError."""
    command = [sys.executable, "-m", "oomcast", "run", "--config", str(SETTINGS)]
    environment = {**os.environ, "OOMCAST_HTTP__LISTEN": f"127.0.0.1:{PORT}"}
    with (shared / "oomcast.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        daemon = Daemon(PORT)
        daemon.started(process, START_SECONDS)
        yield daemon
        process.terminate()
        if process.wait(15) != 0:
            raise RuntimeError(f"the daemon ended with exit code {process.returncode}")
    finally:
        process.kill()


if __name__ == "__main__":
    main()
