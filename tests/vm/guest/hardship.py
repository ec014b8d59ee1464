"""Runs in the guest: the daemon as its unit has it started, while the machine thrashes and runs out of memory.

hardship.py SHARED: a directory with programs/, data and settings.yaml. Written there: hardship.json, read by
vm.hardship, and oomcast.log.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vm.guest import unit
from vm.guest.cell import ROOT, Cell
from vm.guest.said import note, open_log, records
from vm.guest.scrape import PORT, UNNAMED_SECONDS, Daemon
from vm.guest.service import Service, copy_programs
from vm.guest.watch import Watch

SETTINGS = Path(__file__).with_name("hardship.yaml")
START_SECONDS = 120.0
IDLE_SECONDS = 8.0
THRASH_SECONDS = 20.0
THRASH_FAULTS = 3000
"""Both, so that it is a long one, and one that is worth the name also where an emulated machine gets little time."""

LONGEST_THRASH = 90.0
OWN_MIB = 300
SLICE = "/system.slice"
THRASHING = ("code", "own", "other")
HOGS = {"small": 450, "middle": 500, "large": 550}
"""MiB that each would take. There is room for one, so two are killed."""

STEP_MIB, STEP_MS = 6, 500
KILLS = 2
KILLED_SECONDS = 120.0


class Hardship:
    """What is played, and what is written down of it."""

    def __init__(self, shared: Path, service: Service, daemon: Daemon) -> None:
        self._shared = shared
        self._service = service
        self._daemon = daemon
        self.phases: dict[str, tuple[float, float]] = {}
        self.kernel: dict[str, Mapping[str, Mapping[str, str]]] = {}
        self.pages: dict[str, str] = {}
        (ROOT / SLICE[1:]).mkdir(exist_ok=True)
        (ROOT / SLICE[1:] / "cgroup.subtree_control").write_text("+memory +cpu")
        self.cells = {name: Cell(f"{SLICE}/{name}.service", {"memory.swap.max": "max"}) for name in (*THRASHING, *HOGS)}

    def play(self) -> None:
        self._phase("idle", lambda: time.sleep(IDLE_SECONDS))
        self._compare("idle")
        self._phase("thrash", self._thrash)
        self._compare("thrash")
        self._phase("oom", self._run_out)
        self._compare("oom")
        self._service.expose()
        self._phase("exposed", self._thrash)
        self._compare("exposed")

    def _phase(self, name: str, action: Callable[[], None]) -> None:
        note(name)
        began = time.monotonic()
        action()
        self.phases[name] = began, time.monotonic()

    def _compare(self, name: str) -> None:
        """The page of a moment, and what the kernel said before and after it."""
        note("calm")
        before = self._numbers()
        self.pages[name] = self._daemon.runs(2, 60, ("cgroup", "host"))
        self.kernel[name] = {"before": before, "after": self._numbers()}

    def _numbers(self) -> Mapping[str, str]:
        files = {name: Path("/proc", name).read_text() for name in ("vmstat", "pressure/memory")}
        stats = {cell.path: cell.files()["memory.stat"] for cell in self.cells.values()}
        return {**files, **stats}

    def _thrash(self) -> None:
        """Code, and memory of their own: with what else there is they have twice as much as there is room for."""
        program, began, faults = self._shared / "programs" / "thrash", time.monotonic(), _faults()
        self.cells["code"].start(program, self._shared / "data", 2 * LONGEST_THRASH, "code")
        for name in ("own", "other"):
            self.cells[name].start(program, OWN_MIB, 2 * LONGEST_THRASH, "own")
        while time.monotonic() < began + THRASH_SECONDS or _faults() < faults + THRASH_FAULTS:
            if time.monotonic() > began + LONGEST_THRASH:
                raise TimeoutError(f"{_faults() - faults} major faults are no thrashing")
            time.sleep(0.5)
        for name in THRASHING:
            self.cells[name].kill()

    def _run_out(self) -> None:
        hogs = [
            self.cells[name].start(self._shared / "programs" / "hog", STEP_MIB, STEP_MS, size)
            for name, size in HOGS.items()
        ]
        end = time.monotonic() + KILLED_SECONDS
        while sum(hog.poll() is not None for hog in hogs) < KILLS:
            if time.monotonic() > end:
                raise TimeoutError("memory does not run out")
            time.sleep(0.2)
        note("out of memory")
        time.sleep(UNNAMED_SECONDS)
        for name in HOGS:
            self.cells[name].kill()


def _faults() -> int:
    (line,) = [line for line in Path("/proc/vmstat").read_text().splitlines() if line.startswith("pgmajfault ")]
    return int(line.split()[1])


def main() -> None:
    shared = Path(sys.argv[1])
    log = open_log()
    # As systemd mounts it.
    subprocess.run(["mount", "-o", "remount,nsdelegate,memory_recursiveprot", str(ROOT)], check=True, timeout=30)
    (ROOT / "cgroup.subtree_control").write_text("+memory +cpu")
    copies = shared / "copies"
    copy_programs(copies)
    service = Service(unit.read())
    (shared / "hardship.json").write_text(json.dumps({**_play(shared, service, copies), "kmsg": list(records(log))}))


def _play(shared: Path, service: Service, copies: Path) -> Mapping[str, Any]:
    """Raises RuntimeError if the daemon does not end well."""
    arguments = ["-m", "oomcast", "run", "--config", str(SETTINGS)]
    process = service.start(arguments, copies, shared / "oomcast.log")
    try:
        daemon = Daemon(PORT)
        daemon.started(process, START_SECONDS)
        hardship = Hardship(shared, service, daemon)
        watch = Watch(daemon, service)
        hardship.play()
        seen = watch.done()
        process.terminate()
        # Exposed, it has to read half of itself again.
        if process.wait(60) != 0:
            raise RuntimeError(f"the daemon ended with exit code {process.returncode}")
    finally:
        process.kill()
    ends = {name: cell.ends() for name, cell in hardship.cells.items()}
    return {**seen, "phases": hardship.phases, "kernel": hardship.kernel, "pages": hardship.pages, "ends": ends}


if __name__ == "__main__":
    main()
