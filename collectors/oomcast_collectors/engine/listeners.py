"""Which TCP ports processes listen on and where those are reached, in other network namespaces too."""

import contextlib
import errno
import logging
import os
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from oomcast.contract import Context
from oomcast.logs import OnChange
from oomcast_collectors.descriptors import descriptors
from oomcast_collectors.engine.netns import Namespace, read_namespace

LOOPBACK = ("127.0.0.1", "::1")

# Servers listen before they have connections, and numbers of descriptors are given out from 0 on.
_SOCKET = re.compile(r"socket:\[(\d{1,20})\]\Z")
_ENDED = (errno.ENOENT, errno.ESRCH)


class Listener(NamedTuple):
    """address: an IP address to connect to. answers: all that lead to the same socket, in its own namespace."""

    pid: int
    address: str
    port: int
    answers: frozenset[str]

    @property
    def host(self) -> str:
        """address:port as in a URL."""
        return f"{host_of(self.address)}:{self.port}"


class Listeners:
    """Not thread-safe. unreachable: how many sockets of the last `of()` listen on loopback in another namespace."""

    def __init__(self, context: Context) -> None:
        self._proc = os.fspath(context.roots.proc)
        self._told = OnChange(context.log, clock=context.clock)
        self.unreachable = 0

    def of(self, pids: Iterable[int]) -> list[Listener]:
        """By pid, each address and port of a process once. Processes that end meanwhile are left out.

        Raises OSError where the own network namespace is not known.
        """
        own = self._namespace("self")
        namespaces: dict[str, Namespace] = {}
        self.unreachable = 0
        found: dict[tuple[int, str, int], Listener] = {}
        denied = 0
        for pid in sorted(pids):
            try:
                for listener in self._of(pid, own, namespaces):
                    found[listener[:3]] = listener
            except PermissionError:
                denied += 1
            except OSError as error:
                if error.errno not in _ENDED:
                    self._told.report("error", error.errno, logging.WARNING, f"ports of processes: {error}")
        if denied:
            self._told.report(
                "denied", True, logging.WARNING, "ports of some processes cannot be seen: needs CAP_SYS_PTRACE"
            )
        return list(found.values())

    def own(self) -> Namespace:
        """Our own. Raises OSError."""
        return read_namespace(self._proc, "self")

    def holder(self, sockets: Collection[int]) -> int | None:
        """The process with the lowest pid that has one of these sockets (inodes), None where none may be looked into.

        Reads the descriptors of all processes up to that one. Raises OSError where /proc cannot be listed.
        """
        names = (path.name for path in Path(self._proc).iterdir())
        for pid in sorted(int(name) for name in names if name.isdigit() and name.isascii()):
            # It may end, and some may not be looked into: the next one may be it.
            with contextlib.suppress(OSError):
                if any(inode in sockets for inode in self._inodes(pid)):
                    return pid
        return None

    def _of(self, pid: int, own: str, namespaces: dict[str, Namespace]) -> Iterator[Listener]:
        name = self._namespace(pid)
        space = namespaces.get(name)
        if space is None:
            space = namespaces[name] = read_namespace(self._proc, pid)
        for inode in self._inodes(pid):
            if inode not in space.sockets:
                continue
            bound, port = space.sockets[inode]
            address = space.reached(bound, inside=name == own)
            if address:
                yield Listener(pid, address, port, space.answers(bound))
            else:
                self.unreachable += 1

    def _namespace(self, process: int | str) -> str:
        return Path(self._proc, f"{process}/ns/net").readlink().name

    def _inodes(self, pid: int) -> Iterator[int]:
        for target in descriptors(self._proc, pid):
            if match := _SOCKET.match(target):
                yield int(match[1])


def host_of(address: str) -> str:
    """As in a URL."""
    return f"[{address}]" if ":" in address else address
