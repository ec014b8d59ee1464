"""What was found in the logs: counts by rule and engine, and a bounded stream of events."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from oomcast.clock import Clock
from oomcast.contract import Event
from oomcast.metric import Sample, Series
from oomcast_collectors.engine_log import metrics
from oomcast_collectors.engine_log.lines import Line, Tally
from oomcast_collectors.engine_log.matcher import Hit, Matcher
from oomcast_collectors.engine_log.rules import Rule

_EVENTS = 20
_EVENTS_OF_A_KIND = 5  # of a second's events: a storm of one rule must not hide another
_AHEAD = 1.0  # seconds by which a stamp may be later than now, clocks being what they are


class Source(NamedTuple):
    """Where lines come from. fields: what its events say of it."""

    engine: str
    tally: Tally
    fields: Mapping[str, str]


class Findings:
    """Fed by the watch's thread, asked for samples by the collector's. push: is given each event at once."""

    def __init__(self, rules: Sequence[Rule], clock: Clock, log: logging.Logger, push: Callable[[Event], None]) -> None:
        self._clock: Final = clock
        self._log: Final = log
        self._push: Final = push
        self._created: Final = clock.time()
        self._counted: Final = tuple(rule.name for rule in rules if rule.severity != "info")
        self._matcher: Final = Matcher(rules, self._switch_off)
        self._disabled = 0
        self._disabled_series: Final = metrics.RULES_DISABLED.series()
        self._engines: dict[str, tuple[Tally, tuple[Series, ...]]] = {}
        self._second = 0
        self._told: dict[tuple[str, str], int] = {}

    def engine(self, name: str) -> tuple[str, Tally]:
        """The name to count under, and the counts, which are there at 0 from the first call on."""
        if name not in self._engines and len(self._engines) >= metrics.MAX_ENGINES:
            name = metrics.OTHER
        if name not in self._engines:
            tally = Tally(events=dict.fromkeys(self._counted, 0))
            reading = (metrics.LINES, metrics.CUT, metrics.SKIPPED, metrics.READ_ERRORS)
            series = (
                *(metric.series(name) for metric in reading),
                *(metrics.EVENTS.series(rule, name) for rule in self._counted),
            )
            self._engines[name] = (tally, series)
        return name, self._engines[name][0]

    def scan(self, block: bytes, moment: float, source: Source, unwrap: Callable[[bytes], Line]) -> None:
        """Whole lines of a source. moment: UTC seconds of when they were written, for lines without a stamp."""
        for begin, end in self._matcher.candidates(block):
            line = unwrap(block[begin:end])
            for hit in self._matcher.match(line.text):
                self._take(hit, line.time, moment, source)

    def samples(self) -> list[Sample]:
        samples = [Sample(self._disabled_series, self._disabled)]
        for tally, series in tuple(self._engines.values()):
            counts = (tally.lines, tally.cut, tally.skipped, tally.errors, *tally.events.values())
            samples += [Sample(s, count, self._created) for s, count in zip(series, counts, strict=True)]
        return samples

    def _take(self, hit: Hit, stamp: float | None, moment: float, source: Source) -> None:
        rule = hit.rule
        if rule.severity != "info":
            source.tally.events[rule.name] += 1
        if not self._may_tell((rule.name, source.engine)):
            return
        now = self._clock.time()
        time = moment if stamp is None or stamp > now + _AHEAD else stamp
        self._push(
            Event(
                "engine_log",
                time,
                self._clock.monotonic() - max(0.0, now - time),
                f"{source.engine}: {rule.name}: {hit.literal.strip()}",
                {
                    "rule": rule.name,
                    "engine": source.engine,
                    "severity": rule.severity,
                    "literal": hit.literal,
                    **source.fields,
                    **hit.numbers,
                },
            )
        )

    def _may_tell(self, kind: tuple[str, str]) -> bool:
        second = int(self._clock.monotonic())
        if second != self._second:
            self._second = second
            self._told.clear()
        if sum(self._told.values()) >= _EVENTS or self._told.get(kind, 0) >= _EVENTS_OF_A_KIND:
            return False
        self._told[kind] = self._told.get(kind, 0) + 1
        return True

    def _switch_off(self, rule: Rule, seconds: float) -> None:
        self._disabled += 1
        self._log.error("rule %s is not used any more: it took %.2f s over one line", rule.name, seconds)
