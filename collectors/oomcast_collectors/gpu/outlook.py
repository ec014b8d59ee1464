"""What the forecast is told of a memory: nothing while a model is loaded, and ten times a second when it is close."""

from oomcast.contract import Level
from oomcast_collectors.gpu.loading import Loading
from oomcast_collectors.gpu.track import Track

PUSH_PERIOD = 0.1
_NOISE = 0.005
_HORIZON = 60.0
_STAYS = 10.0
"""Seconds for which it is pushed on after it was last close, so that a pause in its rise does not end that."""


class Outlook:
    """Of one track. resource, labels: of its level. Looked at by the collector's run, asked for by the sampler."""

    def __init__(self, track: Track, resource: str, label: str, grace: float) -> None:
        self._track = track
        self._resource = resource
        self._labels = (("gpu", label),)
        self._loading = Loading(grace)
        self._foreseen = False
        self._before: tuple[float, int] | None = None
        self._close_until = 0.0
        self._pushed = 0.0

    def look(self, now: float, newest: float | None) -> Level | None:
        """Once a second. newest: when the newest process came that holds a real part of the memory, monotonic."""
        memory = self._track.fresh(now)
        window = self._track.window
        if memory is None or not window.usable:
            self._foreseen = False
            self._before = None
            return None
        share = memory.used / window.usable
        self._foreseen = not self._loading.look(now, share, newest, window.plateau_since)
        before, self._before = self._before, (now, memory.used)
        if self._foreseen and before and now > before[0]:
            rise = (memory.used - before[1]) / (now - before[0])
            if rise > 0 and window.usable - memory.used < _HORIZON * rise:
                self._close_until = now + _STAYS
        return self.level(now)

    def due(self, now: float) -> bool:
        """Whether the level should be pushed now, ahead of the next look."""
        if now >= self._close_until or now - self._pushed < PUSH_PERIOD:
            return False
        self._pushed = now
        return self._foreseen

    def level(self, now: float) -> Level | None:
        """None while there are no readings, the memory is empty, or a model is being loaded into it."""
        memory = self._track.fresh(now)
        if memory is None or not self._foreseen:
            return None
        usable = self._track.window.usable
        return Level(self._resource, self._labels, memory.used, usable, noise=_NOISE * usable)
