"""Follows the kernel's log in a thread of its own, from now on: what was printed before is never read."""

import errno
import logging
import os
import select
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from oomcast.contract import NotPresent
from oomcast_collectors.kernel_log.record import Record, may_matter, parse_record

_KMSG = os.makedev(1, 11)
_READ_SIZE = 16384  # twice the longest record: a read into less than a record loses it
_PAUSE = 0.01  # between two rounds: a steady trickle costs a hundred wake-ups a second and not one a record
_FILE_PAUSE = 0.2
_ROUND = 20_000  # records: a burst of this many is read at full speed
_STORM_PAUSE = 4.0  # times the CPU time of the round: a lasting storm gets a fifth of a core, its losses are counted


@dataclass(slots=True)
class Tally:
    """What was read. It outlives a follower, so that what is lost between two of them is seen as well."""

    records: int = 0
    ignored: int = 0
    malformed: int = 0
    overruns: int = 0
    lost: int = 0
    sequence: int | None = None


class Sink(Protocol):
    """Who is told, in the follower's thread."""

    def record(self, record: Record) -> None:
        """A record of the kernel's that may matter."""

    def gap(self) -> None:
        """Records were lost before the next one."""


def open_log(path: Path) -> int:
    """A descriptor of the log at its end, for which no read blocks. A file or FIFO of records will do as well.

    Raises NotPresent, saying why, if there is no log or it may not be read; OSError for anything else.
    """
    try:
        # A FIFO opened for reading alone would report its end whenever nobody has it open for writing.
        access = os.O_RDWR if path.is_fifo() else os.O_RDONLY
        fd = os.open(path, access | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotPresent(f"{path}: does not exist") from error
    except PermissionError as error:
        reason = "not permitted; needs CAP_SYSLOG, or kernel.dmesg_restrict=0; in a container the device as well"
        raise NotPresent(f"{path}: {reason}") from error
    except OSError as error:
        if error.errno in (errno.ENODEV, errno.ENXIO):
            raise NotPresent(f"{path}: no device behind it") from error
        raise
    try:
        _check_and_seek(fd, path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check_and_seek(fd: int, path: Path) -> None:
    status = os.fstat(fd)
    # Containers like to put /dev/null or a console here; reading those would spin, or steal somebody's input.
    if stat.S_ISCHR(status.st_mode) and status.st_rdev != _KMSG:
        raise NotPresent(f"{path}: is another device, not the kernel's log")
    if stat.S_ISDIR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        raise NotPresent(f"{path}: not the kernel's log")
    if not stat.S_ISFIFO(status.st_mode):
        os.lseek(fd, 0, os.SEEK_END)


class Follower:
    """One thread that reads `fd` until it is stopped or fails; `fd` is its own from now on.

    failure: what ended it, None while it runs. read: as os.read.
    """

    def __init__(
        self,
        fd: int,
        tally: Tally,
        sink: Sink,
        log: logging.Logger,
        read: Callable[[int, int], bytes] = os.read,
    ) -> None:
        self._fd = fd
        self._tally = tally
        self._sink = sink
        self._log = log
        self._read = read
        mode = os.fstat(fd).st_mode
        self._is_file = stat.S_ISREG(mode)
        self._is_stream = self._is_file or stat.S_ISFIFO(mode)
        self._partial = b""
        self._stopping = False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="kernel-log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Ends the thread; False if it still runs after `timeout` seconds."""
        self._stopping = True
        if self._thread.is_alive():
            os.eventfd_write(self._wake, 1)
            self._thread.join(max(0.0, timeout))
        if self._thread.is_alive():
            return False
        os.close(self._wake)
        return True

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._sleep(self._round())
                if not self._stopping and not self._is_file:
                    self._await_data()
        except Exception as error:  # noqa: BLE001 - nobody waits for this thread: the collector's next run raises it
            self._log.exception("the kernel's log is no longer followed")
            self.failure = error
        finally:
            os.close(self._fd)

    def _round(self) -> float:
        """Reads what is there, `_ROUND` records at most; returns the seconds to pause after it."""
        begin = time.thread_time()
        for _ in range(_ROUND):
            if self._stopping or not self._read_one():
                return _FILE_PAUSE if self._is_file else _PAUSE
        return max(_PAUSE, _STORM_PAUSE * (time.thread_time() - begin))

    def _read_one(self) -> bool:
        """One read, of one record where it is the device. False if there was nothing more to read."""
        try:
            raw = self._read(self._fd, _READ_SIZE)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno == errno.EPIPE:  # overwritten before it was read; the next read goes on behind it
                self._tally.overruns += 1
                return True
            if error.errno == errno.EINVAL:  # longer than the buffer: the kernel drops it, and the sequence shows it
                self._tally.malformed += 1
                return False
            raise
        if not raw:
            self._rewind_if_truncated()
            return False
        if self._is_stream:
            for line in self._lines(raw):
                self._take(line)
        else:
            self._take(raw)
        return True

    def _lines(self, raw: bytes) -> list[bytes]:
        *lines, self._partial = (self._partial + raw).split(b"\n")
        if len(self._partial) > _READ_SIZE:
            self._partial = b""
            self._tally.malformed += 1
        return [line for line in lines if not line.startswith(b" ")]

    def _rewind_if_truncated(self) -> None:
        if not self._is_stream:
            raise OSError(errno.ENODEV, "the kernel's log has ended")
        if self._is_file and os.fstat(self._fd).st_size < os.lseek(self._fd, 0, os.SEEK_CUR):
            os.lseek(self._fd, 0, os.SEEK_SET)
            self._partial = b""

    def _take(self, raw: bytes) -> None:
        tally = self._tally
        record = parse_record(raw)
        if record is None:
            tally.malformed += 1
            return
        tally.records += 1
        if tally.sequence is not None and record.sequence > tally.sequence + 1:
            tally.lost += record.sequence - tally.sequence - 1
            self._sink.gap()
        tally.sequence = record.sequence
        # Whoever may write to /dev/kmsg can write any text, but the kernel gives it a facility other than its own.
        if record.facility != 0:
            tally.ignored += 1
        elif may_matter(record.body):
            self._sink.record(record)

    def _sleep(self, seconds: float) -> None:
        poller = select.poll()
        poller.register(self._wake, select.POLLIN)
        poller.poll(seconds * 1000)

    def _await_data(self) -> None:
        poller = select.poll()
        poller.register(self._wake, select.POLLIN)
        poller.register(self._fd, select.POLLIN | select.POLLPRI)
        poller.poll()
