"""Logs of a test's own, a collector over them, and what it found."""

import logging
import queue
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oomcast.clock import Clock, SystemClock
from oomcast.contract import Context, Event, Facts, Roots
from oomcast_collectors.engine_log import SPEC, EngineLogCollector
from oomcast_collectors.engine_log.matcher import Hit, Matcher
from oomcast_collectors.engine_log.rules import SHIPPED, Rule

FIXTURES = Path(__file__).parents[2] / "fixtures" / "engine_log"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def matcher(rules: Sequence[Rule] = SHIPPED) -> Matcher:
    return Matcher(rules, lambda rule, seconds: None)


def found(line: bytes, rules: Sequence[Rule] = SHIPPED) -> list[Hit]:
    """What a line is, as it is found in a log with nothing else in it."""
    made = matcher(rules)
    block = b"nothing\n" + line + b"\nnothing\n"
    spans = list(made.candidates(block))
    assert spans in ([], [(8, 8 + len(line))])
    return made.match(line.decode()) if spans else []


class Bench:
    """Collectors that are stopped at the end, and the events that they pushed."""

    def __init__(self, pods: Path) -> None:
        self._pods = pods
        self._events: queue.Queue[Event] = queue.Queue()
        self._made: list[EngineLogCollector] = []

    def collector(self, clock: Clock | None = None, **settings: Any) -> EngineLogCollector:
        log = logging.getLogger("engine_log")
        context = Context(Roots(pods=self._pods), clock or SystemClock(), log, self._push)
        made = SPEC.create(SPEC.settings.model_validate(settings), context)
        assert isinstance(made, EngineLogCollector)
        self._made.append(made)
        return made

    def event(self) -> Event:
        """The next event; fails after ten seconds without one."""
        return self._events.get(timeout=10)

    def events(self) -> list[Event]:
        """Those that were pushed since the last call."""
        return [self._events.get() for _ in range(self._events.qsize())]

    def close(self) -> None:
        for collector in self._made:
            collector.stop(time.monotonic() + 2)

    def _push(self, facts: Facts) -> None:
        for event in facts.events:
            self._events.put(event)


def values(collector: EngineLogCollector) -> dict[str, float]:
    """The samples of one run, by name and labels, without the prefix that all share."""
    samples = collector.collect().samples
    named = {s.series.head.strip().removeprefix("oomcast_log_"): s.value for s in samples}
    assert len(named) == len(samples)
    return {name: value for name, value in named.items() if isinstance(value, int | float)}
