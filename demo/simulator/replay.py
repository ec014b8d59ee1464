"""A trace in real time."""

import time
from collections.abc import Callable, Iterable

from simulator.engine import Engine
from simulator.trace import Request

TICK = 0.05
"""Seconds between two looks at the clock."""


def replay(
    engine: Engine,
    requests: Iterable[Request],
    speed: float = 1.0,
    wait: Callable[[float], bool] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Submits each request when it is due and lets the engine work, until all are done; then returns true.

    requests: by arrival, which is counted from the engine's present. speed: virtual seconds in a second; a machine that
    cannot keep up falls behind and loses nothing. wait: sleeps for so many seconds, and returns true if the replay
    should end at once, which is then false (a threading.Event's wait). clock: monotonic seconds.
    """
    if not 0 < speed < float("inf"):
        raise ValueError("speed is above 0")
    began, at = engine.now, clock()
    coming = iter(requests)
    request = next(coming, None)
    while True:
        due = began + (clock() - at) * speed
        while request is not None and began + request.arrival <= due:
            # Those of one moment are there before a step begins.
            if engine.now < began + request.arrival:
                engine.advance(began + request.arrival)
            engine.submit(request)
            request = next(coming, None)
        engine.advance(due)
        if request is None and not engine.running and not engine.waiting:
            return True
        if (wait or _sleep)(TICK):
            return False


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False
