"""What an engine serves: where its metrics are, what they say, and what its other pages add."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from oomcast.logs import OnChange
from oomcast_collectors import exposition_text
from oomcast_collectors.engine import admission, kinds
from oomcast_collectors.engine.detect import Place, kinds_of, places
from oomcast_collectors.engine.kinds.rows import Extra
from oomcast_collectors.engine.reading import Kind, Reading
from oomcast_collectors.engine.settings import Endpoint
from oomcast_collectors.engine.states import Health
from oomcast_collectors.engine.weights import TokenBytes
from oomcast_collectors.exposition_text import Known, Line
from oomcast_collectors.fetch import Fetcher, FetchError

_ASK_AGAIN = 60.0
"""Seconds between two requests for what does not change while an engine lives."""

_LONGEST_WAIT = 2.0
"""Seconds for each of the other pages: without them the reading says less, while it waits for them it says nothing."""

_NOT_SERVED = (404, 405)

_HEALTH_PATHS: Mapping[Kind, tuple[str, Health]] = {"vllm": ("/health", "dead"), "sglang": ("/health", "loading")}
"""Where 503 says more than that nobody answers."""


class UnknownEngine(Exception):
    """It answers, but no page of it has the metrics of any known engine."""


class Source:
    """One engine's pages; for one thread, but for `close`. latencies: whether they are wanted, which takes time in each
    look. malformed: lines so far that could not be read."""

    def __init__(self, endpoint: Endpoint, changes: OnChange, *, latencies: bool) -> None:
        self.malformed = 0
        self._latencies = latencies
        self._endpoint = endpoint
        self._token_bytes = TokenBytes(
            endpoint.model_config_file, endpoint.cache_dtype, endpoint.tensor_parallel, changes
        )
        self._root = self._other_pages()
        self._page: Fetcher | None = None
        self._kinds: Sequence[Kind] = ()
        self._known = Known()
        self._last: tuple[Sequence[Line], Reading] | None = None
        self._answers: dict[str, tuple[float, object]] = {}

    @property
    def url(self) -> str:
        return self._endpoint.url

    def move(self, url: str) -> None:
        """The engine is at this address now."""
        self.close()
        self._page = None
        self._endpoint = self._endpoint.model_copy(update={"url": url})
        self._root = self._other_pages()
        self.forget()

    def close(self) -> None:
        """Ends the connections, and a request that is under way; from any thread."""
        for fetcher in (self._root, self._page):
            if fetcher is not None:
                fetcher.close()

    def forget(self) -> None:
        """What holds while an engine lives is asked for anew."""
        self._answers.clear()

    def read(self, at: float) -> Reading:
        """One look. at: its monotonic seconds. Raises FetchError, UnknownEngine."""
        page = self._page or self._find()
        reading = self._read(page)
        for kind in self._kinds:
            for extra in kinds.KINDS[kind].extras:
                reading = self._with_extra(extra, reading, at)
        return self._with_bytes(reading)

    def health(self) -> Health:
        """What the engine says of itself, "" where it does not."""
        path, meaning = _HEALTH_PATHS.get(self._kinds[0], ("", "")) if self._kinds else ("", "")
        if not path:
            return ""
        try:
            self._root.get(path)
        except FetchError as error:
            return meaning if error.status == 503 else ""
        return ""

    def _find(self) -> Fetcher:
        """Raises FetchError where nothing answers as it should, UnknownEngine where nobody known does."""
        failed: FetchError | None = None
        silent: set[str] = set()
        for place in places(self._endpoint.url):
            address = urlsplit(place.url).netloc
            if address in silent:
                continue
            page = self._fetcher(place.url, self._endpoint.timeout)
            try:
                found = self._kinds_at(page, place)
            except FetchError as error:
                if error.status not in _NOT_SERVED:
                    failed = failed or error
                if error.kind != "status":
                    silent.add(address)
            else:
                if found:
                    self._page, self._kinds = page, found
                    self._known, self._last = Known(), None
                    return page
            page.close()
        raise failed or UnknownEngine(f"{self._root.name}: no metrics of a known engine; they may be switched off")

    def _kinds_at(self, page: Fetcher, place: Place) -> Sequence[Kind]:
        names = {line.name for line in exposition_text.read(page.get(), kinds.NAMES)}
        found = kinds_of(names)
        wanted = self._endpoint.kind or place.only
        if wanted is None:
            return found
        return (wanted, *(kind for kind in found if kind != wanted)) if wanted in found else ()

    def _read(self, fetcher: Fetcher) -> Reading:
        tables = [kinds.KINDS[kind] for kind in self._kinds]
        wanted = frozenset().union(*(table.names for table in tables))
        if not self._latencies:
            wanted = wanted.difference(*(table.latency_names for table in tables))
        page = exposition_text.read(fetcher.get(), wanted, known=self._known)
        lines = list(page)
        self.malformed += page.malformed
        if self._last is not None and lines == self._last[0]:
            # An idle engine.
            return self._last[1]
        if self._kinds[0] not in kinds_of({line.name for line in lines}):
            # Another program may have taken its place.
            fetcher.close()
            self._page = None
            raise UnknownEngine(f"{self._root.name}: the page is not of {self._kinds[0]} any more")
        reading = kinds.read(self._kinds, lines)
        self._last = lines, reading
        return reading

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

    def _other_pages(self) -> Fetcher:
        root = urlsplit(self._endpoint.url)._replace(path="", query="", fragment="").geturl()
        return self._fetcher(root, min(self._endpoint.timeout, _LONGEST_WAIT))

    def _fetcher(self, url: str, timeout: float) -> Fetcher:
        one = self._endpoint
        return Fetcher(
            url, timeout=timeout, bearer_file=one.bearer_token_file, ca_file=one.ca_file, insecure=one.insecure
        )
