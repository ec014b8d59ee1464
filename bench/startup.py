"""From the start of the process to the first complete /metrics, and from SIGTERM to its end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from machine import cpu, end, free_port, median, table, wait_for

_POLL = 0.01
_BARE = "pass"
_LIBRARIES = "import pydantic, starlette.applications, uvicorn, apscheduler.schedulers.background, prometheus_client"


def run(repeats: int = 10) -> None:
    """Prints the table. Bare interpreters are measured in turn with the daemon, as the floor of its start."""
    taken: dict[str, list[Sequence[float]]] = {}
    measures: Mapping[str, Callable[[], Sequence[float]]] = {
        "python -c pass": lambda: _interpreter(_BARE),
        "python importing only the libraries": lambda: _interpreter(_LIBRARIES),
        "oomcast run": _daemon,
    }
    for _ in range(repeats):
        for name, once in measures.items():
            taken.setdefault(name, []).append(once())
    floor = median(values[1] for values in taken["python -c pass"])
    rows = []
    for name, values in taken.items():
        ready, used, *stops = zip(*values, strict=True)
        row = [name, f"{median(ready):.2f}", f"{median(used):.2f}", f"{median(used) / floor:.1f}"]
        rows.append(row + ([f"{median(stops[0]):.2f}", f"{max(stops[0]):.2f}"] if stops else ["", ""]))
    columns = ["process", "ready: wall s", "ready: CPU s", "x bare python", "stop: wall s", "slowest stop"]
    table(f"start and stop, medians of {repeats}; ready: /-/ready and /metrics have answered", columns, rows)


def _interpreter(code: str) -> Sequence[float]:
    began, before = time.monotonic(), os.times()
    subprocess.run([sys.executable, "-c", code], check=True)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return time.monotonic() - began, used


def _daemon() -> Sequence[float]:
    port = free_port()
    environment = {**os.environ, "OOMCAST_HTTP__LISTEN": f"127.0.0.1:{port}", "OOMCAST_LOG__LEVEL": "error"}
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "oomcast", "run"], stdout=subprocess.DEVNULL, env=environment, start_new_session=True
    )
    try:
        wait_for(port, "/-/ready", _POLL)
        wait_for(port, "/metrics", _POLL)
        ready, used = time.monotonic() - began, cpu(process.pid)
        time.sleep(1)
        told = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        return ready, used, time.monotonic() - told
    finally:
        end(process)
