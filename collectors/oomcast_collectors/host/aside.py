"""Reads that may never return, kept away from those that must not be missed."""

import threading

from oomcast_collectors.host.usage import ProcessUsage, Scan


class Aside:
    """One scan in a thread of its own, as it may never return: to read a command line takes a lock of the process.

    started: monotonic seconds.
    """

    def __init__(self, scan: ProcessUsage, started: float) -> None:
        self.started = started
        self._scan = scan
        self._outcome: Scan | Exception | None = None
        self._thread = threading.Thread(target=self._run, name="oomcast-host-processes", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._outcome = self._scan.scan()
        except Exception as error:  # noqa: BLE001 - handed to the collector's thread, which logs and counts it
            self._outcome = error

    def outcome(self, wait: float) -> Scan | Exception | None:
        """What came of it; None if it still runs after `wait` seconds."""
        self._thread.join(wait)
        return self._outcome
