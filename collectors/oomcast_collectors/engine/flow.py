"""How fast an engine works beside how fast it used to, and whether its queue grows."""

from collections import deque
from statistics import median
from typing import NamedTuple

from oomcast_collectors.engine.counters import Counters
from oomcast_collectors.engine.history import Past

RATE_SPAN = 15.0
"""Seconds over which generated tokens per second are computed: long enough for engines that tell them in bursts."""

PREEMPTION_SPAN = 60.0
"""Seconds: preemptions come in waves, and one wave is over sooner."""

QUEUE_SPAN = 60.0
"""Seconds: two halves in each of which a queue that piles up has grown, while one that breathes has not."""

COMPLETION_SPAN = 60.0
"""Seconds; what was completed in them is compared with the two such spans before."""

_LEAST_RATE_SPAN = 5.0
_CALM_STEP = 5.0
_CALM_STEPS = 60
_FEWEST_CALM = 6
"""Half a minute of generation without preemption, before anything is called a fall."""


class Flow(NamedTuple):
    """rate: generated tokens per second; calm: what it is without preemptions; preempted: in PREEMPTION_SPAN.

    None where the engine does not tell, or was not watched for long enough.
    """

    rate: float | None = None
    calm: float | None = None
    preempted: float | None = None


class Throughput:
    """What is calm is the median over the last five minutes that were, without those of a prompt's prefill alone.

    It does not sink while an engine thrashes.
    """

    def __init__(self) -> None:
        self._generated = Past[float](RATE_SPAN, 15)
        self._preempted = Past[float](PREEMPTION_SPAN, 30)
        self._calm = deque[float](maxlen=_CALM_STEPS)
        self._mark: tuple[float, float] | None = None

    def look(self, busy: bool, counters: Counters, at: float) -> Flow:
        """busy: requests are running. counters: have taken this look's reading. at: monotonic seconds."""
        generated, total = counters.total("generation_tokens"), counters.total("preemptions")
        preempted = None if total is None else _gained(self._preempted, total, at, PREEMPTION_SPAN)
        if generated is None:
            return Flow(preempted=preempted)
        self._generated.add(at, generated)
        before = self._generated.before(at - RATE_SPAN)
        rate = None
        if before is not None and at - before.at >= _LEAST_RATE_SPAN:
            rate = (generated - before.value) / (at - before.at)
        self._learn(generated, busy and not preempted, at)
        return Flow(rate, median(self._calm) if len(self._calm) >= _FEWEST_CALM else None, preempted)

    def _learn(self, generated: float, calm: bool, at: float) -> None:
        if not calm:
            self._mark = None
        elif self._mark is None:
            self._mark = (at, generated)
        elif at - self._mark[0] >= _CALM_STEP:
            if generated > self._mark[1]:
                self._calm.append((generated - self._mark[1]) / (at - self._mark[0]))
            self._mark = (at, generated)


class Growth(NamedTuple):
    """queue: waiting requests QUEUE_SPAN ago, half of it ago, now. completed: in COMPLETION_SPAN; completed_before: in
    such a span before it. retried: in COMPLETION_SPAN."""

    queue: tuple[float, float, float] | None = None
    completed: float | None = None
    completed_before: float | None = None
    retried: float = 0.0


class Backlog:
    """The queue and what leaves it."""

    def __init__(self) -> None:
        self._queue = Past[float](QUEUE_SPAN, 30)
        self._completed = Past[float](3 * COMPLETION_SPAN, 90)
        self._retried = Past[float](COMPLETION_SPAN, 30)

    def look(self, waiting: float | None, counters: Counters, at: float) -> Growth:
        """waiting: requests. counters: have taken this look's reading. at: monotonic seconds."""
        retries, completed = counters.total("retries"), _completed(counters)
        retried = 0.0 if retries is None else _gained(self._retried, retries, at, COMPLETION_SPAN)
        queue = None if waiting is None else self._grown(waiting, at)
        if completed is None:
            return Growth(queue, retried=retried)
        self._completed.add(at, completed)
        first = self._completed.before(at - 3 * COMPLETION_SPAN)
        middle = self._completed.before(at - COMPLETION_SPAN)
        if first is None or middle is None or middle.at - first.at < COMPLETION_SPAN:
            return Growth(queue, retried=retried)
        before = (middle.value - first.value) / (middle.at - first.at)
        recent = (completed - middle.value) / (at - middle.at)
        return Growth(queue, recent * COMPLETION_SPAN, before * COMPLETION_SPAN, retried)

    def _grown(self, waiting: float, at: float) -> tuple[float, float, float] | None:
        self._queue.add(at, waiting)
        first, middle = self._queue.before(at - QUEUE_SPAN), self._queue.before(at - QUEUE_SPAN / 2)
        if first is None or middle is None or first.at > at - QUEUE_SPAN:
            return None
        return first.value, middle.value, waiting


def _gained(past: Past[float], total: float, at: float, span: float) -> float:
    past.add(at, total)
    before = past.before(at - span)
    return 0.0 if before is None else total - before.value


def _completed(counters: Counters) -> float | None:
    """Requests that ended; where only their responses are told, the good ones."""
    if (finished := counters.total("finished")) is not None:
        return finished
    responses = counters.values("http")
    return sum(n for code, n in responses.items() if code.startswith("2")) if responses else None
