"""Decides on each datagram, and counts what became of it."""

import logging
import os
from typing import NamedTuple

from oomcast.clock import Clock
from oomcast.logs import OnChange
from oomcast.metric import Sample
from oomcast_collectors.requests import metrics
from oomcast_collectors.requests.bucket import Bucket
from oomcast_collectors.requests.message import MAX_BYTES, Unreadable, read
from oomcast_collectors.requests.settings import RequestsSettings
from oomcast_collectors.requests.totals import Totals

_MOST_TOLD = 100
"""Different reasons in the log."""


class Sender(NamedTuple):
    """As the kernel says who sent a datagram, in the daemon's user namespace."""

    uid: int
    gid: int


class Desk:
    """Used by one thread, read by any."""

    def __init__(self, settings: RequestsSettings, totals: Totals, clock: Clock, log: logging.Logger) -> None:
        self._uids = frozenset((0, os.geteuid()) if settings.uids is None else settings.uids)
        self._gids = frozenset(settings.gids)
        self._rate = settings.rate
        self._totals = totals
        self._clock = clock
        self._bucket = Bucket(settings.rate, clock.monotonic())
        self._told = OnChange(log, max_keys=_MOST_TOLD, clock=clock)
        self._created = clock.time()
        self._outcomes = dict.fromkeys(metrics.OUTCOMES, 0)
        self._lost = 0
        self._malformed_trace_ids = 0
        self._series = {outcome: metrics.MESSAGES.series(outcome) for outcome in metrics.OUTCOMES}
        self._lost_series = metrics.LOST.series()
        self._malformed_series = metrics.MALFORMED_TRACE_IDS.series()

    def take(self, data: bytes, sender: Sender | None, cut: bool) -> bool:
        """Counts one datagram, once. sender: None if not known. cut: it was longer than `data`.

        False if it was turned away without a look at it, which is all that a flood can bring about.
        """
        outcome = self._outcome(data, sender, cut)
        self._outcomes[outcome] += 1
        return outcome not in ("refused", "rate_limited")

    def samples(self) -> list[Sample]:
        created = self._created
        return [
            *(Sample(series, self._outcomes[outcome], created) for outcome, series in self._series.items()),
            Sample(self._lost_series, self._lost, created),
            Sample(self._malformed_series, self._malformed_trace_ids, created),
        ]

    def _outcome(self, data: bytes, sender: Sender | None, cut: bool) -> str:
        # First, so that a stranger cannot use up the rate of those who may send.
        if sender is None or not (sender.uid in self._uids or sender.gid in self._gids):
            who = f"uid {sender.uid}, gid {sender.gid}" if sender else "an unknown sender"
            return self._turn_away("refused", f"messages of {who} are refused")
        if not self._bucket.take(self._clock.monotonic()):
            return self._turn_away("rate_limited", f"messages above {self._rate} a second are not taken")
        if cut:
            return self._turn_away("invalid", f"invalid messages: longer than {MAX_BYTES} bytes")
        try:
            message = read(data)
        except Unreadable as reason:
            return self._turn_away(reason.outcome, f"invalid messages: {reason}")
        self._lost += message.lost or 0
        if not self._totals.add(message):
            return self._turn_away("too_many_engines", "messages of further engines are not counted")
        if message.trace_id is not None and message.trace is None:
            self._malformed_trace_ids += 1
        return "accepted"

    def _turn_away(self, outcome: str, reason: str) -> str:
        """Each reason is told once: the counters say how often, and whether it goes on."""
        self._told.report(reason, None, logging.WARNING, reason)
        return outcome
