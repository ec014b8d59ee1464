"""Copy utilisation that suddenly is several times what it was: prefill of long prompts, swapping, a second tenant."""

from array import array
from statistics import median

from oomcast.clock import Clock
from oomcast.contract import Event

_WINDOW = 60.0
_READINGS = 300
"""The window at five a second. Slower readings fill less of the ring, faster ones shorten the window."""
_HISTORY = 10.0
_FEWEST = 10
_FLOOR = 0.05
"""A GPU that idles has no baseline worth a multiple: from 0 everything would be a surge."""
_RISE = 4.0
_FALL = 2.0
_FIRST_RENEWAL, _RENEWAL = 1.0, 5.0


class CopySurge:
    """One GPU's surges: a reading of at least four times the median of the last minute, which is taken as 5 % at least.

    Nothing is judged before there are ten seconds of history. While a surge lasts the baseline stands still. It ends
    below twice the baseline, or after a minute: what lasts longer is how the GPU is used now, and becomes the baseline.
    """

    def __init__(self, gpu: str, clock: Clock) -> None:
        self._gpu = gpu
        self._clock = clock
        self._times = array("d")
        self._ratios = array("d")
        self._next = 0
        self._baseline: float | None = None
        self._renew_at = 0.0
        self._since: float | None = None
        """When the surge began that lasts, if one does."""

    def add(self, at_monotonic: float, ratio: float) -> Event | None:
        """The event of the surge that begins with this reading, if one does. ratio: 0 to 1; at_monotonic: when it was
        taken, never before the last one."""
        if self._since is not None:
            if self._lasts(self._since, at_monotonic, ratio):
                return None
            self._since = None
        if at_monotonic >= self._renew_at:
            self._baseline = self._median(at_monotonic)
            self._renew_at = at_monotonic + (_FIRST_RENEWAL if self._baseline is None else _RENEWAL)
        if self._baseline is not None and ratio >= _RISE * self._baseline:
            self._since = at_monotonic
            return self._event(at_monotonic, ratio, self._baseline)
        self._keep(at_monotonic, ratio)
        return None

    def _lasts(self, since: float, now: float, ratio: float) -> bool:
        return self._baseline is not None and ratio >= _FALL * self._baseline and now < since + _WINDOW

    def _keep(self, at: float, ratio: float) -> None:
        if len(self._times) < _READINGS:
            self._times.append(at)
            self._ratios.append(ratio)
        else:
            self._times[self._next] = at
            self._ratios[self._next] = ratio
        self._next = (self._next + 1) % _READINGS

    def _median(self, now: float) -> float | None:
        """Of the window, no less than the floor; None without enough history."""
        times = [at for at in self._times if at > now - _WINDOW]
        if len(times) < _FEWEST or max(times) - min(times) < _HISTORY:
            return None
        ratios = (ratio for at, ratio in zip(self._times, self._ratios, strict=True) if at > now - _WINDOW)
        return max(median(ratios), _FLOOR)

    def _event(self, at: float, ratio: float, baseline: float) -> Event:
        return Event(
            "gpu_copy_surge",
            self._clock.time() - (self._clock.monotonic() - at),
            at,
            f"copy utilisation of GPU {self._gpu} rose to {ratio:.0%}, {ratio / baseline:.1f} times its baseline of"
            f" {baseline:.0%}",
            {"gpu": self._gpu, "ratio": ratio, "baseline": baseline},
        )
