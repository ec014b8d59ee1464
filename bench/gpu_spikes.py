"""Spikes of GPU memory at random times: when they come, and what each program has told of them at a scrape."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

WIDTHS = (0.05, 0.2, 0.5)
OF_EACH = 20
INTERVAL = 15.0
"""Seconds between two scrapes."""

_SLACK = 2.0
"""Seconds by which a peak may outlast the window: what is older by up to one is in it, and it is published once a
second."""

_TOLERANCE = 0.05
_CLEAR = 0.1
"""Seconds around a scrape without a spike: the scrapes of all programs take a few hundredths."""

_LOWEST, _HIGHEST = 4 << 30, 60 << 30


@dataclass(frozen=True)
class Spike:
    """begin: seconds after the first interval began, in the interval `interval`; width: seconds; height: bytes."""

    gpu: str
    interval: int
    begin: float
    width: float
    height: int

    def fits(self, rise: float) -> bool:
        """Whether memory that rose by so much shows this spike."""
        return abs(rise - self.height) <= _TOLERANCE * self.height


def plan(gpus: Sequence[str], seed: int) -> list[Spike]:
    """OF_EACH spikes of each width at random times, at most one per GPU and interval."""
    dice = random.Random(seed)
    widths = [width for width in WIDTHS for _ in range(OF_EACH)]
    dice.shuffle(widths)
    places = [(interval, gpu) for interval in range(-(-len(widths) // len(gpus))) for gpu in gpus]
    spikes = []
    for width, (interval, gpu) in zip(widths, places, strict=False):
        begin = INTERVAL * interval + dice.uniform(_CLEAR, INTERVAL - width - _CLEAR)
        spikes.append(Spike(gpu, interval, begin, width, dice.randint(_LOWEST, _HIGHEST)))
    return spikes


@dataclass
class Score:
    """Spikes by width: those that were to be seen, were seen, or stood behind a higher one that was still shown.
    invented: values that no spike explains."""

    all: dict[float, int] = field(default_factory=dict)
    seen: dict[float, int] = field(default_factory=dict)
    hidden: dict[float, int] = field(default_factory=dict)
    invented: int = 0

    @property
    def missed(self) -> int:
        return sum(self.all.values()) - sum(self.seen.values()) - sum(self.hidden.values())


def score_peaks(spikes: Iterable[Spike], rises: Sequence[Mapping[str, float]]) -> Score:
    """rises: how far the peak of each GPU stood above its base, at the scrape that ended each interval."""
    score = Score()
    by_gpu: dict[str, list[Spike]] = {}
    for spike in spikes:
        by_gpu.setdefault(spike.gpu, []).append(spike)
    for interval, told in enumerate(rises):
        end = INTERVAL * (interval + 1)
        for gpu, rise in told.items():
            shown = [s for s in by_gpu.get(gpu, []) if end - INTERVAL - _SLACK <= s.begin + s.width and s.begin < end]
            explained = [s for s in shown if s.fits(rise)]
            score.invented += not explained and abs(rise) > _TOLERANCE * _LOWEST
            for spike in shown:
                if spike.interval == interval:
                    _count(score, spike, spike in explained, any(s.height > spike.height for s in explained))
    return score


def score_readings(spikes: Iterable[Spike], rises: Mapping[int, Sequence[Mapping[str, float]]]) -> Score:
    """rises: by interval, how far the memory of each GPU stood above its base at each scrape in it."""
    score = Score()
    for spike in spikes:
        told = (rise.get(spike.gpu, 0.0) for rise in rises.get(spike.interval, ()))
        _count(score, spike, any(spike.fits(rise) for rise in told), False)
    return score


def _count(score: Score, spike: Spike, seen: bool, hidden: bool) -> None:
    for counts, counted in ((score.all, True), (score.seen, seen), (score.hidden, hidden and not seen)):
        counts[spike.width] = counts.get(spike.width, 0) + counted
