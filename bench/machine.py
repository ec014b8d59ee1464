"""What is measured with: CPU and memory of processes, child processes, and the machine that all of it ran on."""

import contextlib
import http.client
import os
import platform
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
MB = 1e6
_PATIENCE = 60.0


def cpu(pid: int) -> float:
    """CPU seconds of the process so far, all threads, those that ended included."""
    # The clock that clock_getcpuclockid(3) gives: nanoseconds, where /proc/PID/stat has hundredths of a second.
    return time.clock_gettime((~pid << 3) | 2)


def memory(pid: int) -> tuple[float, float]:
    """Resident and proportional set size in bytes."""
    fields = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        key, _, rest = line.partition(":")
        fields[key] = int(rest.split()[0]) * 1024
    return float(fields["Rss"]), float(fields["Pss"])


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - names only; there may be thousands


class Child:
    """A process of ours that answers one line for each line it is told."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.pid = process.pid

    def ask(self, line: str = "") -> str:
        """Raises RuntimeError when the process has ended instead of answering."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self.answer()

    def answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended without an answer")
        return line.rstrip("\n")


@contextmanager
def child(argv: Sequence[str | Path], *, quiet: bool = False) -> Iterator[Child]:
    """quiet: what it says on standard error is dropped."""
    # A session of its own: Ctrl-C is for run.py, which ends its children in the right order.
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if quiet else None,
        text=True,
        bufsize=1,
        start_new_session=True,
    )
    try:
        yield Child(process)
    finally:
        end(process)


@contextmanager
def background(argv: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> Iterator[int]:
    """A process that says nothing; yields its id."""
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, **(environment or {})},
    )
    try:
        yield process.pid
    finally:
        end(process)


def end(process: "subprocess.Popen[str] | subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()


@contextmanager
def daemon(settings: Mapping[str, str] | None = None) -> Iterator[tuple[int, int]]:
    """The daemon as a user runs it, ready; yields its process id and port."""
    port = free_port()
    environment = {"OOMCAST_HTTP__LISTEN": f"127.0.0.1:{port}", "OOMCAST_LOG__LEVEL": "warning", **(settings or {})}
    with background([sys.executable, "-m", "oomcast", "run"], environment) as pid:
        wait_for(port, "/-/ready")
        yield pid, port


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def get(port: int, path: str = "/metrics", headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE)
    try:
        connection.request("GET", path, headers=dict(headers or {}))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def wait_for(port: int, path: str = "/metrics", pause: float = 0.05) -> bytes:
    """The first answer 200. Raises TimeoutError after a minute without."""
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        with contextlib.suppress(OSError, http.client.HTTPException):
            status, body = get(port, path)
            if status == 200:
                return body
        time.sleep(pause)
    raise TimeoutError(f"nothing answers on port {port}")


def series(body: bytes) -> int:
    """How many series an exposition has."""
    return sum(1 for line in body.split(b"\n") if line and not line.startswith(b"#"))


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def load() -> str:
    return " ".join(f"{value:.1f}" for value in os.getloadavg())


def describe() -> str:
    """The machine in one paragraph."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = models[0].partition(":")[2].strip() if models else platform.machine()
    return (
        f"{os.cpu_count()} x {model}, Linux {platform.release()}, "
        f"{platform.python_implementation()} {platform.python_version()}, load average {load()}"
    )


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints a Markdown table, so that docs/benchmarks.md can hold what was printed."""
    texts = [[str(cell) for cell in row] for row in (columns, *rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    lines = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in texts]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    print(f"\n### {title}\n\nLoad average {load()}.\n\n" + "\n".join(lines), flush=True)


def verdict(value: float, target: float) -> str:
    return "met" if value <= target else "missed"
