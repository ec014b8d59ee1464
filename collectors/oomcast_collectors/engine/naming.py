"""What series call an engine: what the settings say, else its unit or container and its port, else host:port."""

import hashlib
import ipaddress
import logging
import threading
from typing import NamedTuple
from urllib.parse import urlsplit

from oomcast.contract import Context
from oomcast.logs import OnChange
from oomcast_collectors.engine.listeners import LOOPBACK, Listener, Listeners, host_of
from oomcast_collectors.engine.settings import Endpoint
from oomcast_collectors.gpu.owners import Owners, Process

_LONGEST = 120
_DIGEST = 4
_DEFAULT_PORTS = {"http": 80, "https": 443}

# Their socket stands for one inside of a container, and says nothing of whose.
_FORWARDERS = frozenset({"docker-proxy", "rootlessport", "slirp4netns", "pasta", "pasta.avx2", "conmon"})


class Named(NamedTuple):
    """name: up to 120 characters. cgroup: as oomcast_cgroup_info calls it, "" where it is not known.

    settled: False while nobody listens at a local address, so that neither name nor cgroup are known yet.
    """

    name: str
    cgroup: str = ""
    settled: bool = True


class Names:
    """Thread-safe. Names that were taken belong to their engine until they are given back."""

    def __init__(self, context: Context) -> None:
        self._owners = Owners(context)
        self._listeners = Listeners(context)
        self._told = OnChange(context.log, clock=context.clock)
        self._lock = threading.Lock()
        self._taken: set[str] = set()

    def configured(self, endpoint: Endpoint) -> Named:
        """Of an engine in the settings; takes nothing. Where its address is local /proc is searched for who listens.

        The name is the same before and after a restart, once somebody was there to be asked: ask again until `settled`.
        """
        host, port = address_of(endpoint.url)
        with self._lock:
            try:
                process, settled = self._at(port, literal_addresses(host))
            except OSError as error:
                self._told.report("owner", error.errno, logging.WARNING, f"who listens on a port is not known: {error}")
                process, settled = None, True
            owner = self._owner(process) if process else ""
        cgroup = process.cgroup if process else ""
        if endpoint.name:
            return Named(cut(endpoint.name), cgroup, settled)
        return Named(cut(owner or host_of(host), f":{port}"), cgroup, settled)

    def found(self, listener: Listener) -> Named:
        """Of the process that listens; takes nothing."""
        with self._lock:
            process = self._process(listener.pid)
            owner = self._owner(process)
        return Named(cut(owner or host_of(listener.address), f":{listener.port}"), process.cgroup)

    def take(self, name: str, address: str) -> str:
        """The name itself, or where it is another engine's already, with the address (host:port) after it."""
        with self._lock:
            unique = name
            if unique in self._taken:
                unique = cut(f"{name}@{address}")
            number = 2
            while unique in self._taken:
                unique = cut(f"{name}@{address}#{number}")
                number += 1
            self._taken.add(unique)
            return unique

    def give_back(self, name: str) -> None:
        with self._lock:
            self._taken.discard(name)

    def _at(self, port: int, addresses: frozenset[str]) -> tuple[Process | None, bool]:
        """Who listens there, and whether there is nobody to wait for. Raises OSError."""
        own = self._listeners.own() if addresses else None
        local = {one for one in addresses if own and (ipaddress.ip_address(one).is_loopback or one in own.addresses)}
        if own is None or not local:
            return None, True
        sockets = own.at(port, local)
        pid = self._listeners.holder(sockets) if sockets else None
        return None if pid is None else self._process(pid), bool(sockets)

    def _process(self, pid: int) -> Process:
        process = self._owners.process(pid)
        self._owners.keep(set())
        return process

    def _owner(self, process: Process) -> str:
        return "" if process.name in _FORWARDERS else self._owners.owner(process)


def address_of(url: str) -> tuple[str, int]:
    """Host and port of a URL, without user and password. Raises ValueError where its port is no number."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)


def literal_addresses(host: str) -> frozenset[str]:
    """The IP addresses that a URL's host says by itself, without asking a name server; none for other names."""
    if host in ("localhost", "0.0.0.0", "::"):
        return frozenset(LOOPBACK)
    try:
        return frozenset({str(ipaddress.ip_address(host))})
    except ValueError:
        return frozenset()


def cut(name: str, ending: str = "") -> str:
    """At most 120 characters: of a longer name its beginning and a digest of the whole, and always the short ending."""
    room = _LONGEST - len(ending)
    if len(name) <= room:
        return name + ending
    digest = hashlib.blake2s(name.encode("utf-8", "backslashreplace"), digest_size=_DIGEST).hexdigest()
    return f"{name[: room - len(digest) - 1]}~{digest}{ending}"
