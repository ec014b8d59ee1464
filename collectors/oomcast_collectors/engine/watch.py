"""One engine, looked at again and again in a thread of its own: a slow one costs nobody else anything."""

import logging
import math
import threading
from collections import Counter
from urllib.parse import urlsplit

from oomcast.contract import Context, Facts
from oomcast.logs import OnChange
from oomcast_collectors.engine.counters import Counters
from oomcast_collectors.engine.distribution import Distribution
from oomcast_collectors.engine.hits import Hits
from oomcast_collectors.engine.lengths import LengthWindow
from oomcast_collectors.engine.objectives import Objectives
from oomcast_collectors.engine.reading import Reading
from oomcast_collectors.engine.settings import Endpoint, EngineSettings
from oomcast_collectors.engine.source import Source, UnknownEngine
from oomcast_collectors.engine.states import Health, States
from oomcast_collectors.fetch import FetchError

_HEALTH_PERIOD = 5.0


class EngineWatch:
    """name: what series call it. cgroup: of its process where that is on this machine, "" elsewhere.

    What is public is written by its thread under `lock`, under which any other may read it. reading: None while the
    engine does not answer. looked: False before the end of the first look, when nothing is known. looked_at: when the
    last look ended, monotonic.
    """

    def __init__(
        self, endpoint: Endpoint, name: str, settings: EngineSettings, context: Context, cgroup: str = ""
    ) -> None:
        clock, slo = context.clock, context.slo
        self.lock = threading.Lock()
        self.name = name
        self.address = _address_of(endpoint.url)
        self.cgroup = cgroup
        self.reading: Reading | None = None
        self.looked = False
        self.looked_at = 0.0
        self.duration = 0.0
        self.errors: Counter[str] = Counter()
        self.malformed = 0
        self.cache_unit = ""
        """Of queries and hits, as the engine told it last."""
        self.counters = Counters()
        self.hits = Hits(settings.hit_window, settings.hit_min_queries)
        self.prompts = LengthWindow(settings.length_window)
        self.distribution = Distribution(slo)
        self.objectives = Objectives(slo, name, settings.length_window)
        self.states = States(name, clock)
        self._period = settings.period
        self._clock = clock
        self._push = context.push
        self._changes = OnChange(context.log, clock=clock)
        self._source = Source(endpoint, self._changes, latencies=slo.has_objectives)
        self._health: Health = ""
        self._health_at: float | None = None
        self._moved_to = endpoint.url
        self._ended = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name=f"engine {self.name}", daemon=True).start()

    def stop(self) -> None:
        """Returns at once; a request that is under way is broken off."""
        self._ended.set()
        self._source.close()

    def move(self, url: str, cgroup: str) -> None:
        """The same engine is at this address now."""
        self.cgroup = cgroup
        self._moved_to = url

    def look(self) -> None:
        """One look, in the thread that was started, or in place of it."""
        began = self._clock.monotonic()
        try:
            if self._moved_to != self._source.url:
                self._source.move(self._moved_to)
            self._take(self._source.read(began), began)
        except (FetchError, UnknownEngine) as error:
            kind = error.kind if isinstance(error, FetchError) else "unknown"
            self._failed(kind, str(error), logging.WARNING, began)
        except Exception as error:  # noqa: BLE001 - a page that trips us must not end the watch over this engine
            self._failed("defect", f"{type(error).__name__}: {error}", logging.ERROR, began)

    def _run(self) -> None:
        due = self._clock.monotonic()
        while not self._ended.is_set():
            self.look()
            due = max(due + self._period, self._clock.monotonic())
            self._ended.wait(due - self._clock.monotonic())

    def _take(self, reading: Reading, began: float) -> None:
        now = self._clock.monotonic()
        # What moves is alive; of an engine that died the page stands still for a while before it goes.
        if reading != self.reading:
            self._health = ""
        elif self._health_at is None or now - self._health_at >= _HEALTH_PERIOD:
            self._health, self._health_at = self._source.health(), now
        with self.lock:
            self.address = _address_of(self._source.url)
            restarted = self.counters.look(reading, now)
            if restarted:
                self._source.forget()
            self.hits.look(self.counters.total("queries"), self.counters.total("hits"), now)
            lengths = self.counters.length_parts
            self.prompts.look(lengths, reading.max_model_len, now)
            self.distribution.look(self.prompts.recent(now), now)
            longest = math.inf if reading.max_model_len is None else reading.max_model_len
            self.objectives.look(lengths, reading, restarted, longest, now)
            self.cache_unit = reading.cache_unit or self.cache_unit
            self._conclude(reading, began, now)
        self._changes.report("look", "", logging.INFO, f"engine {self.name}: {reading.kind} at {self.address}")

    def _failed(self, kind: str, text: str, level: int, began: float) -> None:
        if self._ended.is_set():
            return
        now = self._clock.monotonic()
        # Where nobody listens there is nobody to ask.
        self._health = "" if kind == "refused" else self._source.health()
        self._source.forget()
        with self.lock:
            self.errors[kind] += 1
            self.counters.look(None, now)
            self.hits.look(None, None, now)
            self.distribution.look(self.prompts.recent(now), now)
            self._conclude(None, began, now)
        self._changes.report("look", kind, level, f"engine {self.name}: {text}")

    def _conclude(self, reading: Reading | None, began: float, now: float) -> None:
        self.reading = reading
        self.looked = True
        self.looked_at = now
        self.duration = now - began
        self.malformed = self._source.malformed
        health: Health = "asleep" if reading and reading.asleep else self._health
        events = self.states.look(reading, now, self.counters, self.hits, health)
        if events:
            self._push(Facts(events=events))


def _address_of(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]
