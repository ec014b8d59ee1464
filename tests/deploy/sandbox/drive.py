"""Runs in the guest, beside its systemd: starts the daemon in all modes, has things happen, writes down what each saw.

drive.py SHARED: where results.json goes.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from deploy.sandbox import modes
from deploy.sandbox.modes import CHECK, LOG, MODES, NVML, REFERENCE, TRIES, Mode
from oomcast.client import Client
from vm.guest.scrape import Daemon

PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
CGROUPS = Path("/sys/fs/cgroup")
START_SECONDS = 400.0
SETTLED_SECONDS = 17.0
"""Kills without a name are booked by then, discovery of engines has looked again, and slow collectors have run."""

SHOWN = (
    *("ActiveState", "Result", "NRestarts", "MainPID", "ExecMainStatus", "StatusText", "ControlGroup", "TasksCurrent"),
    *("OOMScoreAdjust", "MemoryMin", "MemoryMax", "ManagedOOMPreference"),
    *("WatchdogUSec", "WatchdogTimestampMonotonic", "ActiveEnterTimestampMonotonic"),
)


def main() -> None:
    shared = Path(sys.argv[1])
    note("the driver runs")
    _devices()
    _home()
    ctl("start", modes.ENGINE, modes.PROTECTED, modes.UNPROTECTED)
    _engine()
    # As many at a time as there are processors. Those that compile programs come first, as they take longest.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_start, sorted(MODES, key=lambda mode: not mode.attached)))
    note("all are ready")
    _happen()
    happened = time.monotonic()
    # As Debian's kernels have it by default; the programs are attached by now.
    PARANOID.write_text("3")
    ctl("start", *(f"{name}.service" for name in (*TRIES, CHECK)), check=False)
    results: dict[str, object] = {"once": {name: (shared / name).read_text() for name in (*TRIES, CHECK)}}
    note("the check is done")
    time.sleep(max(happened + SETTLED_SECONDS - time.monotonic(), 0))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        names, seen = [mode.name for mode in MODES], pool.map(_seen, MODES)
        results.update(zip(names, seen, strict=True))
    note("all is gathered")
    results["reload"] = _reload()
    ctl("stop", *(mode.unit for mode in MODES[1:] if mode is not REFERENCE))
    results["reclaim"] = _reclaim()
    note("memory was reclaimed")
    ctl("stop", MODES[0].unit, REFERENCE.unit)
    results["stopped"] = {mode.name: show(mode.unit) for mode in MODES}
    (shared / "results.json").write_text(json.dumps(results))


def note(what: str) -> None:
    """Where the time goes, for whoever reads the output."""
    sys.stdout.write(f"{time.clock_gettime(time.CLOCK_BOOTTIME):6.1f} s  {what}\n")
    sys.stdout.flush()


def ctl(*arguments: str, check: bool = True) -> str:
    done = subprocess.run(["systemctl", *arguments], capture_output=True, text=True, check=False, timeout=300)
    if check and done.returncode:
        said = subprocess.run(["journalctl", "--no-pager", "-n", "100"], capture_output=True, text=True, check=False)
        raise RuntimeError(f"systemctl {' '.join(arguments)}: {done.stderr}\n{said.stdout}")
    return done.stdout


def show(unit: str) -> dict[str, str]:
    lines = ctl("show", f"--property={','.join(SHOWN)}", unit).splitlines()
    return dict(line.split("=", 1) for line in lines)


def _devices() -> None:
    """Those of a GPU's driver, which nobody serves."""
    for name, minor in (("nvidia0", 0), ("nvidiactl", 255)):
        os.mknod(f"/dev/{name}", 0o20666, os.makedev(195, minor))
        os.chmod(f"/dev/{name}", 0o666)  # noqa: PTH101 - what the driver does


def _home() -> None:
    """The engine's, into which no other user may look."""
    LOG.parent.mkdir(parents=True)
    for path in (LOG.parent.parent, LOG.parent):
        shutil.chown(path, "engine", "engine")
        path.chmod(0o700)


