"""One engine, looked at again and again in a thread of its own: a slow one costs nobody else anything."""

import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from oomcast.clock import Clock
from oomcast.contract import Facts
from oomcast.logs import OnChange
from oomcast_collectors import exposition_text
from oomcast_collectors.engine import admission, kinds
from oomcast_collectors.engine.counters import Counters
from oomcast_collectors.engine.detect import Place, kinds_of, places
from oomcast_collectors.engine.hits import Hits
from oomcast_collectors.engine.kinds.rows import Extra
from oomcast_collectors.engine.lengths import Shares
from oomcast_collectors.engine.reading import Kind, Reading
from oomcast_collectors.engine.settings import Endpoint, EngineSettings
from oomcast_collectors.engine.states import Health, States
from oomcast_collectors.engine.weights import TokenBytes
from oomcast_collectors.fetch import Fetcher, FetchError

_HEALTH_PERIOD = 5.0
_ASK_AGAIN = 60.0
"""Seconds between two requests for what does not change while an engine lives."""

_HEALTH_PATHS: Mapping[Kind, tuple[str, Health]] = {"vllm": ("/health", "dead"), "sglang": ("/health", "loading")}
"""Where 503 says more than that nobody answers."""


class UnknownEngine(Exception):
    """It answers, but no page of it has the metrics of any known engine."""


