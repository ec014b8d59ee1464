"""Recorded looks at real engines, and an engine whose looks a test makes up."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fakes import FakeClock
from oomcast.contract import Event
from oomcast_collectors.engine.counters import Counters
from oomcast_collectors.engine.hits import Hits
from oomcast_collectors.engine.reading import Count, Kind, Pool, Reading
from oomcast_collectors.engine.states import Health, States

FIXTURES = Path(__file__).parents[2] / "fixtures" / "engines"

_VALUE = re.compile(r"(\w+)\{?=([\d.]+)(?:\s|$)")
_COUNTS: Mapping[str, Count] = {
    "num_preemptions_total": "preemptions",
    "prompt_tokens_total": "prompt_tokens",
    "prefix_cache_queries_total": "queries",
    "prefix_cache_hits_total": "hits",
    "generation_tokens_total": "generation_tokens",
}


def recorded(name: str, kind: Kind) -> Iterator[tuple[float, Reading | None]]:
    """(seconds, reading) of each look of a file; None for one that failed."""
    for line in (FIXTURES / f"{name}.looks").read_text().splitlines():
        at, rest = line.split(" ", 1)
        yield float(at), None if rest.startswith("ERR") else _reading(rest, kind)


def _reading(text: str, kind: Kind) -> Reading:
    told = {name: float(value) for name, value in _VALUE.findall(text)}
    usage = told.get("kv_cache_usage_perc", told.get("token_usage"))
    return Reading(
        kind,
        (Pool(usage=usage),),
        running=told.get("num_requests_running", told.get("num_running_reqs")),
        waiting={"": told.get("num_requests_waiting", told.get("num_queue_reqs", 0.0))},
        counts={count: {"": told[name]} for name, count in _COUNTS.items() if name in told},
    )


class Engine:
    """One engine as the daemon sees it. `seen`: the states in the order in which they came."""

    def __init__(self, kind: Kind = "vllm", window: float = 300, min_queries: float = 10_000) -> None:
        self.clock = FakeClock()
        self.kind: Kind = kind
        self.counters = Counters()
        self.hits = Hits(window, min_queries)
        self.states = States("a", self.clock)
        self.events: list[Event] = []
        self.seen: list[str | None] = []
        self.totals: dict[Count, float] = {}

    @property
    def state(self) -> str | None:
        return self.states.state

    def take(self, reading: Reading | None, health: Health = "") -> str | None:
        """The state after one look, at the clock's time."""
        at = self.clock.monotonic()
        self.counters.look(reading, at)
        if reading is None:
            self.hits.look(None, None, at)
        else:
            self.hits.look(self.counters.total("queries"), self.counters.total("hits"), at)
        self.events += self.states.look(reading, at, self.counters, self.hits, health)
        if not self.seen or self.seen[-1] != self.state:
            self.seen.append(self.state)
        return self.state

    def replay(self, name: str) -> dict[float, str | None]:
        """The state at each look of a recording, by its seconds."""
        found = {}
        for at, reading in recorded(name, self.kind):
            self.clock.advance(1000.0 + at - self.clock.mono)
            found[at] = self.take(reading)
        return found

    def run(
        self,
        seconds: float,
        running: float | None = 1,
        waiting: float = 0,
        usage: float | None = 0.5,
        *,
        step: float = 1.0,
        health: Health = "",
        reason: str = "",
        rise: float = 0.0,
        queue_rise: float = 0.0,
        **rates: float,
    ) -> str | None:
        """Looks for so many seconds. rates: of the counts, per second. rise, queue_rise: of usage and queue."""
        for _ in range(round(seconds / step)):
            self.clock.advance(step)
            usage = None if usage is None else min(usage + rise * step, 1.0)
            waiting += queue_rise * step
            self.count(**{name: rate * step for name, rate in rates.items()})
            self.take(self.reading(running, waiting, usage, reason), health)
        return self.state

    def count(self, **gains: float) -> None:
        """The counts rise at once."""
        named: Mapping[Any, float] = gains
        for name, gain in named.items():
            self.totals[name] = self.totals.get(name, 0.0) + gain

    def reading(self, running: float | None, waiting: float, usage: float | None, reason: str = "") -> Reading:
        return Reading(
            self.kind,
            (Pool(usage=usage),),
            running=running,
            waiting={reason: waiting},
            counts={count: {"": total} for count, total in self.totals.items()},
        )

    def silent(self, seconds: float, health: Health = "") -> str | None:
        """Looks fail for so many seconds."""
        for _ in range(round(seconds)):
            self.clock.advance(1)
            self.take(None, health)
        return self.state
