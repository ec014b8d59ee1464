"""An engine's counters over its restarts: totals that never fall, and never jump by what was counted before.

A fall has two causes. When the engine restarts, most of its counters begin at 0 again. A page that several processes
contribute to may lack the part of one of them for a moment: then few counters fall, or many but not to nothing, and
soon they are back. In doubt the totals wait for SETTLE seconds, after which what still is low began anew.
"""

import math
from collections.abc import Mapping, Sequence

from oomcast_collectors.engine.length_totals import Bounds, LengthTotals, sound
from oomcast_collectors.engine.reading import Count, Kind, Lengths, Reading

SETTLE = 15.0
"""Seconds: pages that lack a process are repaired with the next ones; a fall across a gap this long is a restart."""

MAX_VALUES = 50
"""Label values per count. More of them are counted together under OTHER."""

OTHER = "other"

_NEAR_ZERO = 0.1
"""Share of its last value below which a counter can only have begun anew: no process of a few has nine tenths."""

_SAME_START = 2.0
"""Seconds: a start time that is computed from the boot time moves by rounding."""

_LENGTHS = ("lengths", "")

_Key = tuple[str, str]


class Counters:
    """restarts: seen so far. restarted: monotonic seconds of the look that saw the last one, None before it.

    The totals begin at the values of the first reading. What a page lacks keeps its total. An engine of another kind
    in the same place is a restart too.
    """

    def __init__(self) -> None:
        self.restarts = 0
        self.restarted: float | None = None
        self._series: dict[_Key, _Series] = {}
        self._by_count: dict[str, dict[str, _Series]] = {}
        self._lengths = LengthTotals()
        self._started: float | None = None
        self._kind: Kind | None = None
        self._whole_at: float | None = None

    def look(self, reading: Reading | None, at: float) -> bool:
        """Takes one look's reading, None for a failed one. at: its monotonic seconds. Says whether it saw a restart."""
        if reading is None:
            return False
        values = self._values(reading)
        replaced = self._kind not in (None, reading.kind)
        moved = replaced or self._started_anew(reading.started)
        compared = self._compared(values, reading.lengths)
        fallen, near_zero = _fallen(compared)
        anew = fallen and (moved or (near_zero and not self._same_process(reading.started)) or self._settled(at))
        restarted = moved or anew
        self._started = reading.started if restarted else reading.started or self._started
        self._kind = reading.kind
        if restarted:
            self.restarts += 1
            self.restarted = at
        if anew or replaced or (moved and not compared):
            self._end_life()
        elif fallen:
            return False
        self._whole_at = at
        self._add(values, reading.lengths, at)
        return restarted

    def values(self, what: Count) -> Mapping[str, float]:
        """The totals by label value, empty where the engine has never told any."""
        return {value: series.total for value, series in self._by_count.get(what, {}).items()}

    def total(self, what: Count) -> float | None:
        """The sum over the label values; None where the engine has never told any."""
        series = self._by_count.get(what)
        return sum(one.total for one in series.values()) if series else None

    @property
    def lengths(self) -> Lengths | None:
        """The histogram of prompt lengths over all lives, in the buckets of the present one."""
        return self._lengths.total()

    @property
    def length_parts(self) -> Mapping[Bounds, Lengths]:
        """The same by the bounds under which it was counted."""
        return self._lengths.parts()

    def _values(self, reading: Reading) -> dict[_Key, float]:
        found: dict[_Key, float] = {}
        known = {what: len(self._by_count.get(what, ())) for what in reading.counts}
        for what, values in reading.counts.items():
            for value, number in values.items():
                if not 0 <= number < math.inf:
                    continue
                key = (what, value)
                if key not in self._series and key not in found:
                    if known[what] >= MAX_VALUES:
                        key = (what, OTHER)
                    else:
                        known[what] += 1
                found[key] = found.get(key, 0.0) + number
        if reading.lengths is not None and sound(reading.lengths):
            found[_LENGTHS] = reading.lengths.buckets[-1][1]
        return found

    def _started_anew(self, started: float | None) -> bool:
        return self._started is not None and started is not None and abs(started - self._started) > _SAME_START

    def _same_process(self, started: float | None) -> bool:
        return self._started is not None and started is not None and not self._started_anew(started)

    def _compared(self, values: Mapping[_Key, float], lengths: Lengths | None) -> list[tuple[float, float]]:
        """(last value, value) of the counters that are on this page and had counted something."""
        pairs = {key: (self._series[key].life, value) for key, value in values.items() if key in self._series}
        if _LENGTHS in pairs and lengths is not None and not self._lengths.same_buckets(lengths):
            # No process changes its buckets.
            pairs[_LENGTHS] = (pairs[_LENGTHS][0], 0.0)
        return [(life, value) for life, value in pairs.values() if life > 0]

    def _settled(self, at: float) -> bool:
        return self._whole_at is not None and at - self._whole_at >= SETTLE

    def _end_life(self) -> None:
        for series in self._series.values():
            series.end_life()
        self._lengths.end_life()

    def _add(self, values: Mapping[_Key, float], lengths: Lengths | None, at: float) -> None:
        for key, value in values.items():
            series = self._series.get(key)
            if series is None:
                what, label = key
                series = self._series[key] = self._by_count.setdefault(what, {})[label] = _Series(at)
            if key != _LENGTHS or lengths is None or self._add_lengths(lengths, at, series):
                series.add(value, at)

    def _add_lengths(self, lengths: Lengths, at: float, count: "_Series") -> bool:
        """Whether they were taken: at once what goes on from the last ones, anything else once it lasts."""
        if count.life == 0 or self._lengths.fits(lengths):
            self._lengths.add(lengths)
            return True
        if at - count.whole_at >= SETTLE:
            self._lengths.rebase(lengths)
            return True
        return False


def _fallen(compared: Sequence[tuple[float, float]]) -> tuple[bool, bool]:
    """Whether most counters fell, and whether those fell to next to nothing. compared: (last value, value).

    Not all need to fall in a restart: a count of 2 may be 2 again before the next look.
    """
    fallen = [(life, value) for life, value in compared if value < life]
    most = bool(fallen) and 2 * len(fallen) >= len(compared)
    return most, most and all(value < _NEAR_ZERO * life for life, value in fallen)


class _Series:
    """life: the highest value since the engine started; past: what its lives before counted."""

    __slots__ = ("life", "past", "whole_at")

    def __init__(self, at: float) -> None:
        self.past = 0.0
        self.life = 0.0
        self.whole_at = at

    @property
    def total(self) -> float:
        return self.past + self.life

    def add(self, value: float, at: float) -> None:
        if value < self.life and at - self.whole_at < SETTLE:
            return
        if value < self.life:
            # It began anew on its own. How much it counted meanwhile is not known: nothing is added.
            self.past += self.life - value
        self.life = value
        self.whole_at = at

    def end_life(self) -> None:
        self.past += self.life
        self.life = 0.0
