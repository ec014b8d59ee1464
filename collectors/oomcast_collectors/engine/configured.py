"""Whether a server on this machine is one that the settings have already."""

import socket
from collections.abc import Iterable
from typing import NamedTuple

from oomcast.clock import Clock
from oomcast_collectors.engine.detect import places
from oomcast_collectors.engine.listeners import Listener
from oomcast_collectors.engine.naming import address_of, literal_addresses
from oomcast_collectors.engine.reading import Kind
from oomcast_collectors.engine.settings import Endpoint

_RESOLVED_FOR = 600.0


class _Page(NamedTuple):
    """only: of what kind it is, where its port is guessed."""

    host: str
    port: int
    only: Kind | None


class Configured:
    """Not thread-safe. Raises ValueError where the port of a URL is no number."""

    def __init__(self, endpoints: Iterable[Endpoint], clock: Clock) -> None:
        self._clock = clock
        self._pages = {
            _Page(*address_of(place.url), place.only) for endpoint in endpoints for place in places(endpoint.url)
        }
        self._resolved: dict[str, tuple[float, frozenset[str]]] = {}

    def has(self, listener: Listener, kind: Kind | None = None) -> bool:
        """kind: of what it serves, None before that is known. May ask a name server, for a name with the same port."""
        return any(
            page.port == listener.port
            and page.only in (None, kind)
            and not listener.answers.isdisjoint(self._addresses(page.host))
            for page in self._pages
        )

    def _addresses(self, host: str) -> frozenset[str]:
        literal = literal_addresses(host)
        if literal:
            return literal
        now = self._clock.monotonic()
        until, addresses = self._resolved.get(host, (now, frozenset()))
        if until <= now:
            addresses = _resolve(host)
            self._resolved[host] = (now + _RESOLVED_FOR, addresses)
        return addresses


def _resolve(host: str) -> frozenset[str]:
    try:
        return frozenset(str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError):  # no such name, or none that can be asked for: it is no address of ours
        return frozenset()
