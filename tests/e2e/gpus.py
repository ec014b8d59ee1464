"""The real daemon with the gpu collector on a scripted driver."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from collectors.gpu.driver import FakeDriver, uuid
from e2e.program import Program, program, until
from e2e.stack import fetch

_OTHERS = "cgroup: {enabled: false}, host: {enabled: false}, kernel_log: {enabled: false}"
_SERIES = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class Gpus:
    """What the daemon says of its GPUs, by their number in the state file."""

    def __init__(self, daemon: Program, driver: FakeDriver) -> None:
        self.daemon = daemon
        self.driver = driver

    def scrape(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        text = fetch(f"{self.daemon.url}/metrics")
        return {
            (name, frozenset(_LABEL.findall(labels))): float(value) for name, labels, value in _SERIES.findall(text)
        }

    def value(self, name: str, number: int | None = None, **labels: str) -> float | None:
        """Of the only series of oomcast_<name> that has these labels, None where there is none."""
        found = self.all(name, number, **labels)
        assert len(found) < 2, found
        return next(iter(found.values()), None)

    def all(self, name: str, number: int | None = None, **labels: str) -> dict[frozenset[tuple[str, str]], float]:
        wanted = set(labels.items()) | ({("gpu", uuid(number))} if number is not None else set())
        return {
            have: value for (one, have), value in self.scrape().items() if one == f"oomcast_{name}" and wanted <= have
        }

    def info(self, number: int) -> dict[str, str]:
        """The labels of oomcast_gpu_info."""
        return dict(next(iter(self.all("gpu_info", number)), ()))

    def used(self, number: int) -> float | None:
        return self.value("gpu_memory_used_bytes", number)

    def state(self, number: int) -> str:
        states = self.all("gpu_state", number)
        return next(dict(labels)["oomcast_gpu_state"] for labels, value in states.items() if value)

    def set_and_await_used(self, number: int, used: int) -> None:
        """Shows that the GPU is fresh: what it has now is soon what the daemon says."""
        self.driver.gpus[number].set(used=used)
        self.driver.write()
        until(lambda: self.used(number) == used, 5)


@contextmanager
def gpus(
    driver: FakeDriver, directory: Path, settings: str = "", *, paths: str = "", others: str = _OTHERS
) -> Iterator[Gpus]:
    """settings: of the collector, as YAML in one line. Yields once the first readings are there."""
    with daemon(driver, directory, settings, paths=paths, others=others) as running:
        until(lambda: running.value("gpu_library_inits_total") == 1)
        yield running


@contextmanager
def daemon(
    driver: FakeDriver, directory: Path, settings: str = "", *, paths: str = "", others: str = _OTHERS
) -> Iterator[Gpus]:
    """The same, at once."""
    text = f"collectors: {{{others}, gpu: {{{settings}}}}}\n" + (f"paths: {{{paths}}}\n" if paths else "")
    with program(directory, text, driver.environment) as running:
        yield Gpus(running, driver)
