"""The stages, one after the other, each told by what the daemon says of it."""

import math
import time
from collections.abc import Iterator

from incident.memory import GB, TOTAL
from incident.node import Node
from incident.programs import firing
from incident.texts import gb, percent, span, whole
from incident.verdict import Verdict
from incident.view import View, view

CALM = 200.0
"""Virtual seconds of the first stage: each user gets through several conversations."""

LONGEST = 900.0
"""Virtual seconds after which memory that is not exhausted never will be."""

_EVERY = 3.0
_LOOK = 0.2
_AFTERWARDS = 7.0
"""Seconds in which the engine is seen to be dead, and the daemon and Prometheus tell of it."""


class Play:
    """daemon, prometheus: URLs; the latter "" where it does not run. speed: virtual seconds in a second."""

    def __init__(self, node: Node, daemon: str, prometheus: str, speed: float) -> None:
        self._node = node
        self._daemon = daemon
        self._prometheus = prometheus
        self._speed = speed
        self._views: list[View] = []
        self.missing: list[str] = []
        """What did not come out as it should, once it is over."""

    def run(self) -> Iterator[str]:
        """Plays it; yields what there is to be said as it comes, the verdict last. Raises OSError."""
        self._node.start()
        yield "1  NORMAL  Three users ask, with prompts of up to 9K tokens that begin like the ones before."
        calm = self._look_for(CALM / self._speed)
        yield from _told(calm)
        yield ""
        yield "2  LONG PROMPTS  Nine jobs come at once: 3 above 64K tokens, 6 above 128K. The users wait behind them."
        self._node.send_jobs()
        sent = time.monotonic()
        yield "   time    GPU memory   headroom   exhausted in   cache hits   KV cache   waiting"
        while not self._is_out() and time.monotonic() - sent < LONGEST / self._speed:
            yield _row(self._look_for(_EVERY), sent)
        yield from self._crash(sent)
        yield ""
        verdict = Verdict(calm, self._last(), self._views, sent, self._node.out_of_memory)
        self.missing = verdict.missing
        yield from verdict.lines()

    def _crash(self, sent: float) -> Iterator[str]:
        if not self._is_out():
            return
        seen = self._look_for(_AFTERWARDS, until_out=False)
        last = self._last()
        yield ""
        yield "3  CRASH  An allocation fails, the engine dies, and whoever asked gets a 500 without content."
        yield _row(last, sent)
        yield _line(
            "engine", f"up {whole(seen.value('engine_up'))}, {seen.state}", "oomcast_engine_up, oomcast_engine_state"
        )
        lost = sum(seen.all("request_empty_responses_total").values())
        yield _line("empty answers", f"{lost:.0f}", "oomcast_request_empty_responses_total, by length of the prompt")
        if self._prometheus:
            alerts = firing(self._prometheus) or ["none"]
            yield _line("alerts", alerts[0], "")
            yield from (_line("", alert, "") for alert in alerts[1:])
        yield from _objectives(seen)

    def _is_out(self) -> bool:
        return self._node.out_of_memory is not None

    def _look_for(self, seconds: float, *, until_out: bool = True) -> View:
        """Looks at the daemon until the time is over, or memory is; gives the last look."""
        end = time.monotonic() + seconds
        while True:
            self._views.append(view(self._daemon))
            if time.monotonic() >= end or (until_out and self._is_out()):
                return self._views[-1]
            time.sleep(_LOOK)

    def _last(self) -> View:
        """The last look before the engine's process was gone."""
        died = self._node.died or math.inf
        return next(one for one in reversed(self._views) if one.at < died)


def _told(now: View) -> Iterator[str]:
    yield _line("GPU memory", f"{gb(now.used)} of {TOTAL / GB:.0f} GB", "oomcast_gpu_memory_used_bytes")
    yield _line("cache hits", percent(now.hits), "oomcast_kv_cache_hit_ratio")
    exhaustion = 'oomcast_time_to_exhaustion_seconds{resource="gpu_memory"}'
    yield _line("exhausted in", span(now.exhausted_in), exhaustion)
    yield _line("engine", now.state, "oomcast_engine_state")


def _row(now: View, sent: float) -> str:
    waiting = sum(now.all("engine_requests_waiting").values())
    cells = (
        f"{now.at - sent:4.0f} s",
        f"{gb(now.used):>10}",
        f"{gb(now.value('gpu_memory_free_bytes')):>8}",
        f"{span(now.exhausted_in):>12}",
        f"{percent(now.hits):>10}",
        f"{percent(now.value('kv_cache_usage_ratio')):>8}",
        f"{waiting:7.0f}",
    )
    return "   " + "   ".join(cells)


def _objectives(now: View) -> Iterator[str]:
    """Requests of each length class, how many were expected to miss their objective, and how many did."""
    by_class = now.all("slo_requests_total", objective="e2e", source="requests")
    rows = [(dict(labels)["up_to"], n) for labels, n in by_class.items() if n]
    yield ""
    yield "   answers later than promised (oomcast_slo_predicted_violations_total, oomcast_slo_violations_total);"
    yield "   what is expected of the first 1000 requests of a length is mostly a pessimistic prior:"
    for up_to, requests in sorted(rows, key=lambda row: float(row[0])):
        labels = {"objective": "e2e", "source": "requests", "up_to": up_to}
        expected, seen = (
            now.value(f"slo_{name}_total", **labels) or 0.0 for name in ("predicted_violations", "violations")
        )
        counts = f"{requests:4.0f} requests, {expected:5.1f} expected, {seen:3.0f} seen"
        yield f"   prompts up to {up_to:>6} tokens: {counts}"


def _line(what: str, value: str, where: str) -> str:
    return f"   {what:<14} {value:<18} {where}".rstrip()
