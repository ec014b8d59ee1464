"""When the C library's malloc and free are followed: always or for a share of the time, and within the budget."""

import logging
import math
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

from oomcast.clock import Clock
from oomcast.contract import Event
from oomcast_collectors.ebpf.child.cost.meter import Meter
from oomcast_collectors.ebpf.settings import Allocations

KIND = "libc"

_FIRST_PAUSE, _LONGEST_PAUSE = 120.0, 3600.0
_PROVEN = 600.0
"""Seconds within the budget after which it is forgotten that it was passed."""

_SLICE = 1.0
_SWITCHING = 0.1
"""Of a slice, what attaching and detaching may take: slices are made longer where these are slow."""

_PERIODS = 10
_JITTER = 0.25


def duty(
    settings: Allocations, meter: Meter, clock: Clock, log: logging.Logger, tell: Callable[[Event], None]
) -> "Duty | None":
    """What the settings ask for; None where libc is not followed at all."""
    if settings.libc == "off":
        return None
    kind = Full if settings.libc == "full" else Sampled
    return kind(settings, meter, clock, log, tell)


class Duty(ABC):
    """Not thread-safe. tell: takes the event that says that the budget was passed. now: monotonic seconds."""

    def __init__(
        self, settings: Allocations, meter: Meter, clock: Clock, log: logging.Logger, tell: Callable[[Event], None]
    ) -> None:
        self._settings = settings
        self._budget = settings.budget / 100
        self._meter = meter
        self._clock = clock
        self._log = log
        self._tell = tell
        self._told = False
        self._on = False

    @property
    @abstractmethod
    def share(self) -> float:
        """Of the time, in which the group is attached, as measured."""

    def tick(self, now: float) -> bool:
        """Whether the group is to be attached from now on. The meter has to know of the hits so far."""
        on = self._stays(now) if self._on else self._comes(now)
        if on and not self._on:
            self._begin(now)
        elif self._on and not on:
            self._end(now)
        self._on = on
        return on

    @abstractmethod
    def switched(self, seconds: float) -> None:
        """The group has been attached or detached, as the last tick said, and that took so long."""

    @abstractmethod
    def _comes(self, now: float) -> bool: ...

    @abstractmethod
    def _stays(self, now: float) -> bool: ...

    @abstractmethod
    def _begin(self, now: float) -> None: ...

    @abstractmethod
    def _end(self, now: float) -> None: ...

    def _above_budget(self, ratio: float, consequence: str) -> None:
        """Says so, once until `_told` is taken back. ratio: of a core, what it cost while the group was attached."""
        if self._told:
            return
        self._told = True
        summary = (
            f"following malloc and free costs {ratio:.1%} of a core, above the budget of {self._budget:.1%}: "
            f"{consequence}"
        )
        self._log.warning("%s", summary)
        fields: dict[str, str | float] = {"kind": KIND, "cost_ratio": round(ratio, 6), "budget_ratio": self._budget}
        self._tell(Event("ebpf_budget", self._clock.time(), self._clock.monotonic(), summary, fields))


class Full(Duty):
    """On until it costs more than the budget; then off, and tried again after pauses that grow."""

    _began = _due = -math.inf
    _pause = _FIRST_PAUSE

    @property
    def share(self) -> float:
        return float(self._on)

    def switched(self, seconds: float) -> None:
        return

    def _comes(self, now: float) -> bool:
        return now >= self._due

    def _stays(self, now: float) -> bool:
        if now >= self._began + _PROVEN:
            self._told, self._pause = False, _FIRST_PAUSE
        return self._meter.ratio(KIND, now) <= self._budget

    def _begin(self, now: float) -> None:
        self._began = now

    def _end(self, now: float) -> None:
        self._above_budget(
            self._meter.ratio(KIND, now), f"they are followed no more, and tried again in {self._pause / 60:.0f} min"
        )
        self._due = now + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)


class Sampled(Duty):
    """On for slices of a second. One that costs what the budget allows for its whole period ends early, and the next
    does not begin before the budget has made up for it."""

    def __init__(
        self,
        settings: Allocations,
        meter: Meter,
        clock: Clock,
        log: logging.Logger,
        tell: Callable[[Event], None],
        random: Callable[[], float] = random.random,
    ) -> None:
        """random: from 0 to 1, so that slices keep no step with what a process does now and then."""
        super().__init__(settings, meter, clock, log, tell)
        self._random = random
        self._switching = 0.0
        self._began = self._since = self._due = self._cut = -math.inf
        self._before = 0.0
        self._done: deque[tuple[float, float]] = deque(maxlen=_PERIODS)
        self._lasted = 0.0

    @property
    def share(self) -> float:
        """Over the last whole periods; before the first is over, as the settings have it."""
        if not self._done:
            return self._settings.libc_share
        return sum(on for on, _ in self._done) / sum(period for _, period in self._done)

    def switched(self, seconds: float) -> None:
        self._switching = max(seconds, 0.9 * self._switching)
        # Half of the probes are there for half of the time that it takes.
        if self._on:
            self._since += seconds / 2
        else:
            self._lasted += seconds / 2

    @property
    def _slice(self) -> float:
        return max(_SLICE, 2 * self._switching / _SWITCHING)

    @property
    def _spent(self) -> float:
        return self._meter.seconds(KIND) - self._before

    def _comes(self, now: float) -> bool:
        return now >= self._due and now >= self._began + self._spent / self._budget

    def _stays(self, now: float) -> bool:
        return now < self._since + self._slice and not self._costly()

    def _costly(self) -> bool:
        return self._spent > self._budget * self._slice / self._settings.libc_share

    def _begin(self, now: float) -> None:
        if self._lasted:
            self._done.append((self._lasted, now - self._began))
        self._began = self._since = now
        self._before = self._meter.seconds(KIND)

    def _end(self, now: float) -> None:
        self._lasted = now - self._since
        off = self._slice / self._settings.libc_share - self._slice
        self._due = self._began + self._slice + off * (1 + _JITTER * (2 * self._random() - 1))
        if self._costly():
            self._cut = now
            self._above_budget(self._spent / self._lasted, "they are followed for less of the time")
        elif now > self._cut + _PROVEN:
            self._told = False
