"""What the daemon does once a second beside the collectors' runs, each part apart: one's defect costs no other."""

import logging
from collections.abc import Callable, Mapping

from oomcast.clock import Clock
from oomcast.metric import Metric, Sample

FAILURES = Metric(
    "oomcast_chore_failures_total",
    "counter",
    "Failures of the daemon's own work of each second: schedule (gives up overdue runs), kills (counts kills and Xids "
    "once), health (the daemon's own metrics).",
    ("chore",),
)
METRICS = (FAILURES,)


class Chores:
    """chores: what to do, by name. Everything is called from one thread."""

    def __init__(self, chores: Mapping[str, Callable[[], None]], clock: Clock, log: logging.Logger) -> None:
        self._chores = chores
        self._clock = clock
        self._log = log
        self._failing: set[str] = set()
        self._failures = dict.fromkeys(chores, 0)
        self._done = dict.fromkeys(chores, clock.monotonic())

    def run(self) -> None:
        """Each chore once; never raises. What fails is counted, and logged when it begins and when it ends."""
        for name, chore in self._chores.items():
            try:
                chore()
            except Exception as error:  # noqa: BLE001 - a defect of ours must not end the data of every collector
                self._failures[name] += 1
                if name not in self._failing:
                    self._failing.add(name)
                    self._log.error("the daemon's own work fails: %s", name, exc_info=error)
            else:
                self._done[name] = self._clock.monotonic()
                if name in self._failing:
                    self._failing.remove(name)
                    self._log.info("the daemon's own work is done again: %s", name)

    def undone(self) -> tuple[float, str]:
        """Seconds for which the chore that failed longest has not succeeded, and its name."""
        name = min(self._done, key=self._done.__getitem__)
        return self._clock.monotonic() - self._done[name], name

    def samples(self) -> list[Sample]:
        return [Sample(FAILURES.series(name), count) for name, count in self._failures.items()]
