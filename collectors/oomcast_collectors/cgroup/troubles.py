"""What cannot be read: counted every time, told when it begins, changes and ends."""

import logging

from oomcast.clock import Clock
from oomcast.logs import OnChange


class Troubles:
    """errors: how many readings were given up since the start."""

    def __init__(self, log: logging.Logger, clock: Clock) -> None:
        self.errors = 0
        self._told = OnChange(log, clock=clock)
        self._present: set[str] = set()

    def met(self, what: str, error: Exception) -> None:
        """what: a cgroup's path, or what else was to be read."""
        self.errors += 1
        self._present.add(what)
        self._told.report(what, str(error), logging.WARNING, f"{what}: {error}; left out until it reads")

    def over(self, what: str) -> None:
        """It was read; to be called after every reading that went well."""
        if self._present and what in self._present:
            self._present.discard(what)
            self._told.report(what, "", logging.INFO, f"{what} reads again")

    def gone(self, what: str) -> None:
        """There is nothing to be read any more."""
        if what in self._present:
            self._present.discard(what)
            self._told.forget(what)
