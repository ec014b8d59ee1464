"""What an engine does, judged by the signals of one look: each state's condition, and its evidence as text.

A signal that the engine does not tell makes the states that need it impossible.
"""

from collections.abc import Callable
from typing import NamedTuple

from oomcast_collectors.engine.flow import COMPLETION_SPAN, PREEMPTION_SPAN, QUEUE_SPAN, Flow, Growth
from oomcast_collectors.engine.hits import Collapse
from oomcast_collectors.engine.standstill import Still

DEADLOCKED_AFTER = 30.0
"""Seconds: between two batches an engine has no running request for a look or two, never for half a minute."""

RESTARTED_FOR = 60.0
"""Seconds: long enough to be scraped four times by a slow Prometheus."""

THRASHING_PREEMPTIONS = 2.0
"""In PREEMPTION_SPAN: a single one is how engines end a bad guess."""

THRASHING_RATE = 0.6
"""Share of the calm rate. Losing a tenth is a preemption's normal price; a pool that thrashes lost half and more."""

PILING_UP_LEAST = 5.0
PILING_UP_GROWTH = 1.5
"""Requests, and factor, by which the queue has grown in QUEUE_SPAN."""

PILING_UP_COMPLETIONS = 0.8
"""Share of the completions before; with retries rising as well, completions need only not to rise."""

PILING_UP_RETRIES = 3.0
"""In COMPLETION_SPAN: as many as open a circuit breaker."""

COMPLETIONS_KNOWN = 5.0
"""Requests in COMPLETION_SPAN: of fewer, none may end in the next minute by chance."""

COLD = 900.0
"""Seconds after a restart in which an empty cache explains any hit ratio."""

SATURATED_USAGE = 0.9
SATURATED_USAGE_LEFT = 0.85
"""Of the fullest pool. From the first on, a long request waits; the second keeps the state from flapping."""

SATURATED_QUEUE = 10.0
"""Seconds for which requests wait while others run: shorter queues are how batches form."""

LONG_PREFILL_AFTER = 3.0
"""Seconds without a generated token."""

LONG_PREFILL_TOKENS = 8192.0
"""Looked up meanwhile: a second's work and more for one accelerator."""

LONG_PREFILL_RISE = 0.005
"""Of the usage, where no lookups are told: 4,000 tokens in a pool of 800,000."""

LONG_PREFILL_UNMOVED = 120.0
"""Seconds for which neither usage nor lookups move: no prefill any more, whose chunks take a few seconds each."""


class Signals(NamedTuple):
    """running, waiting: requests. usage: 0 to 1, of the fullest pool.

    queueing: seconds for which requests waited for memory. age: seconds since a restart was seen.
    asleep: the engine was put to sleep. ratio: hits over queries. None where not told.
    """

    running: float | None = None
    waiting: float | None = None
    usage: float | None = None
    queueing: float = 0.0
    age: float | None = None
    asleep: bool = False
    flow: Flow = Flow()
    still: Still = Still()
    growth: Growth = Growth()
    ratio: float | None = None
    collapse: Collapse | None = None


class Finding(NamedTuple):
    """state: one of metrics.STATES."""

    state: str
    evidence: str


def judge(signals: Signals, last: str | None) -> Finding | None:
    """The worst state that holds, None where none can be told. last: the state before."""
    for state, condition in _CONDITIONS:
        if text := condition(signals, state == last):
            return Finding(state, text)
    return None


def numbers(signals: Signals) -> dict[str, float]:
    """What is known, for an event's fields."""
    known = {
        "running": signals.running,
        "waiting": signals.waiting,
        "usage": signals.usage,
        "generation_rate": signals.flow.rate,
        "calm_generation_rate": signals.flow.calm,
        "preempted": signals.flow.preempted,
        "hit_ratio": signals.ratio,
    }
    return {name: value for name, value in known.items() if value is not None}


def _deadlocked(signals: Signals, was: bool) -> str:
    stuck = signals.still.stuck
    if stuck is None or stuck < DEADLOCKED_AFTER or signals.asleep:
        return ""
    return f"{signals.waiting:g} waiting, none running and nothing moving for {stuck:.0f} s"