def _engine() -> None:
    """Waits until it serves, and gives it a GPU."""
    end = time.monotonic() + 60
    while not LOG.exists():
        if time.monotonic() > end:
            raise TimeoutError(f"no engine: {_log(modes.ENGINE)}")
        time.sleep(0.5)
    pid = show(modes.ENGINE)["MainPID"]
    (NVML / "nvml.state").write_text(f"[gpu 0]\nproc={pid},{8 << 30}\nused={8 << 30}\ntotal={80 << 30}\n")


def _start(mode: Mode) -> None:
    """Until it is ready and has its eBPF programs. Raises TimeoutError with what it said."""
    ctl("start", mode.unit)
    daemon, end = Daemon(mode.port), time.monotonic() + START_SECONDS
    while not (daemon.ready() and _attached(mode, daemon)):
        if time.monotonic() > end:
            raise TimeoutError(f"{mode.name} is not ready: {_log(mode.unit)[-3000:]}")
        time.sleep(3)  # a page is work in here
    note(f"{mode.name} is ready")


def _attached(mode: Mode, daemon: Daemon) -> bool:
    text = daemon.metrics() if mode.attached else ""
    return all(f'\noomcast_ebpf_probe_attached{{probe="{probe}"}} 1.0\n' in text for probe in mode.attached)


def _happen() -> None:
    ctl("start", modes.VICTIM, modes.CRASH)
    ctl("kill", "--signal=USR1", modes.ENGINE)
    for mode in MODES:
        client = Client(mode.socket, "engine")
        client.send(status=200, prompt_tokens=1000)
        client.close()


def _seen(mode: Mode) -> Mapping[str, object]:
    shown = show(mode.unit)
    cgroup = CGROUPS / shown["ControlGroup"][1:]
    processes = {pid: _process(pid) for pid in (cgroup / "cgroup.procs").read_text().split()}
    return {
        "metrics": _page(Daemon(mode.port)),
        "show": shown,
        "cgroup": {name: (cgroup / name).read_text() for name in ("memory.min", "memory.max", "memory.peak")},
        "processes": processes,
        "log": _log(mode.unit),
    }


def _page(daemon: Daemon) -> str:
    """With what is said of processes: while a scan takes too long there is nothing of it for a moment."""
    end = time.monotonic() + 60
    while "\noomcast_processes{" not in (text := daemon.metrics()) and time.monotonic() < end:
        time.sleep(3)
    return text


def _process(pid: str) -> Mapping[str, str]:
    proc = Path("/proc", pid)
    command = (proc / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    lines = (line.split(":", 1) for line in (proc / "status").read_text().splitlines())
    status = {key: value.strip() for key, value in lines}
    return {**status, "command": command, "oom_score_adj": (proc / "oom_score_adj").read_text().strip()}


def _log(unit: str) -> str:
    argv = ["journalctl", "--no-pager", "--output=cat", f"--unit={unit}"]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout


def _reload() -> Mapping[str, str]:
    """What the shipped unit is after it: still there, the same process."""
    ctl("reload", MODES[0].unit)
    time.sleep(2)
    return {**show(MODES[0].unit), "log": _log(MODES[0].unit)}


def _reclaim() -> Mapping[str, Mapping[str, int]]:
    """What cgroups hold before and after the kernel was told to take memory from whom it may."""
    names = {
        "protected": show(modes.PROTECTED)["ControlGroup"],
        "unprotected": show(modes.UNPROTECTED)["ControlGroup"],
        "shipped": show(MODES[0].unit)["ControlGroup"],
        "reference": show(REFERENCE.unit)["ControlGroup"],
    }
    held = {name: {"before": _current(path)} for name, path in names.items()}
    for _ in range(10):
        if all(_current(names[one]) < held[one]["before"] / 2 for one in ("unprotected", "reference")):
            break
        with contextlib.suppress(BlockingIOError):  # it found less than that
            (CGROUPS / "memory.reclaim").write_text("64M")
    for name, path in names.items():
        held[name]["after"] = _current(path)
    return held


def _current(path: str) -> int:
    return int((CGROUPS / path[1:] / "memory.current").read_text())


if __name__ == "__main__":
    main()
