"""What became of an engine's objectives, as far as its histograms tell."""

from collections.abc import Mapping

from oomcast.metric import Sample
from oomcast.slo import Slo
from oomcast_collectors.engine.distribution import Distribution
from oomcast_collectors.engine.latencies import Gains, Latencies
from oomcast_collectors.engine.length_totals import Bounds
from oomcast_collectors.engine.reading import Lengths, Reading
from oomcast_collectors.slo.book import Book
from oomcast_collectors.slo.histograms import Histograms


class Objectives:
    """engine: what its series are called by. window: seconds. Not safe for threads; `at` is in monotonic seconds."""

    def __init__(self, slo: Slo, engine: str, window: float) -> None:
        self._set = slo.has_objectives
        self._book = Book(slo, engine, "histograms", window)
        self._histograms = Histograms(slo, self._book)
        self._latencies = Latencies()
        self._lengths = Gains()

    def look(
        self, parts: Mapping[Bounds, Lengths], reading: Reading, restarted: bool, longest: float, at: float
    ) -> None:
        """Takes one look's reading. parts: totals of prompt lengths over all lives, by their bounds. restarted: whether
        this look saw a restart. longest: tokens that no prompt exceeds."""
        if self._set:
            latencies = self._latencies.look(reading.latencies, restarted, at)
            self._histograms.look(self._lengths.look(parts), latencies, reading.paired, at, longest)

    def samples(self, prompts: Distribution, at: float) -> list[Sample]:
        """prompts: of the window."""
        return self._book.samples(at, prompts.shares, prompts.score)
