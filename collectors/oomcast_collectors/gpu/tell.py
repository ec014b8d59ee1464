"""What is known of a GPU, as samples. Series are made once per GPU, since they keep the text of their last value."""

from collections.abc import Iterator

from oomcast.clock import Clock
from oomcast.metric import Metric, Sample, Series
from oomcast_collectors.gpu import metrics
from oomcast_collectors.gpu.card import Card, Slice
from oomcast_collectors.gpu.driver import Identity, Memory
from oomcast_collectors.gpu.window import View

_MEMORY = (metrics.USED, metrics.FREE, metrics.RESERVED, metrics.TOTAL)
_MIG_MEMORY = (metrics.MIG_USED, metrics.MIG_FREE, metrics.MIG_RESERVED, metrics.MIG_TOTAL)


class Teller:
    """Of one GPU. driver: its version; source: nvml or dcgm. All from the collector's run but for `peaks`."""

    def __init__(self, card: Card, clock: Clock, source: str) -> None:
        self._card = card
        self._clock = clock
        self._source = source
        self._series: dict[tuple[Metric, str], Series] = {}

    def samples(self, driver: str) -> Iterator[Sample]:
        """All that is known now."""
        card, now = self._card, self._clock.monotonic()
        state = card.state
        yield self._of(metrics.UP, int(state == "ok"))
        yield self._of(metrics.STATE, state)
        stuck_since = card.stuck_since
        if stuck_since is not None:
            since = self._clock.time() - (now - stuck_since)
            yield self._of(metrics.STUCK_SINCE, round(since, 1))  # two clocks, read one after the other
        if card.identity is not None:
            yield Sample(self._info(card.identity, driver), 1)
        yield from self._memory(now)
        for row, ratio in zip((metrics.UTILIZATION, metrics.COPY), card.utilization(), strict=True):
            if ratio is not None:
                yield self._of(row, ratio)
        if state != "stuck":  # else nobody could tell that they are old
            yield from card.fields.samples()
        yield from self._errors()
        for part in card.slices:
            yield from self._instance(part, now)

    def peaks(self, now: float) -> list[Sample]:
        """What may have to be told between two runs."""
        view = self._card.track.view(now)
        return self._peaks(view) if view and self._card.track.fresh(now) else []

    def _peaks(self, view: View) -> list[Sample]:
        return [self._of(metrics.USED_PEAK, view.peak), self._of(metrics.FREE_MIN, view.free_min)]

    def _memory(self, now: float) -> Iterator[Sample]:
        track, window = self._card.track, self._card.track.window
        memory, view = track.fresh(now), track.view(now)
        if memory and view:
            yield from self._parts(_MEMORY, memory)
            yield from self._peaks(view)
            yield from self._sampling(view)
            if window.plateau is not None:
                yield self._of(metrics.PLATEAU, window.plateau)
                yield self._of(metrics.PLATEAU_HEADROOM, window.usable - window.plateau)
        if track.ever_read:
            yield self._of(metrics.EXHAUSTED_SECONDS, window.exhausted_seconds)
            yield self._of(metrics.EXHAUSTIONS, window.exhaustions)
            if self._source == "nvml":
                yield self._of(metrics.CALL_SECONDS, self._card.call_seconds)

    def _sampling(self, view: View) -> Iterator[Sample]:
        yield self._of(metrics.LARGEST_STEP, view.step)
        yield self._of(metrics.LARGEST_GAP, view.largest_gap)
        if view.period is not None:
            yield self._of(metrics.PERIOD, view.period)

    def _parts(self, rows: tuple[Metric, ...], memory: Memory, instance: str = "") -> Iterator[Sample]:
        for row, value in zip(rows, (memory.used, memory.free, memory.reserved, memory.total), strict=True):
            if value is not None:
                yield self._of(row, value, instance)

    def _errors(self) -> Iterator[Sample]:
        card = self._card
        if self._source == "nvml":
            yield self._of(metrics.HANDOVERS, card.handovers)
            yield self._of(metrics.UNSUPPORTED, len(card.unsupported) + card.fields.unsupported)
        for metric, counts in ((metrics.READ_ERRORS, card.all_errors), (metrics.INVALID, card.all_invalid)):
            for field, count in counts.items():
                yield self._of(metric, count, field)

    def _instance(self, part: Slice, now: float) -> Iterator[Sample]:
        memory = part.track.fresh(now)
        instance = str(part.instance.instance)
        yield Sample(metrics.MIG_INFO.series(self._card.uuid, instance, part.instance.uuid, part.instance.profile), 1)
        if memory is None:
            return
        yield from self._parts(_MIG_MEMORY, memory, instance)
        view = part.track.view(now)
        if view is not None:
            yield self._of(metrics.MIG_USED_PEAK, view.peak, instance)

    def _info(self, identity: Identity, driver: str) -> Series:
        persistence = {True: "on", False: "off", None: ""}[identity.persistence]
        return metrics.INFO.series(
            self._card.uuid,
            str(identity.index),
            identity.name,
            identity.pci,
            driver,
            self._source,
            identity.memory_api,
            self._card.kind,
            identity.addressing,
            persistence,
            "on" if identity.mig else "off",
        )

    def _of(self, metric: Metric, value: float | str, second: str = "") -> Sample:
        return Sample(self._named(metric, second), value)

    def _named(self, metric: Metric, second: str) -> Series:
        series = self._series.get((metric, second))
        if series is None:
            labels = (self._card.uuid, second) if len(metric.labels) > 1 else (self._card.uuid,)
            series = self._series[metric, second] = metric.series_of(labels)
        return series