class EngineWatch:
    """name: what series call it. cgroup: of its process where that is on this machine, "" elsewhere.

    What is public is written by its thread and may be read by any; reading is None while the engine does not answer.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        name: str,
        settings: EngineSettings,
        clock: Clock,
        log: logging.Logger,
        push: Callable[[Facts], None],
        cgroup: str = "",
    ) -> None:
        self.name = name
        self.address = urlsplit(endpoint.url).netloc.rpartition("@")[2]
        self.cgroup = cgroup
        self.reading: Reading | None = None
        self.looked = False
        self.duration = 0.0
        self.errors: Counter[str] = Counter()
        self.malformed = 0
        self.cache_unit = ""
        """Of queries and hits, as the engine told it last."""
        self.counters = Counters()
        self.hits = Hits(settings.hit_window, settings.hit_min_queries)
        self.shares = Shares(settings.length_window)
        self.states = States(name, clock)
        self._endpoint = endpoint
        self._period = settings.period
        self._clock = clock
        self._push = push
        self._changes = OnChange(log, clock=clock)
        self._token_bytes = TokenBytes(
            endpoint.model_config_file, endpoint.cache_dtype, endpoint.tensor_parallel, self._changes
        )
        self._root = self._fetcher(_root_of(endpoint.url))
        self._page: Fetcher | None = None
        self._kinds: Sequence[Kind] = ()
        self._answers: dict[str, tuple[float, object]] = {}
        self._health: Health = ""
        self._health_at = 0.0
        self._moved_to = endpoint.url
        self._ended = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name=f"engine {self.name}", daemon=True).start()

    def stop(self) -> None:
        """Returns at once; a request that is under way is broken off."""
        self._ended.set()
        for fetcher in (self._root, self._page):
            if fetcher is not None:
                fetcher.close()

    def move(self, url: str, cgroup: str) -> None:
        """The same engine is at this address now."""
        self.cgroup = cgroup
        self._moved_to = url

    def _run(self) -> None:
        due = self._clock.monotonic()
        while not self._ended.is_set():
            try:
                self._look()
            except Exception as error:  # noqa: BLE001 - a page that trips us must not end the watch over this engine
                self._failed("defect", f"{type(error).__name__}: {error}", logging.ERROR)
            due = max(due + self._period, self._clock.monotonic())
            self._ended.wait(due - self._clock.monotonic())

    def _look(self) -> None:
        began = self._clock.monotonic()
        if self._moved_to != self._endpoint.url:
            self._follow(self._moved_to)
        try:
            reading = self._read(began)
        except FetchError as error:
            self._failed(error.kind, str(error))
        except UnknownEngine as error:
            self._failed("unknown", str(error))
        else:
            self._changes.report("look", "", logging.INFO, f"engine {self.name}: {reading.kind} at {self.address}")
            self._take(reading)
        self.duration = self._clock.monotonic() - began
        self.looked = True

    def _follow(self, url: str) -> None:
        self._root.close()
        if self._page is not None:
            self._page.close()
        self._page = None
        self._endpoint = self._endpoint.model_copy(update={"url": url})
        self._root = self._fetcher(_root_of(url))
        self.address = urlsplit(url).netloc.rpartition("@")[2]

    def _read(self, at: float) -> Reading:
        if self._page is None:
            self._find()
        reading = self._read_page()
        for kind in self._kinds:
            for extra in kinds.KINDS[kind].extras:
                reading = self._with_extra(extra, reading, at)
        return self._with_bytes(reading)

    def _find(self) -> None:
        """Raises FetchError where nothing answers, UnknownEngine where nobody known does."""
        error: FetchError | None = None
        for place in places(self._endpoint.url):
            page = self._fetcher(place.url)
            try:
                found = self._kinds_at(page, place)
            except FetchError as failed:
                error = error or failed
                page.close()
                if failed.kind in ("refused", "timeout"):
                    continue
            else:
                if found:
                    self._page, self._kinds = page, found
                    return
                page.close()
        if error is not None and error.kind != "status":
            raise error
        raise UnknownEngine(f"{self._root.name}: no metrics of a known engine; they may be switched off")

    def _kinds_at(self, page: Fetcher, place: Place) -> Sequence[Kind]:
        names = {line.name for line in exposition_text.read(page.get(), kinds.NAMES)}
        found = kinds_of(names)
        wanted = self._endpoint.kind or place.only
        if wanted is None:
            return found
        return (wanted, *(kind for kind in found if kind != wanted)) if wanted in found else ()

    def _read_page(self) -> Reading:
        assert self._page is not None
        wanted = frozenset().union(*(kinds.KINDS[kind].names for kind in self._kinds))
        page = exposition_text.read(self._page.get(), wanted)
        lines = list(page)
        self.malformed += page.malformed
        if not lines:
            # Another program may have taken its place.
            self._page.close()
            self._page = None
            raise UnknownEngine(f"{self._root.name}: the page has no metric of {self._kinds[0]} any more")
        return kinds.read(self._kinds, lines)

    def _with_extra(self, extra: Extra, reading: Reading, at: float) -> Reading:
        asked, answer = self._answers.get(extra.path, (None, None))
        if asked is None or extra.live or at - asked >= _ASK_AGAIN:
            try:
                answer = json.loads(self._root.get(extra.path))
            except FetchError as error:
                # It may have no such page, or be too busy: what was told before still holds, if it is no reading.
                answer = None if extra.live or error.kind == "status" else answer
            except (ValueError, RecursionError):
                answer = None
            self._answers[extra.path] = (at, answer)
        return reading if answer is None else extra.apply(answer, reading)

    def _with_bytes(self, reading: Reading) -> Reading:
        size = reading.bytes_per_token or self._token_bytes.get()
        if size is None:
            return reading
        tokens = admission.capacity(reading)
        whole = reading.capacity_bytes or (round(size * tokens) if tokens else None)
        return replace(reading, bytes_per_token=size, capacity_bytes=whole)

    def _take(self, reading: Reading) -> None:
        now = self._clock.monotonic()
        if self.counters.look(reading, now):
            self._answers.clear()
        self.hits.look(self.counters.total("queries"), self.counters.total("hits"), now)
        self.shares.look(self.counters.length_parts, reading.max_model_len, now)
        self.cache_unit = reading.cache_unit or self.cache_unit
        self.reading = reading
        self._judge(reading, now)

    def _failed(self, kind: str, text: str, level: int = logging.WARNING) -> None:
        self.errors[kind] += 1
        self._changes.report("look", kind, level, f"engine {self.name}: {text}")
        now = self._clock.monotonic()
        self.counters.look(None, now)
        self.hits.look(None, None, now)
        self._answers.clear()
        self.reading = None
        self._judge(None, now)

    def _judge(self, reading: Reading | None, now: float) -> None:
        if now - self._health_at >= _HEALTH_PERIOD or reading is None:
            self._health_at = now
            self._health = self._asked_health()
        events = self.states.look(reading, now, self.counters, self.hits, self._health)
        if events:
            self._push(Facts(events=events))

    def _asked_health(self) -> Health:
        path, meaning = _HEALTH_PATHS.get(self._kinds[0] if self._kinds else "envoy", ("", ""))
        if not path:
            return ""
        try:
            self._root.get(path)
        except FetchError as error:
            return meaning if error.status == 503 else ""
        return ""

    def _fetcher(self, url: str) -> Fetcher:
        one = self._endpoint
        return Fetcher(
            url, timeout=one.timeout, bearer_file=one.bearer_token_file, ca_file=one.ca_file, insecure=one.insecure
        )


def _root_of(url: str) -> str:
    return urlsplit(url)._replace(path="", query="", fragment="").geturl()
