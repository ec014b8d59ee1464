"""Which engines are watched: those of the settings, and those that are found; each by a name of its own."""

import time
from collections.abc import Mapping

from oomcast.contract import Context
from oomcast_collectors.engine.discovery import Discovery, FoundEngine
from oomcast_collectors.engine.naming import Names, address_of
from oomcast_collectors.engine.settings import Endpoint, EngineSettings
from oomcast_collectors.engine.tell import Teller
from oomcast_collectors.engine.watch import EngineWatch

_FIRST = 2.0
"""Seconds that the first run waits for first looks, at most, so that a single one has something to say."""

_LOOKS = 0.02


class _Entry:
    """settled: whether the name is final, see naming.py."""

    def __init__(self, watch: EngineWatch, *, settled: bool) -> None:
        self.watch = watch
        self.teller = Teller(watch)
        self.settled = settled


class Roster:
    """Everything but start and stop is for the collector's own thread: naming reads /proc."""

    def __init__(self, settings: EngineSettings, context: Context) -> None:
        self._settings = settings
        self._context = context
        self._names = Names(context)
        self._discovery = Discovery(context, settings.endpoints, self._names) if settings.discover else None
        self._configured: dict[Endpoint, _Entry] = {}
        self._found: dict[str, _Entry] = {}
        self._begun = False
        self._ended = False

    @property
    def discovers(self) -> bool:
        return self._discovery is not None

    def start(self) -> None:
        if self._discovery is not None:
            self._discovery.start()

    def stop(self, deadline: float) -> None:
        self._ended = True
        if self._discovery is not None:
            self._discovery.stop(deadline)
        for entry in (*self._configured.values(), *self._found.values()):
            entry.watch.stop()

    def renew(self) -> list[tuple[EngineWatch, Teller]]:
        """The engines of now, each with who tells of it."""
        if not self._begun:
            self._begun = True
            for endpoint in dict.fromkeys(self._settings.endpoints):
                self._configured[endpoint] = self._named(endpoint)
            self._await_first()
        for endpoint, entry in self._configured.items():
            if not entry.settled and entry.watch.reading is not None:
                # Somebody listens now, and can be asked who it is.
                self._leave(entry)
                self._configured[endpoint] = self._named(endpoint)
        if self._discovery is not None:
            self._follow({engine.name: engine for engine in self._discovery.engines()})
        entries = (*self._configured.values(), *self._found.values())
        return [(entry.watch, entry.teller) for entry in entries]

    def _named(self, endpoint: Endpoint) -> _Entry:
        named = self._names.configured(endpoint)
        host, port = address_of(endpoint.url)
        name = self._names.take(named.name, f"{host}:{port}")
        return self._watch(endpoint, name, named.cgroup, settled=named.settled)

    def _follow(self, engines: Mapping[str, FoundEngine]) -> None:
        for name in self._found.keys() - engines.keys():
            self._found.pop(name).watch.stop()
        for name, engine in engines.items():
            entry = self._found.get(name)
            if entry is None:
                endpoint = Endpoint.model_validate({"url": engine.url, "kind": engine.kind})
                self._found[name] = self._watch(endpoint, name, engine.cgroup, settled=True)
            else:
                entry.watch.move(engine.url, engine.cgroup)

    def _watch(self, endpoint: Endpoint, name: str, cgroup: str, *, settled: bool) -> _Entry:
        watch = EngineWatch(endpoint, name, self._settings, self._context, cgroup)
        if not self._ended:
            watch.start()
        return _Entry(watch, settled=settled)

    def _leave(self, entry: _Entry) -> None:
        entry.watch.stop()
        self._names.give_back(entry.watch.name)

    def _await_first(self) -> None:
        end = time.monotonic() + min(_FIRST, self._settings.timeout / 2)
        while time.monotonic() < end and not all(entry.watch.looked for entry in self._configured.values()):
            time.sleep(_LOOKS)
