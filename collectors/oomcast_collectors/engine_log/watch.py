"""The thread that reads all logs: looks four times a second, and less often the more there is to read."""

import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from oomcast.clock import Clock
from oomcast_collectors.engine_log import journal, lines
from oomcast_collectors.engine_log.findings import Findings, Source
from oomcast_collectors.engine_log.follow import Followed
from oomcast_collectors.engine_log.settings import LogUnit
from oomcast_collectors.engine_log.sources import Sources, Wanted

_PAUSE = 0.25
_SHARE = 16  # times the CPU time of a look: a lasting storm gets a sixteenth of a core
_LOOK = 0.1  # seconds of CPU time that a look may take, so that its pause is bounded too
_RESCAN = 2.0


class Watch:
    """One thread from start() to stop(). failure: what ended it, None while it runs."""

    def __init__(
        self, sources: Sources, units: Sequence[LogUnit], findings: Findings, clock: Clock, log: logging.Logger
    ) -> None:
        self._sources = sources
        self._findings = findings
        self._clock = clock
        self._log = log
        self._files: dict[Path, Followed] = {}
        self._gone: list[Followed] = []
        self._units = [self._unit(unit) for unit in units]
        self._rescan: float | None = None
        self._turn = 0
        self._deadline: float | None = None
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.looked = clock.monotonic()
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="engine-log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, deadline: float) -> None:
        """Ends the thread and what it has started, if it can before the monotonic `deadline`."""
        self._deadline = deadline
        if self._thread.is_alive():
            os.eventfd_write(self._wake, 1)
            self._thread.join(max(0.0, deadline - self._clock.monotonic()))
        if not self._thread.is_alive():
            os.close(self._wake)

    def _run(self) -> None:
        try:
            while self._deadline is None:
                began = time.thread_time()
                self.look()
                self.looked = self._clock.monotonic()
                self._sleep(max(_PAUSE, _SHARE * (time.thread_time() - began)))
        except Exception as error:  # noqa: BLE001 - nobody waits for this thread: the collector's next run raises it
            self._log.exception("the logs of engines are no longer followed")
            self.failure = error
        finally:
            self._close()

    def look(self) -> None:
        """One look at everything; what there is no time for is read in the next ones."""
        now = self._clock.monotonic()
        if self._rescan is None or now - self._rescan >= _RESCAN:
            self._scan(first=self._rescan is None)
            self._rescan = now
        everything: list[Followed | journal.Unit] = [*self._files.values(), *self._units]
        for source in everything:
            source.look()
        self._read()
        self._gone = [file for file in self._gone if not file.is_done]

    def _scan(self, *, first: bool) -> None:
        wanted = self._sources.wanted()
        for path in self._files.keys() - wanted.keys():
            file = self._files.pop(path)
            file.leave()
            self._gone.append(file)
        for path, one in wanted.items():
            if path not in self._files:
                self._files[path] = self._file(one, at_end=first)

    def _file(self, wanted: Wanted, *, at_end: bool) -> Followed:
        engine, tally = self._findings.engine(wanted.engine)
        source = Source(engine, tally, wanted.fields)
        sink = partial(self._findings.scan, source=source, unwrap=lines.unwrap)
        return Followed(wanted.path, self._clock, self._log, tally, sink, at_end=at_end)

    def _unit(self, unit: LogUnit) -> journal.Unit:
        def sink(block: bytes, moment: float) -> None:
            engine, tally = self._findings.engine(unit.name)
            self._findings.scan(block, moment, Source(engine, tally, {"unit": unit.unit}), journal.unwrap)

        return journal.Unit(unit.unit, self._clock, self._log, lambda: self._findings.engine(unit.name)[1], sink)

    def _read(self) -> None:
        """A chunk of each in turn, so that one that never ends keeps nobody waiting."""
        ready: deque[Followed | journal.Unit] = deque([*self._gone, *self._files.values(), *self._units])
        ready.rotate(-self._turn % max(1, len(ready)))
        ends = time.thread_time() + _LOOK
        while ready and time.thread_time() < ends and self._deadline is None:
            self._turn += 1
            source = ready.popleft()
            if source.read():
                ready.append(source)

    def _sleep(self, seconds: float) -> None:
        poller = select.poll()
        poller.register(self._wake, select.POLLIN)
        poller.poll(seconds * 1000)

    def _close(self) -> None:
        deadline = self._deadline or self._clock.monotonic() + 1.0
        for unit in self._units:
            unit.stop(deadline)
        for file in (*self._gone, *self._files.values()):
            file.close()
