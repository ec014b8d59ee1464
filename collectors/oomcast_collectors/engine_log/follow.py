"""One log file, followed through everything that happens to its path: rotation, truncation, removal, replacement."""

import errno
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

from oomcast.clock import Clock
from oomcast_collectors.engine_log.lines import Joiner, Lines, Tally

CHUNK = 28_000  # bytes; CPython finds needles in twice the time from 30,000 on
MAX_BACKLOG = 16 << 20
_KEPT = 1 << 20
_MARK = 64
_GRACE = 10.0  # seconds without growth after which a file that lost its path is closed
_LONGEST_GRACE = 600.0  # as its blocks are not freed while it is open
_MAX_LEAVING = 4
_RETRY = 2.0

Sink = Callable[[bytes, float], None]
"""Given whole lines, and UTC seconds of when they were written as far as the file tells."""


class OpenFile:
    """A descriptor of a regular file, and how far it was read. at_end: whether what is there already is not read.

    Raises OSError where the file cannot be opened, or is no regular file.
    """

    def __init__(self, path: Path, clock: Clock, tally: Tally, sink: Sink, *, at_end: bool) -> None:
        self._clock = clock
        self._tally = tally
        self._sink = sink
        self._lines = Lines(tally)
        self._joiner = Joiner(tally)
        # Not blocking: a FIFO may have come in the place of the file since it was looked at.
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            status = os.fstat(self._fd)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            self.identity = (status.st_dev, status.st_ino)
            self._offset = status.st_size if at_end else 0
            self._mark = os.pread(self._fd, _MARK, max(0, self._offset - _MARK)) if at_end else b""
        except BaseException:
            os.close(self._fd)
            raise

    def read(self) -> int:
        """Hands on at most a chunk; the bytes that were read, 0 at the end. Raises OSError."""
        status = os.fstat(self._fd)
        if status.st_size == self._offset:
            return 0
        if status.st_size < self._offset or not self._continues():
            self._restart()
        if status.st_size - self._offset > MAX_BACKLOG:
            self._tally.skipped += status.st_size - _KEPT - self._offset
            self._offset = status.st_size - _KEPT
            self._lines.lost()
        raw = os.pread(self._fd, CHUNK, self._offset)
        self._offset += len(raw)
        self._mark = (self._mark + raw)[-_MARK:]
        now = self._clock.time()
        # The time of the last write is nearer to when a line was written than that of reading, where it is credible.
        self._hand_on(self._lines.feed(raw), status.st_mtime if now - 1 < status.st_mtime < now else now)
        return len(raw)

    def close(self) -> None:
        self._hand_on(self._lines.finish(), self._clock.time())
        os.close(self._fd)

    def _continues(self) -> bool:
        """Whether the last bytes before the offset are those that were read: else the file was emptied and filled."""
        return os.pread(self._fd, len(self._mark), self._offset - len(self._mark)) == self._mark

    def _restart(self) -> None:
        self._hand_on(self._lines.finish(), self._clock.time())
        self._mark = b""
        try:
            # A writer that goes on where it was leaves a hole of any size at the beginning.
            self._offset = os.lseek(self._fd, 0, os.SEEK_DATA)
        except OSError:
            self._offset = 0

    def _hand_on(self, block: bytes, moment: float) -> None:
        if block:
            self._sink(self._joiner.join(block), moment)


class Followed:
    """A path and the files that it was the name of. at_end: as in `OpenFile`, for what is there at the first look.

    For one thread.
    """

    def __init__(
        self, path: Path, clock: Clock, log: logging.Logger, tally: Tally, sink: Sink, *, at_end: bool
    ) -> None:
        self.path = path
        self._clock = clock
        self._log = log
        self._tally = tally
        self._sink = sink
        self._at_end = at_end
        self._current: OpenFile | None = None
        self._leaving: list[_Leaving] = []
        self._retry = 0.0
        self._trouble = ""

    def look(self) -> None:
        """Sees what the path is now. What it was before is read to its end, and a little longer."""
        if self._clock.monotonic() < self._retry:
            return
        try:
            status = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            self.leave()
            self._at_end = False
            return
        except OSError as error:
            self._fail(error)
            return
        if self._current is not None and self._current.identity == (status.st_dev, status.st_ino):
            return
        self.leave()
        self._open(status)

    def read(self) -> int:
        """Hands on some of what there is; 0 if there is nothing."""
        count = 0
        now = self._clock.monotonic()
        for leaving in tuple(self._leaving):
            got = self._read(leaving.file)
            count += got
            if not got and leaving.is_over(now):
                self._leaving.remove(leaving)
                leaving.file.close()
            elif got:
                leaving.grown = now
        return count + (self._read(self._current) if self._current else 0)

    def close(self) -> None:
        self.leave()
        for leaving in self._leaving:
            leaving.file.close()
        self._leaving.clear()

    @property
    def is_done(self) -> bool:
        return self._current is None and not self._leaving

    def leave(self) -> None:
        """The path is another file's now, or of no interest; what is open is read to its end by calls of read()."""
        if self._current is None:
            return
        now = self._clock.monotonic()
        self._leaving.append(_Leaving(self._current, now))
        self._current = None
        self._at_end = False
        if len(self._leaving) > _MAX_LEAVING:
            self._leaving.pop(0).file.close()

    def _open(self, status: os.stat_result) -> None:
        try:
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            self._current = OpenFile(self.path, self._clock, self._tally, self._sink, at_end=self._at_end)
        except OSError as error:
            self._fail(error)
            return
        self._at_end = False
        self._say("")

    def _read(self, file: OpenFile) -> int:
        try:
            count = file.read()
        except OSError as error:
            self._fail(error)
            return 0
        if count:
            self._say("")
        return count

    def _fail(self, error: OSError) -> None:
        self._retry = self._clock.monotonic() + _RETRY
        self._tally.errors += 1
        self._say(error.strerror or type(error).__name__)

    def _say(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            level = logging.WARNING if trouble else logging.INFO
            self._log.log(level, "%s: %s", self.path, trouble or "is read again")


class _Leaving:
    """A file that no path leads to any more. since: when that was seen; grown: when it was last read from."""

    def __init__(self, file: OpenFile, since: float) -> None:
        self.file = file
        self.since = since
        self.grown = since

    def is_over(self, now: float) -> bool:
        return now - self.grown > _GRACE or now - self.since > _LONGEST_GRACE
