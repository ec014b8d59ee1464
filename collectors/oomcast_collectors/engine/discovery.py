"""Finds engines among this machine's processes: looks at who listens, and asks each port once what it serves."""

import logging
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from oomcast.contract import Context
from oomcast.logs import OnChange
from oomcast_collectors.engine.candidates import Candidates
from oomcast_collectors.engine.configured import Configured
from oomcast_collectors.engine.listeners import Listener, Listeners
from oomcast_collectors.engine.naming import Names
from oomcast_collectors.engine.probe import Answer, probe
from oomcast_collectors.engine.reading import Kind
from oomcast_collectors.engine.settings import Endpoint
from oomcast_collectors.host.files import read_once

PERIOD = 15.0
MAX_ENGINES = 64
MAX_PROBES = 8
"""Per round."""

KEPT = 60.0
"""Seconds for which an engine that is gone stays known."""

_FIRST_GAP = 15.0
_LONGEST_GAP = 600.0
_MOST_BROKEN = 3
_EPHEMERAL = range(32768, 61000)


class FoundEngine(NamedTuple):
    """url: of its page. name: what series call it, unique and the same after a restart; the rest may change then.
    cgroup: as oomcast_cgroup_info calls it, "" where it is not among those."""

    url: str
    kind: Kind
    name: str
    cgroup: str
    pid: int


class _Port(NamedTuple):
    """start: of the process, in clock ticks since boot."""

    pid: int
    start: int
    address: str
    port: int


@dataclass(slots=True)
class _Verdict:
    """On one port. due: monotonic seconds of the next probe. broken: answers that were no HTTP."""

    due: float
    gap: float = _FIRST_GAP
    broken: int = 0


@dataclass(slots=True)
class _Known:
    """An engine. base: its name before that was made unique. gone: monotonic seconds, None while it is there."""

    engine: FoundEngine
    port: _Port
    base: str
    gone: float | None = None


class Discovery:
    """One thread. What it has found may be asked for by any."""

    def __init__(self, context: Context, endpoints: Iterable[Endpoint], names: Names) -> None:
        self._clock = context.clock
        self._log = context.log
        self._proc = os.fspath(context.roots.proc)
        self._told = OnChange(context.log, clock=context.clock)
        self._candidates = Candidates(context)
        self._listeners = Listeners(context)
        self._configured = Configured(endpoints, context.clock)
        self._names = names
        self._verdicts: dict[_Port, _Verdict] = {}
        self._known: dict[str, _Known] = {}
        self._found: tuple[FoundEngine, ...] = ()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="engine-discovery", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, deadline: float) -> None:
        """Returns before the clock's monotonic `deadline`."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(max(deadline - self._clock.monotonic(), 0))

    def engines(self) -> tuple[FoundEngine, ...]:
        """Those that are there and those that went within the last minute, by name."""
        return self._found

    def look(self) -> None:
        """One round, in the thread that was started, or in place of it. Raises OSError where /proc cannot be read."""
        processes = self._candidates.find()
        ports = self._ports(processes)
        now = self._clock.monotonic()
        self._part(ports, now)
        self._verdicts = {port: self._verdicts.get(port) or _Verdict(now) for port in ports}
        there = {known.port for known in self._known.values()}
        due = [port for port, verdict in self._verdicts.items() if verdict.due <= now and port not in there]
        # Engines have low ports, and their helpers' are where there was room.
        due.sort(key=lambda port: (self._verdicts[port].due, port.port, port))
        for port in due[:MAX_PROBES]:
            if self._ended.is_set():
                break
            self._judge(port, ports[port], probe(ports[port].host))
        self._found = tuple(known.engine for _, known in sorted(self._known.items()))

    def _ports(self, processes: dict[int, int]) -> dict[_Port, Listener]:
        """What may be asked. Of processes that share a socket the oldest has it."""
        ephemeral = self._ephemeral()
        oldest: dict[tuple[str, int], tuple[_Port, Listener]] = {}
        listeners = self._listeners.of(processes)
        if self._listeners.unreachable:
            text = "some servers listen on loopback of another network namespace only, where they cannot be asked"
            self._told.report("unreachable", True, logging.WARNING, text)
        for listener in listeners:
            # NCCL, Gloo and others of the kind listen on whatever port they are given while ranks meet each other,
            # and a stranger's bytes may break that up.
            if listener.port in ephemeral or self._configured.has(listener):
                continue
            port = _Port(listener.pid, processes[listener.pid], listener.address, listener.port)
            rival, _ = oldest.get(port[2:], (port, listener))
            if (port.start, port.pid) <= (rival.start, rival.pid):
                oldest[port[2:]] = (port, listener)
        return dict(oldest.values())

    def _ephemeral(self) -> range:
        try:
            first, last = read_once(f"{self._proc}/sys/net/ipv4/ip_local_port_range", 64).split()
            return range(int(first), int(last) + 1)
        except (OSError, ValueError):
            return _EPHEMERAL

    def _part(self, ports: Iterable[_Port], now: float) -> None:
        """From engines that are gone."""
        there = set(ports)
        for name, known in list(self._known.items()):
            if known.port in there:
                known.gone = None
            elif known.gone is None:
                known.gone = now
                self._log.info("engine %s is gone", name)
            elif now - known.gone >= KEPT:
                del self._known[name]
                self._names.give_back(name)

    def _judge(self, port: _Port, listener: Listener, answer: Answer) -> None:
        verdict = self._verdicts[port]
        verdict.due = self._clock.monotonic() + verdict.gap
        verdict.gap = min(2 * verdict.gap, _LONGEST_GAP)
        if answer.kind is not None and not self._configured.has(listener, answer.kind):
            self._add(port, listener, answer.url, answer.kind)
        elif answer.broken:
            verdict.broken += 1
            if verdict.broken >= _MOST_BROKEN:
                verdict.due = float("inf")

    def _add(self, port: _Port, listener: Listener, url: str, kind: Kind) -> None:
        base, cgroup, _ = self._names.found(listener)
        name = self._returned(base, port.address)
        if name is None:
            if len(self._known) >= MAX_ENGINES:
                self._told.report(
                    "full", True, logging.WARNING, f"more than {MAX_ENGINES} engines: the rest is left out"
                )
                return
            name = self._names.take(base, listener.host)
        self._known[name] = _Known(FoundEngine(url, kind, name, cgroup, port.pid), port, base)
        self._log.info("engine %s: found %s at %s", name, kind, url)

    def _returned(self, base: str, address: str) -> str | None:
        """The name of the engine that went away and is back now; a pod may be back at another address."""
        gone = [
            (known.port.address != address, name)
            for name, known in self._known.items()
            if known.gone is not None and known.base == base
        ]
        return min(gone)[1] if gone else None

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self.look()
                self._told.report("look", "", logging.INFO, "looking for engines")
            except Exception as error:  # noqa: BLE001 - what one round trips over must not end the search
                self._told.report("look", repr(error), logging.ERROR, f"looking for engines: {error!r}")
            self._ended.wait(PERIOD)
