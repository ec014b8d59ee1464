"""What probes take from the processes they are attached to: hits times what one costs here."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from oomcast_collectors.ebpf import metrics
from oomcast_collectors.ebpf.wire import Row

_WINDOW = 10.0
_LEAST_WINDOW = 1.0
_STEP = 0.2
"""Seconds between two points that the window is made of."""


@dataclass(frozen=True, slots=True)
class CallCost:
    """Seconds that a probed call takes more than it would. step: what is added where the kernel cannot emulate the
    probed instruction and has it executed out of line; 0 where the others have that in them."""

    allocate: float
    free: float
    step: float

    @property
    def mean(self) -> float:
        """Of an allocation and its free."""
        return (self.allocate + self.free) / 2


ASSUMED = CallCost(5e-6, 5e-6, 15e-6)
"""Where it could not be measured: more than it is likely to be, so that a budget holds."""


class Meter:
    """Adds up hits times cost, by kind of allocation. Not thread-safe. now: monotonic seconds, as everywhere below.

    costs: of all kinds. None where it is not known: then nothing is told, and ASSUMED is what a budget goes by.
    """

    def __init__(self, probe: str, costs: Mapping[str, CallCost | None], now: float) -> None:
        self._probe = probe
        self._costs = dict(costs)
        self._seconds = dict.fromkeys(costs, 0.0)
        self._past: deque[tuple[float, dict[str, float]]] = deque([(now, dict(self._seconds))])

    def add(self, kind: str, calls: int, frees: int, stepped_calls: int = 0) -> None:
        """Calls since the last time that gave memory and that took it back; stepped_calls: of both, those at a probe
        point that the kernel executes out of line."""
        cost = self._costs[kind] or ASSUMED
        self._seconds[kind] += calls * cost.allocate + frees * cost.free + stepped_calls * cost.step

    def seconds(self, kind: str) -> float:
        """All that it took so far."""
        return self._seconds[kind]

    def ratio(self, kind: str, now: float) -> float:
        """Share of one core over the last ten seconds, or since the beginning."""
        self._look(now)
        when, then = self._past[0]
        return (self._seconds[kind] - then[kind]) / max(now - when, _LEAST_WINDOW)

    def rows(self, now: float) -> Iterator[Row]:
        for kind, cost in self._costs.items():
            if cost is None:
                continue
            labels = (self._probe, kind)
            yield Row(metrics.COST_SECONDS.name, labels, self._seconds[kind])
            yield Row(metrics.COST_PER_CALL.name, labels, cost.mean)
            yield Row(metrics.COST_RATIO.name, labels, self.ratio(kind, now))

    def _look(self, now: float) -> None:
        """Has the first point be the youngest that is as old as the window."""
        if now >= self._past[-1][0] + _STEP:
            self._past.append((now, dict(self._seconds)))
        while len(self._past) > 1 and self._past[1][0] <= now - _WINDOW:
            self._past.popleft()
