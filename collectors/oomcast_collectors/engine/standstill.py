"""Since when an engine does not move, and whether it is a long prompt that it works on.

While an engine reads one long prompt, for a minute and more, its counters of tokens stand still. What moves is the
usage of its KV memory, or the number of tokens that it looked up in its cache: at once when it admits the prompt, or
by each chunk. Only where these stand still as well does nothing happen.
"""

from dataclasses import dataclass
from typing import NamedTuple

from oomcast_collectors.engine.counters import Counters
from oomcast_collectors.engine.reading import Count, Kind, Reading

_PROGRESS: tuple[Count, ...] = ("generation_tokens", "prompt_tokens", "queries", "finished")
_TOLD_LIVE: frozenset[Kind] = frozenset({"vllm", "lmdeploy", "dynamo"})
"""Engines that count each generated token as it comes; the others when the request ends, which tells no prefill."""

_USAGE_MOVED = 5e-4
"""Share of the pool: a block of 512 tokens in a pool of a million."""


class Still(NamedTuple):
    """stuck: seconds for which requests wait, none runs and nothing moves. frozen: seconds for which requests run and
    no token is generated. prompted: tokens looked up meanwhile. risen: of the usage (0 to 1) meanwhile. unmoved:
    seconds of them for which neither moved.

    None where the engine does not tell.
    """

    stuck: float | None = None
    frozen: float | None = None
    prompted: float | None = None
    risen: float | None = None
    unmoved: float = 0.0


@dataclass(slots=True)
class _Mark:
    """How things were when a token was last generated. moved: when queries or usage last moved."""

    at: float
    queries: float
    usage: float | None
    moved: float


class Standstill:
    def __init__(self) -> None:
        self._progress: tuple[float | None, ...] = ()
        self._usage: float | None = None
        self._stuck_since: float | None = None
        self._generated: float | None = None
        self._queries = 0.0
        self._mark: _Mark | None = None

    def look(
        self, reading: Reading, waiting: float | None, usage: float | None, counters: Counters, at: float
    ) -> Still:
        """waiting: requests. usage: 0 to 1. counters: have taken this reading. at: monotonic seconds."""
        progress = tuple(counters.total(what) for what in _PROGRESS)
        moved = self._moved(progress, usage)
        self._progress = progress
        told = any(total is not None for total in progress)
        stuck = self._stuck(reading.running, waiting, moved, at) if told else None
        if reading.kind not in _TOLD_LIVE:
            return Still(stuck)
        return self._frozen(reading.running, usage, counters, moved, at)._replace(stuck=stuck)

    def _moved(self, progress: tuple[float | None, ...], usage: float | None) -> bool:
        shifted = usage is not None and (self._usage is None or abs(usage - self._usage) >= _USAGE_MOVED)
        if shifted:
            self._usage = usage
        return shifted or progress != self._progress

    def _stuck(self, running: float | None, waiting: float | None, moved: bool, at: float) -> float | None:
        if running is None or waiting is None:
            return None
        if running or not waiting:
            self._stuck_since = None
        elif moved or self._stuck_since is None:
            self._stuck_since = at
        return 0.0 if self._stuck_since is None else at - self._stuck_since

    def _frozen(self, running: float | None, usage: float | None, counters: Counters, moved: bool, at: float) -> Still:
        generated, queries = counters.total("generation_tokens"), counters.total("queries") or 0.0
        previous, self._generated = self._generated, generated
        last_queries, self._queries = self._queries, queries
        if running is None or generated is None:
            self._mark = None
            return Still()
        if not running or generated != previous or self._mark is None:
            # A prompt that was admitted since the last look may be what the next ones wait for.
            self._mark = _Mark(at, queries if previous is None else last_queries, usage, at)
            return Still(frozen=0.0)
        mark = self._mark
        if moved:
            mark.moved = at
        risen = None if usage is None or mark.usage is None else usage - mark.usage
        # Engines without a prefix cache leave the counter at 0.
        return Still(None, at - mark.at, queries - mark.queries if queries else None, risen, at - mark.moved)
