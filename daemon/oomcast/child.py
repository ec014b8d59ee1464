"""A child process that cannot outlive the daemon's patience, nor leave children of its own behind."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from typing import IO

from oomcast.clock import Clock

_TERM_SHARE = 0.5
_LEAST = 0.2
"""Seconds to see a killed child end, which it does at once unless it hangs in the kernel."""


class Child:
    """Runs `argv` in a session of its own, so that its whole process group can be ended at once.

    feed: what it reads from its standard input, which then stays open until stop(); without it there is none to read.
    Raises OSError when the program cannot be started.
    """

    def __init__(self, argv: Sequence[str], clock: Clock, feed: bytes | None = None) -> None:
        self._clock = clock
        # Unbuffered: closing a buffered pipe waits for a thread that reads it, which a hung child keeps there.
        self._process = subprocess.Popen(
            argv,
            bufsize=0,
            stdin=subprocess.DEVNULL if feed is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            close_fds=True,
        )
        if feed is not None:
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it has ended already, which its output tells
                self._process.stdin.write(feed)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stdout(self) -> IO[bytes]:
        """The child's output, unbuffered."""
        assert self._process.stdout is not None
        return self._process.stdout

    def stop(self, deadline: float) -> None:
        """SIGTERM to the group, SIGKILL after half of the time until the monotonic `deadline`.

        Raises subprocess.TimeoutExpired when not even that ends it in time (it hangs in the kernel).
        """
        left = max(deadline - self._clock.monotonic(), 0.0)
        self._signal(signal.SIGTERM)
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(left * _TERM_SHARE)
            # The group outlives its leader: children that ignored the first signal end here in either case.
            self._signal(signal.SIGKILL)
            self._process.wait(max(left * (1 - _TERM_SHARE), _LEAST))
        finally:
            self.stdout.close()
            if self._process.stdin is not None:
                self._process.stdin.close()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
