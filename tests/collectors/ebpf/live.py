"""A child with probes in the kernel, started by hand: what it says, collected until it said what a test waits for."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from oomcast.contract import Event
from oomcast_collectors.ebpf import metrics
from oomcast_collectors.ebpf.settings import EbpfSettings
from oomcast_collectors.ebpf.wire import Absent, Checked, Log, Order, Report, decode

COMMAND = (sys.executable, "-m", "oomcast_collectors.ebpf.child")
PATIENCE = 60.0


class Live:
    """rows: of the last report, by metric name and labels. A context manager that ends the child.

        with Target(build("faults"), path) as target, Live(["major_faults"], {"processes": ["faults"]}) as live:
            live.targets(1)
            target.step()
            live.until(lambda: live.value("oomcast_major_faults_total", "faults", "other") == 74)

    settings: further ones of EbpfSettings. Everything that waits fails after PATIENCE with what the child logged.
    """

    def __init__(
        self,
        probes: list[str],
        targets: Mapping[str, Any],
        settings: Mapping[str, Any] | None = None,
        command: tuple[str, ...] = COMMAND,
        proc: str = "/proc",
    ) -> None:
        told = EbpfSettings.model_validate({"probes": probes, "targets": targets, **(settings or {})})
        self.rows: dict[tuple[str, tuple[str, ...]], float] = {}
        self.events: list[Event] = []
        self.logs: list[str] = []
        self.checked: list[Checked] = []
        self.absent: list[str] = []
        self.reports = 0
        self._rest = b""
        self._process = subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        self._process.stdin.write(Order(told.model_dump(mode="json"), proc=proc).encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def value(self, metric: str, *labels: str) -> float | None:
        return self.rows.get((metric, labels))

    def until(self, condition: Callable[[], bool], patience: float = PATIENCE) -> None:
        """Takes messages until the condition holds after one of them."""
        end = time.monotonic() + patience
        while not condition():
            assert self._take(end), f"it did not happen in time\n{self.logs}\n{self.rows}"

    def settle(self) -> None:
        """Waits for two more reports: all that happened before is then in `rows`."""
        wanted = self.reports + 2
        self.until(lambda: self.reports >= wanted)

    def hear(self) -> None:
        """Takes what has been said, and does not wait. A child that nobody listens to for long stands still."""
        while self._take(time.monotonic()):
            pass

    def targets(self, count: int) -> None:
        """Waits until so many processes are followed."""
        self.until(lambda: sum(v for (name, _), v in self.rows.items() if name == metrics.TARGETS.name) == count)

    def _take(self, end: float) -> bool:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        if not select.select([pipe], [], [], max(end - time.monotonic(), 0.0))[0]:
            return False
        data = os.read(pipe, 1 << 16)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._note(line)
        return bool(data)

    def _note(self, line: bytes) -> None:
        match decode(line):
            case Report(rows):
                self.reports += 1
                self.rows = {(row.metric, row.labels): row.value for row in rows}
            case Event() as event:
                self.events.append(event)
            case Log(_, text):
                self.logs.append(text)
            case Checked() as checked:
                self.checked.append(checked)
            case Absent(reason):
                self.absent.append(reason)
