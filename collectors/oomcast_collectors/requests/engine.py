"""What the messages about one engine add up to."""

from collections.abc import Iterable
from itertools import product

from oomcast.metric import Metric, Sample
from oomcast_collectors.requests import metrics
from oomcast_collectors.requests.message import Message
from oomcast_collectors.requests.prompts import Prompts, edges
from oomcast_collectors.slo.book import Book
from oomcast_collectors.slo.classes import Classes


class EngineTotals:
    """book: None where no class has an objective. created: UTC seconds. heard: monotonic time of the last message."""

    def __init__(self, name: str, classes: Classes, book: Book | None, created: float) -> None:
        self._classes = classes
        self._book = book
        self._created = created
        self._prompts = Prompts(edges(classes.ends))
        self._prompts_series = metrics.PROMPT_TOKENS.series(name)
        every = (*classes.names, metrics.UNKNOWN)
        known = product(classes.names, metrics.CODES)
        # A request whose length is unknown has failed, whatever else it is.
        unknown = product((metrics.UNKNOWN,), ("4xx", "5xx"))
        self._responses = _Counts(metrics.RESPONSES, name, (*known, *unknown))
        self._empty = _Counts(metrics.EMPTY, name, product(every))
        self._untraced = _Counts(metrics.UNTRACED, name, product(every))
        self._output = _Counts(metrics.OUTPUT_TOKENS, name, ((),))
        self._cached = _Counts(metrics.CACHED_TOKENS, name, ((),))
        self._unidentified = _Counts(metrics.UNIDENTIFIED, name, product(("user", "tenant")))
        self._retries = _Counts(metrics.RETRIES, name, ((),))
        self._breaker = _Counts(metrics.BREAKER, name, product(metrics.BREAKER_STATES))
        self.heard = 0.0

    def add(self, message: Message, at: float, time: float) -> None:
        """at: monotonic seconds; time: the same moment in UTC."""
        self.heard = at
        trace = message.trace
        up_to = metrics.UNKNOWN
        if message.prompt_tokens is not None:
            up_to = self._classes.names[self._classes.place(message.prompt_tokens)]
            self._prompts.add(message.prompt_tokens, trace, time)
            self._judge(message, message.prompt_tokens, at)
        self._responses.add(1, up_to, metrics.CODES[max(message.status // 100, 2) - 2])
        if message.without_content:
            self._empty.add(1, up_to)
        if trace is None:
            self._untraced.add(1, up_to)
        self._output.add(message.output_tokens or 0)
        self._cached.add(message.cached_tokens or 0)
        self._retries.add(message.retries or 0)
        if message.user is False:
            self._unidentified.add(1, "user")
        if message.tenant is False:
            self._unidentified.add(1, "tenant")
        if message.breaker is not None:
            self._breaker.add(1, message.breaker)

    def samples(self, at: float) -> list[Sample]:
        """at: monotonic seconds."""
        counts = (self._responses, self._empty, self._untraced, self._output, self._cached)
        found = [Sample(self._prompts_series, self._prompts.histogram(), self._created)]
        for one in (*counts, self._unidentified, self._retries, self._breaker):
            found += one.samples(self._created)
        if self._book is not None:
            found += self._book.samples(at)
        return found

    def _judge(self, message: Message, prompt_tokens: int, at: float) -> None:
        # What the engine refused with 4xx was never promised.
        if self._book is not None and not 400 <= message.status < 500:
            failed = message.status >= 500 or message.without_content
            self._book.request(prompt_tokens, message.ttft_seconds, message.e2e_seconds, at, failed=failed)


class _Counts:
    """One counter of an engine: by the values of its other labels, all of them from 0 on."""

    def __init__(self, metric: Metric, engine: str, values: Iterable[tuple[str, ...]]) -> None:
        self._series = {value: metric.series(engine, *value) for value in values}
        self._counts = dict.fromkeys(self._series, 0)

    def add(self, count: int, *value: str) -> None:
        self._counts[value] += count

    def samples(self, created: float) -> list[Sample]:
        return [Sample(series, self._counts[value], created) for value, series in self._series.items()]
