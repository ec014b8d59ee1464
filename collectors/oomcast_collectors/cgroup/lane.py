"""The fast lane: cgroups about to meet their limit are read ten times a second instead of once.

A forecast can be no fresher than its last reading, and at one reading a second the last seconds before a kill are
guesswork. Only cgroups whose headroom would be gone within a minute are here, so it costs nothing on a calm node.
"""

import threading
from collections.abc import Callable, Iterable

from oomcast.clock import Clock
from oomcast.contract import Facts, Level
from oomcast_collectors.cgroup.node import Gone, Node
from oomcast_collectors.cgroup.stat import Malformed

PERIOD = 0.1
_HORIZON = 60.0
_STAYS = 10.0
"""Seconds a cgroup stays after it was last near, so that one pause of its growth does not end the fast readings."""

_MOST = 32


class FastLane:
    """Call `consider` after each regular pass, with `lock` held; the lane's own thread takes it for each round."""

    def __init__(self, clock: Clock, push: Callable[[Facts], None], lock: threading.Lock) -> None:
        self._clock = clock
        self._push = push
        self._lock = lock
        self._hot: dict[Node, float] = {}
        self._last: dict[Node, tuple[float, float]] = {}
        self._wake = threading.Event()
        self._ended = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="cgroup-fast-lane", daemon=True)
        self._thread.start()

    def stop(self, deadline: float) -> None:
        """Ends the thread; returns before the monotonic `deadline`."""
        self._ended = True
        self._wake.set()
        if self._thread:
            self._thread.join(max(deadline - self._clock.monotonic(), 0))

    def consider(self, nodes: Iterable[Node]) -> None:
        """Takes in who would be full within a minute at the rate since the last pass, lets go of who is calm."""
        now = self._clock.monotonic()
        seen: dict[Node, tuple[float, float]] = {}
        for node in nodes:
            level = node.level
            if level is None:
                continue
            before = self._last.get(node)
            seen[node] = (now, level.used)
            if before and _near(before, now, level) and (node in self._hot or len(self._hot) < _MOST):
                self._hot[node] = now
        self._last = seen
        self._hot = {node: at for node, at in self._hot.items() if now - at < _STAYS and node in seen}
        if self._hot:
            self._wake.set()

    def _run(self) -> None:
        while not self._ended:
            if not self._hot:
                self._wake.wait()
                self._wake.clear()
                continue
            began = self._clock.monotonic()
            with self._lock:
                levels = [level for node in list(self._hot) if (level := _read(node)) is not None]
            if levels:
                self._push(Facts(levels=levels))
            self._wake.wait(max(PERIOD - (self._clock.monotonic() - began), 0.01))
            self._wake.clear()


def _near(before: tuple[float, float], now: float, level: Level) -> bool:
    passed, risen = now - before[0], level.used - before[1]
    return passed > 0 and risen > level.noise / 4 and (level.capacity - level.used) < _HORIZON * risen / passed


def _read(node: Node) -> Level | None:
    try:
        return node.levelled(node.version.decode(node.texts()))
    except (Gone, OSError, Malformed):
        return None  # the next regular pass finds the same, and tells
