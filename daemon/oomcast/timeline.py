"""The last events of this node, newest last, and how many there were of each kind."""

import threading
from collections import deque
from collections.abc import Iterable, Sequence

from oomcast.contract import Event
from oomcast.metric import Metric, Sample

EVENTS = Metric("oomcast_events_total", "counter", "Events that collectors and the core reported.", ("kind",), 100)
METRICS = (EVENTS,)

_KEPT = 2000
_KINDS = EVENTS.max_series


class Timeline:
    """A bounded list; a flood of one kind can push others out of it, but never grows it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: deque[Event] = deque(maxlen=_KEPT)
        self._counts: dict[str, int] = {}

    def add(self, events: Iterable[Event]) -> None:
        with self._lock:
            for event in events:
                self._events.append(event)
                if event.kind in self._counts or len(self._counts) < _KINDS:
                    self._counts[event.kind] = self._counts.get(event.kind, 0) + 1

    def last(self, count: int) -> Sequence[Event]:
        """At most `count` events, oldest first."""
        with self._lock:
            return list(self._events)[-count:] if count > 0 else []

    def samples(self) -> list[Sample]:
        with self._lock:
            return [Sample(EVENTS.series(kind), count) for kind, count in self._counts.items()]
