"""What Prometheus would have of a daemon: all its pages, twice a second, while a test does something else."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from e2e.stack import fetch

PERIOD = 0.5


class Page(NamedTuple):
    """at: monotonic seconds. took: seconds until it was there. starved: seconds for which the daemon's threads, and the
    one that asked, were ready meanwhile and had no CPU, together. values: by series, as it is written."""

    at: float
    took: float
    starved: float
    values: Mapping[str, float]


class Scrapes:
    """pages: so far, oldest first. failed: the reasons of those that were not got."""

    def __init__(self, url: str, pid: int) -> None:
        self.pages: list[Page] = []
        self.failed: list[str] = []
        self._url = url
        self._threads = Path(f"/proc/{pid}/task")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scrapes", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(30)

    def since(self, at: float, series: str) -> list[float]:
        """The values of a series on the pages from `at` on that have it."""
        return [page.values[series] for page in self.pages if page.at >= at and series in page.values]

    def fallen(self) -> list[str]:
        """Each counter that was lower on a page than on one before: series, before, after."""
        found = []
        last: dict[str, float] = {}
        for page in self.pages:
            for series, value in page.values.items():
                if not series.partition("{")[0].endswith(("_total", "_bucket", "_count")):
                    continue
                if value < last.get(series, 0.0):
                    found.append(f"{series}: {last[series]}, then {value}")
                last[series] = value
        return found

    def _run(self) -> None:
        while not self._ended.wait(PERIOD):
            before, began = self._starved(), time.monotonic()
            try:
                text = fetch(f"{self._url}/metrics")
            except OSError as error:
                self.failed.append(repr(error))
            else:
                took = time.monotonic() - began
                self.pages.append(Page(began, took, self._starved() - before, _values(text)))

    def _starved(self) -> float:
        return sum(map(_waited, [Path("/proc/thread-self"), *self._threads.iterdir()]))


@contextmanager
def scrapes(url: str, pid: int) -> Iterator[Scrapes]:
    """Scrapes of the daemon at `url`, which is the process `pid`, until the end of the block."""
    running = Scrapes(url, pid)
    running.start()
    try:
        yield running
    finally:
        running.stop()


def _waited(thread: Path) -> float:
    """Seconds that a thread has waited for a CPU; 0 where it has ended, or the kernel does not tell."""
    try:
        return int((thread / "schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


def _values(text: str) -> dict[str, float]:
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {series: float(value) for series, _, value in lines}
