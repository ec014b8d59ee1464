"""A child that is started for one question and ends with the answer."""

import contextlib
import select
import subprocess
from collections.abc import Iterator

from oomcast.child import Child
from oomcast.clock import Clock
from oomcast_collectors.ebpf.supervisor import COMMAND
from oomcast_collectors.ebpf.wire import LONGEST, Message, Order, decode


def ask(order: Order, clock: Clock, patience: float) -> Iterator[Message]:
    """What it says until it ends, or says nothing for so many seconds. Raises ValueError on what is no message."""
    child = Child(COMMAND, clock, order.encode())
    try:
        for line in _lines(child, patience):
            yield decode(line)
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):  # it hangs in the kernel, and dies when it comes out
            child.stop(clock.monotonic() + 2.0)


def _lines(child: Child, patience: float) -> Iterator[bytes]:
    rest = b""
    poll = select.poll()
    poll.register(child.stdout, select.POLLIN)
    while len(rest) <= LONGEST and poll.poll(patience * 1000) and (data := child.stdout.read(1 << 16)):
        *lines, rest = (rest + data).split(b"\n")
        yield from lines
