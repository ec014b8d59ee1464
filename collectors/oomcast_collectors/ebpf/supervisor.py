"""The child, seen from the daemon: started, listened to, started again when it ends, and ended with the daemon."""

import contextlib
import logging
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

from oomcast.child import Child
from oomcast.clock import Clock
from oomcast.contract import Event
from oomcast.logs import OnChange
from oomcast_collectors.ebpf.totals import Totals
from oomcast_collectors.ebpf.wire import LONGEST, Absent, Failed, Log, Message, Order, Report, decode

COMMAND = (sys.executable, "-m", "oomcast_collectors.ebpf.child")
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_SILENCE = 120.0
"""Seconds without a word after which a child hangs; one that compiles its programs says nothing for a while."""
_LOG_LINES, _LOG_SECONDS = 100, 60.0
"""What a child may have logged within which time; the rest is counted."""
_PROVEN = 60.0
"""Seconds after which a child is taken for one that works: the next pause is the first again."""


class Supervisor:
    """A thread of its own starts the child and reads what it says; the kernel ends the child with that thread."""

    def __init__(
        self,
        order: Order,
        clock: Clock,
        log: logging.Logger,
        tell: Callable[[Event], None],
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._order = order
        self._clock = clock
        self._log = log
        self._tell = tell
        self._command = command
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._reported = threading.Event()
        self._child: Child | None = None
        self._log_lines = 0
        self._log_window = clock.monotonic()
        self._thread = threading.Thread(target=self._run, name="ebpf-child", daemon=True)
        self.totals = Totals()
        self.starts = 0
        self.heard = clock.monotonic()
        self.absent = ""
        self.ended = ""
        self._failure = ""
        self._ready = False
        self._changes = OnChange(log, clock=clock)

    @property
    def pid(self) -> int | None:
        child = self._child
        return child.pid if child else None

    def start(self) -> None:
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Whether there has been a report by then, or nothing is to be expected."""
        return self._reported.wait(seconds)

    def locked(self) -> threading.Lock:
        """Held while the totals change."""
        return self._lock

    def stop(self, deadline: float) -> None:
        self._stopped.set()
        with self._lock:
            child = self._child
        if child is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):  # it hangs in the kernel, and dies when it comes out
                child.stop(deadline)
        self._thread.join(max(deadline - self._clock.monotonic(), 0.0))

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopped.is_set():
            began = self._clock.monotonic()
            self._live()
            if self._stopped.is_set() or self.absent:
                self._reported.set()
                return
            if self._clock.monotonic() >= began + _PROVEN:
                pause = _FIRST_PAUSE
            text = f"the eBPF child ended: {self.ended}; it is started again, at last every {_LONGEST_PAUSE:g} s"
            self._changes.report("ended", self.ended, logging.WARNING, text)
            self._stopped.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _live(self) -> None:
        """One child, from its start to its end."""
        try:
            child = Child(self._command, self._clock, self._order.encode())
        except OSError as error:
            self.ended = f"it cannot be started: {error}"
            return
        with self._lock:
            self._child = child
            self.starts += 1
            self.totals.begin()
            self._ready = False
        if self._stopped.is_set():
            child.stop(self._clock.monotonic())
        try:
            self.ended = self._listen(child)
        finally:
            with self._lock:
                self._child = None
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.stop(self._clock.monotonic() + 1.0)

    def _listen(self, child: Child) -> str:
        """Takes what it says until it ends, or says what is no message; returns why it ended."""
        rest = b""
        poll = select.poll()
        poll.register(child.stdout, select.POLLIN)
        while True:
            try:
                if not poll.poll(_SILENCE * 1000):
                    return f"it said nothing for {_SILENCE:g} s"
                data = child.stdout.read(1 << 16)
            except (OSError, ValueError):  # closed by stop()
                return "it was stopped"
            if not data:
                return self._failure or "it closed its output"
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > LONGEST:
                return "it said a line without end"
            for line in lines:
                try:
                    self._take(decode(line))
                except ValueError as error:
                    return f"it said something else than a message: {error}"

    def _take(self, message: Message) -> None:
        match message:
            case Report(rows):
                with self._lock:
                    self.totals.take(rows, self._clock.time())
                    self.heard = self._clock.monotonic()
                if not self._ready:
                    self._ready = True
                    self._log.info("the eBPF child is ready", extra={"pid": self.pid})
                self.ended = self._failure = ""
                self._changes.forget("ended")
                self._reported.set()
            case Event():
                self._tell(message)
            case Log(level, text):
                self._note(level, text)
            case Absent(reason):
                self.absent = reason
            case Failed(reason):
                self._failure = reason
            case _:
                raise ValueError(f"not to be said unasked: {message!r:.100}")

    def _note(self, level: int, text: str) -> None:
        now = self._clock.monotonic()
        if now >= self._log_window + _LOG_SECONDS:
            if self._log_lines > _LOG_LINES:
                self._log.warning("%d more lines of the eBPF child were left out", self._log_lines - _LOG_LINES)
            self._log_lines, self._log_window = 0, now
        self._log_lines += 1
        if self._log_lines <= _LOG_LINES:
            self._log.log(level, "%s", text)
