"""The journal of one systemd unit, by a journalctl that is started anew, after a pause, whenever it ends."""

import json
import logging
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from oomcast.child import Child
from oomcast.clock import Clock
from oomcast_collectors.engine_log.lines import Line, Lines, Tally

_JOURNALS = (Path("/run/log/journal"), Path("/var/log/journal"))
_READ = 28_000
_LONGEST = 256 * 1024  # bytes of a record: a long message of which every character is escaped
_LONGEST_TEXT = 16_384
_FIRST_PAUSE, _LAST_PAUSE = 1.0, 60.0
_STOP = 1.0
_CURSOR = re.compile(rb'"__CURSOR":"([^"\\]{1,400})"')
_ARRAY = b'"MESSAGE":['


class Unit:
    """For one thread. sink: as of a file's; its lines are journalctl's JSON, see `unwrap`.

    tally: called once there is a journal to read. program: the journalctl to run, by default that of the PATH.
    """

    def __init__(
        self,
        unit: str,
        clock: Clock,
        log: logging.Logger,
        tally: Callable[[], Tally],
        sink: Callable[[bytes, float], None],
        program: str = "journalctl",
    ) -> None:
        self._unit = unit
        self._clock = clock
        self._log = log
        self._make_tally = tally
        self._sink = sink
        self._program = program
        self._child: Child | None = None
        self._lines = Lines(Tally())
        self._tally = Tally()
        self._cursor = ""
        self._next = 0.0
        self._pause = _FIRST_PAUSE
        self._trouble = ""

    def look(self) -> None:
        """Starts journalctl where it is due."""
        if self._child is not None or self._clock.monotonic() < self._next:
            return
        if absent := self._absence():
            self._next = self._clock.monotonic() + _LAST_PAUSE
            self._say(f"not followed: {absent}")
            return
        self._tally = self._make_tally()
        self._lines = Lines(self._tally, _LONGEST)
        # Without --all a long message is null. Without --no-tail only the last ten after the cursor would be shown.
        begin = ("--no-tail", f"--after-cursor={self._cursor}") if self._cursor else ("--lines=0",)
        options = ("--follow", "--output=json", "--output-fields=MESSAGE", "--all", "--quiet")
        try:
            self._child = Child([self._program, *options, f"--unit={self._unit}", *begin], self._clock)
        except OSError as error:
            self._ended(f"{self._program}: {error.strerror}")
            return
        os.set_blocking(self._child.stdout.fileno(), False)

    def read(self) -> int:
        """Hands on what journalctl has written, a pipe's read at most; 0 if there is nothing."""
        if self._child is None:
            return 0
        raw = self._child.stdout.read(_READ)
        if raw is None:
            return 0
        if not raw:
            self._end_child(self._clock.monotonic() + _STOP)
            self._ended("journalctl has ended")
            return 0
        self._say("")
        self._pause = _FIRST_PAUSE
        block = self._lines.feed(raw)
        if cursors := _CURSOR.findall(block):
            self._cursor = cursors[-1].decode("ascii", "replace")
        if block:
            self._sink(_texts(block), self._clock.time())
        return len(raw)

    def stop(self, deadline: float) -> None:
        """Ends journalctl before the monotonic `deadline`."""
        if self._child is not None:
            self._end_child(deadline)

    def _absence(self) -> str:
        if shutil.which(self._program) is None:
            return "there is no journalctl"
        if not any(path for directory in _JOURNALS for path in directory.glob("*/*.journal")):
            return "there is no journal"
        return ""

    def _end_child(self, deadline: float) -> None:
        child, self._child = self._child, None
        try:
            assert child is not None
            child.stop(deadline)
        except subprocess.TimeoutExpired:
            self._log.warning("unit %s: journalctl does not end", self._unit)

    def _ended(self, why: str) -> None:
        self._tally.errors += 1
        self._next = self._clock.monotonic() + self._pause
        if self._pause > _FIRST_PAUSE:
            # Twice in a row without a record: the cursor may be what it cannot find.
            self._cursor = ""
        self._pause = min(2 * self._pause, _LAST_PAUSE)
        self._say(why)

    def _say(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            level = logging.WARNING if trouble else logging.INFO
            self._log.log(level, "unit %s: %s", self._unit, trouble or "is followed again")


def unwrap(raw: bytes) -> Line:
    """The message of a record in journalctl's JSON, and its time; "" where it has none."""
    try:
        record = json.loads(raw.decode("utf-8", "replace"))
        stamp = int(record["__REALTIME_TIMESTAMP"]) / 1e6
        return Line(_message(record.get("MESSAGE"))[:_LONGEST_TEXT], stamp)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return Line("", None)


def _message(value: object) -> str:
    """A string; numbers where it is no printable UTF-8; a list of either where the record has several."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return ""
    if all(isinstance(item, int) for item in value):
        return bytes(item & 0xFF for item in value).decode("utf-8", "replace")
    return " ".join(_message(item) for item in value if not isinstance(item, int))


def _texts(block: bytes) -> bytes:
    """The same records with messages as text, so that literals can be found in them."""
    if _ARRAY not in block:
        return block
    return b"".join(_as_text(line) if _ARRAY in line else line for line in block.splitlines(keepends=True))


def _as_text(line: bytes) -> bytes:
    text, stamp = unwrap(line)
    record = {"MESSAGE": text, "__REALTIME_TIMESTAMP": str(round((stamp or 0) * 1e6))}
    return json.dumps(record, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
