"""What drivers in the guest write down: where the time goes, and what the kernel logged."""

import errno
import os
import sys
import time
from collections.abc import Iterator


def note(what: str) -> None:
    """A line of the output, for whoever reads it."""
    sys.stdout.write(f"{time.clock_gettime(time.CLOCK_BOOTTIME):6.1f} s  {what}\n")
    sys.stdout.flush()


def open_log() -> int:
    """The kernel's log from now on."""
    log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    os.lseek(log, 0, os.SEEK_END)
    return log


def records(log: int) -> Iterator[tuple[float, str]]:
    """Seconds of the kernel's clock and text of each record that the kernel wrote.

    Raises RuntimeError if some were overwritten before.
    """
    while True:
        try:
            record = os.read(log, 16384)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise RuntimeError("the kernel's log was overwritten before it was read") from error
            raise
        head, _, text = record.decode(errors="replace").partition(";")
        priority, _, usec, *_ = head.split(",")
        if int(priority) < 8:
            yield int(usec) / 1e6, text.partition("\n")[0]