def _restarted(signals: Signals, was: bool) -> str:
    if signals.age is None or signals.age >= RESTARTED_FOR:
        return ""
    return f"restarted {signals.age:.0f} s ago"


def _thrashing(signals: Signals, was: bool) -> str:
    rate, calm, preempted = signals.flow
    if rate is None or calm is None or preempted is None:
        return ""
    pressed = bool(signals.waiting) or (signals.usage or 0.0) >= SATURATED_USAGE_LEFT
    if not pressed or preempted < THRASHING_PREEMPTIONS or rate >= THRASHING_RATE * calm:
        return ""
    return (
        f"{preempted:g} preempted in {PREEMPTION_SPAN:.0f} s, {rate:.0f} tokens/s generated where {calm:.0f} are usual"
    )


def _piling_up(signals: Signals, was: bool) -> str:
    queue, completed, before, retried = signals.growth
    if queue is None or completed is None or before is None or before < COMPLETIONS_KNOWN:
        return ""
    first, middle, last = queue
    grown = first < middle < last and last - first >= PILING_UP_LEAST and last >= PILING_UP_GROWTH * first
    fewer = PILING_UP_COMPLETIONS if retried < PILING_UP_RETRIES else 1.0
    if not grown or completed >= fewer * before:
        return ""
    retries = f", {retried:.0f} retries" if retried else ""
    return (
        f"{last:g} waiting, {first:g} were {QUEUE_SPAN:.0f} s ago;"
        f" {completed:.0f} completed in {COMPLETION_SPAN:.0f} s, {before:.0f} before{retries}"
    )


def _collapsed(signals: Signals, was: bool) -> str:
    if signals.collapse is None or (signals.age is not None and signals.age < COLD):
        return ""
    return f"hit ratio {signals.collapse.ratio:.3f} where {signals.collapse.normal:.3f} is usual"


def _saturated(signals: Signals, was: bool) -> str:
    if signals.usage is not None and signals.usage >= (SATURATED_USAGE_LEFT if was else SATURATED_USAGE):
        return f"{signals.usage:.0%} of the KV pool used"
    if signals.running and signals.queueing >= SATURATED_QUEUE:
        return f"{signals.waiting:g} waiting for {signals.queueing:.0f} s while {signals.running:g} run"
    return ""


def _long_prefill(signals: Signals, was: bool) -> str:
    _, frozen, prompted, risen, unmoved = signals.still
    if not signals.running or frozen is None or frozen < LONG_PREFILL_AFTER or unmoved >= LONG_PREFILL_UNMOVED:
        return ""
    if prompted is not None:
        if prompted < LONG_PREFILL_TOKENS:
            return ""
        return f"no token generated for {frozen:.0f} s since {prompted:.0f} prompt tokens came"
    if risen is None or risen < LONG_PREFILL_RISE:
        return ""
    return f"no token generated for {frozen:.0f} s while KV usage rose by {risen:.1%}"


def _serving(signals: Signals, was: bool) -> str:
    if signals.running is None or signals.asleep or not (signals.running or signals.waiting):
        return ""
    return f"{signals.running:g} running, {signals.waiting or 0:g} waiting"


def _idle(signals: Signals, was: bool) -> str:
    if signals.asleep:
        return "asleep"
    return "none running, none waiting" if signals.running == 0 and not signals.waiting else ""


_CONDITIONS: tuple[tuple[str, Callable[[Signals, bool], str]], ...] = (
    ("deadlocked", _deadlocked),
    ("restarted", _restarted),
    ("thrashing", _thrashing),
    ("piling_up", _piling_up),
    ("hit_rate_collapse", _collapsed),
    ("saturated", _saturated),
    ("long_prefill", _long_prefill),
    ("serving", _serving),
    ("idle", _idle),
)
"""The worst first. A restart is told before what it explains: queues of clients that come back, a cold cache."""

WORST_FIRST = ("dead", "unreachable", *(state for state, _ in _CONDITIONS))
"""Of all states."""
