"""What is known of an engine, as samples. Series are made once per engine, since they keep the text of their values."""

from collections.abc import Iterator, Mapping

from oomcast.metric import Histogram, Metric, Sample, Series, go_float
from oomcast_collectors.engine import admission, metrics
from oomcast_collectors.engine.reading import Count, Lengths, Reading
from oomcast_collectors.engine.watch import EngineWatch

_COUNTS: tuple[tuple[Metric, Count], ...] = (
    (metrics.QUERIES, "queries"),
    (metrics.HITS, "hits"),
    (metrics.PREEMPTIONS, "preemptions"),
    (metrics.EVICTED, "evicted"),
    (metrics.CORRUPTED, "corrupted"),
    (metrics.PROMPT_TOKENS, "prompt_tokens"),
    (metrics.GENERATION_TOKENS, "generation_tokens"),
    (metrics.RETRIES, "retries"),
)
_SPLIT_COUNTS: tuple[tuple[Metric, Count], ...] = (
    (metrics.FINISHED, "finished"),
    (metrics.HTTP, "http"),
    (metrics.REJECTED, "rejected"),
    (metrics.SHORT, "short"),
)


class Teller:
    """Of one engine."""

    def __init__(self, watch: EngineWatch) -> None:
        self._watch = watch
        self._series: dict[tuple[Metric, tuple[str, ...]], Series] = {}

    def samples(self) -> list[Sample]:
        """All that is known now; of one that does not answer its counters stay, since nothing is told by them."""
        with self._watch.lock:
            return list(self._known()) if self._watch.looked else []

    def _known(self) -> Iterator[Sample]:
        watch = self._watch
        reading = watch.reading
        yield self._of(metrics.UP, int(reading is not None))
        if watch.states.state is not None:
            yield self._of(metrics.STATE, watch.states.state)
        yield self._of(metrics.RESTARTS, watch.counters.restarts)
        yield self._of(metrics.SCRAPE_SECONDS, watch.duration)
        yield self._of(metrics.SCRAPE_INVALID, watch.malformed)
        for reason, count in dict(watch.errors).items():
            yield self._of(metrics.SCRAPE_ERRORS, count, reason)
        if reading is not None:
            yield Sample(self._info(reading), 1)
            yield from self._pool(reading)
            yield from self._queue(reading)
        yield from self._counters()
        yield from watch.objectives.samples(watch.distribution, watch.looked_at)

    def _pool(self, reading: Reading) -> Iterator[Sample]:
        fits = admission.longest_fits(reading)
        values: tuple[tuple[Metric, float | None], ...] = (
            (metrics.USAGE, admission.usage(reading)),
            (metrics.CAPACITY, admission.capacity(reading)),
            (metrics.HEADROOM, admission.headroom(reading)),
            (metrics.LARGEST, admission.largest_request(reading)),
            (metrics.BYTES_PER_TOKEN, reading.bytes_per_token),
            (metrics.CAPACITY_BYTES, reading.capacity_bytes),
            (metrics.MAX_MODEL_LEN, reading.max_model_len),
            (metrics.FITS, None if fits is None else int(fits)),
            (metrics.HIT_RATIO, self._watch.hits.ratio),
        )
        for metric, value in values:
            if value is not None:
                yield self._of(metric, value)

    def _queue(self, reading: Reading) -> Iterator[Sample]:
        if reading.running is not None:
            yield self._of(metrics.RUNNING, reading.running)
        for reason, count in reading.waiting.items():
            yield self._of(metrics.WAITING, count, reason)
        if reading.breaker_open is not None:
            yield self._of(metrics.BREAKER, int(reading.breaker_open))
        yield from self._prompts()

    def _prompts(self) -> Iterator[Sample]:
        watch = self._watch
        recent = watch.prompts.recent(watch.looked_at)
        for tokens, share in recent.shares().items() if recent is not None else ():
            yield self._of(metrics.SHARE, share.lower, str(tokens), "lower")
            yield self._of(metrics.SHARE, share.upper, str(tokens), "upper")
        fitted = watch.distribution.fit
        if fitted is not None:
            yield self._of(metrics.MU, fitted.mu)
            yield self._of(metrics.SIGMA, fitted.sigma)
            yield self._of(metrics.DISTANCE, fitted.distance)
        for tokens, above in watch.distribution.above().items():
            yield self._of(metrics.FITTED_SHARE, above, str(tokens))

    def _counters(self) -> Iterator[Sample]:
        counters = self._watch.counters
        # In a unit that is not known they are good for a ratio and nothing else.
        untold = ("queries", "hits") if not self._watch.cache_unit else ()
        for metric, what in _COUNTS:
            total = counters.total(what)
            if total is not None and what not in untold:
                yield self._of(metric, total)
        for metric, what in _SPLIT_COUNTS:
            for value, total in counters.values(what).items():
                yield self._of(metric, total, value)
        lengths = counters.lengths
        if lengths is not None:
            yield Sample(self._named(metrics.PROMPT_LENGTHS, ()), _histogram(lengths))

    def _info(self, reading: Reading) -> Series:
        watch = self._watch
        exact = {pool.exact for pool in reading.pools if pool.capacity is not None}
        capacity = {frozenset({True}): "exact", frozenset(): ""}.get(frozenset(exact), "approximate")
        known: Mapping[str, str] = {
            "kind": reading.kind,
            "version": reading.version,
            "model": reading.model,
            "address": watch.address,
            "capacity": capacity,
            "cache_unit": reading.cache_unit,
            "cgroup": watch.cgroup,
        }
        return self._named(metrics.INFO, tuple(known[label] for label in metrics.INFO.labels[1:]))

    def _of(self, metric: Metric, value: float | str, *labels: str) -> Sample:
        return Sample(self._named(metric, labels), value)

    def _named(self, metric: Metric, labels: tuple[str, ...]) -> Series:
        series = self._series.get((metric, labels))
        if series is None:
            series = self._series[metric, labels] = metric.series_of((self._watch.name, *labels))
        return series


def _histogram(lengths: Lengths) -> Histogram:
    return Histogram(tuple((go_float(bound), count) for bound, count in lengths.buckets), lengths.sum)
