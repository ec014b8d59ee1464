"""Collectors over a socket in a directory of the test's own, and senders of messages."""

import json
import logging
import os
import socket
import struct
import time
from pathlib import Path
from typing import Any

from e2e.program import until
from oomcast.clock import Clock, SystemClock
from oomcast.contract import Context, Roots
from oomcast.metric import Exemplar, Histogram, Sample
from oomcast.slo import Slo
from oomcast_collectors.requests import SPEC, RequestsCollector

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def message(**keys: Any) -> dict[str, Any]:
    """A valid one. Keys that are given as ... are left out."""
    known = {"v": 1, "engine": "llama", "prompt_tokens": 1000, "status": 200, "trace_id": TRACE, **keys}
    return {key: value for key, value in known.items() if value is not ...}


class Sender:
    """Sends as any process would: to a path, one datagram a message; blocks while the queue is full."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(10)
        self.socket.connect(str(path))
        self.sent = 0

    def raw(self, data: bytes, uid: int | None = None, gid: int = 0) -> None:
        """uid, gid: as whom, which takes root."""
        ids = struct.pack("iII", os.getpid(), uid or 0, gid)
        control = [] if uid is None else [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, ids)]
        self.socket.sendmsg([data], control)
        self.sent += 1

    def message(self, **keys: Any) -> None:
        self.raw(json.dumps(message(**keys)).encode())


class Bench:
    """Collectors and senders, all ended with the test."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "requests.sock"
        self._made: list[RequestsCollector] = []
        self._senders: list[Sender] = []

    def collector(self, clock: Clock | None = None, slo: Slo | None = None, **settings: Any) -> RequestsCollector:
        """One that has had no run yet."""
        log = logging.getLogger("requests")
        context = Context(Roots(), clock or SystemClock(), log, lambda facts: None, slo=slo or Slo())
        made = SPEC.create(SPEC.settings.model_validate({"socket": self.path, **settings}), context)
        assert isinstance(made, RequestsCollector)
        self._made.append(made)
        return made

    def receiving(self, **settings: Any) -> tuple[RequestsCollector, Sender]:
        """One that has its socket, and a sender to it."""
        collector = self.collector(**settings)
        collector.collect()
        return collector, self.sender()

    def sender(self) -> Sender:
        made = Sender(self.path)
        self._senders.append(made)
        return made

    def close(self) -> None:
        for collector in self._made:
            collector.stop(time.monotonic() + 2)
        for sender in self._senders:
            sender.socket.close()


def values(collector: RequestsCollector, *, zeros: bool = False) -> dict[str, float]:
    """The numbers of one run that are not 0, by name and labels, without the prefix that all share."""
    found = {name(one): one.value for one in collector.collect().samples}
    return {key: value for key, value in found.items() if isinstance(value, int | float) and (value or zeros)}


def name(sample: Sample) -> str:
    return sample.series.head.strip().removeprefix("oomcast_request_")


def received(collector: RequestsCollector) -> dict[str, int]:
    """How many messages there were, by what became of them; only what is not 0."""
    prefix = 'messages_total{outcome="'
    found = values(collector).items()
    return {key.removeprefix(prefix)[:-2]: int(value) for key, value in found if key.startswith(prefix)}


def settle(collector: RequestsCollector, *senders: Sender) -> dict[str, int]:
    """Waits until all that was sent is counted; gives what became of it."""
    sent = sum(sender.sent for sender in senders)
    until(lambda: sum(received(collector).values()) >= sent)
    found = received(collector)
    assert sum(found.values()) == sent
    return found


def prompts(collector: RequestsCollector, engine: str = "llama") -> Histogram:
    wanted = f'prompt_tokens{{engine="{engine}"}}'
    (found,) = [one.value for one in collector.collect().samples if name(one) == wanted]
    assert isinstance(found, Histogram)
    return found


def trace(number: int) -> str:
    return f"{number:032x}"


def exemplar(number: int, tokens: int, at: float) -> Exemplar:
    return Exemplar({"trace_id": trace(number)}, tokens, at)
