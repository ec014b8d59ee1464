"""Machines for the host collector's tests: a copy of a fixture tree that a test may change, and the real one."""

import logging
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from fakes import FakeClock
from oomcast.clock import Clock, SystemClock
from oomcast.contract import Context, Facts, Roots
from oomcast_collectors.host import HostCollector, HostSettings

FIXTURES = Path(__file__).parents[2] / "fixtures/host"


@dataclass
class Host:
    """A collector over `proc`. set(..) rewrites one file in place, as the kernel's files change."""

    proc: Path
    settings: HostSettings = field(default_factory=lambda: HostSettings.model_validate({}))
    serving: tuple[str, ...] = ()
    clock: Clock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        log = logging.getLogger("host")
        context = Context(Roots(proc=self.proc), self.clock, log, lambda facts: None, self.serving)
        self.collector = HostCollector(self.settings, context)

    def collect(self) -> Facts:
        return self.collector.collect()

    def collect_all(self) -> Facts:
        """A run that has its look at the processes, which on a busy machine may come late."""
        facts = self.collector.collect()
        while self.collector._scan is not None:
            facts = self.collector.collect()
        return facts

    def set(self, file: str, text: str | bytes) -> None:
        (self.proc / file).write_bytes(text if isinstance(text, bytes) else text.encode())

    def replace(self, file: str, old: str, new: str) -> None:
        text = (self.proc / file).read_text()
        assert old in text
        self.set(file, text.replace(old, new))


def host(kernel: str, to: Path, serving: tuple[str, ...] = (), **settings: object) -> Host:
    """A host that runs on a copy of the fixture's files."""
    shutil.copytree(FIXTURES / kernel, to / kernel)
    return Host(to / kernel / "proc", HostSettings.model_validate(settings), serving)


def real_host(*serving: str) -> Host:
    """The machine that the test runs on."""
    return Host(Path("/proc"), serving=serving, clock=SystemClock())


def values(facts: Facts) -> dict[str, object]:
    """The samples by the exposition text before the value, without the common prefix."""
    found: dict[str, object] = {s.series.head.strip().removeprefix("oomcast_"): s.value for s in facts.samples}
    assert len(found) == len(facts.samples), "a series came twice"
    return found
