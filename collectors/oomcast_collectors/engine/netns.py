"""What a network namespace says of itself: which sockets listen in it, and at which addresses it is reached."""

import contextlib
import ipaddress
import re
import socket
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from oomcast_collectors.host.files import read_once

_SOCKETS = 512 << 10
_SOCKETS_PART = 16 << 10
# The trie of a node that knows the routes to each pod of a large cluster has megabytes.
_ROUTES = 8 << 20
_ADDRESSES = 256 << 10

_LISTENING = re.compile(
    rb"^ *\d++: ([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4}) [0-9A-F]++:0000 0A(?: ++[0-9A-Fa-f:]++){5} ++(\d{1,20}) ", re.M
)
_LEAF = re.compile(rb"\|-- ([0-9.]{7,15})$|/32 host LOCAL$", re.M)
_INET6 = re.compile(rb"^([0-9a-f]{32}) [0-9a-f]++ [0-9a-f]++ ([0-9a-f]{2}) ", re.M)
_ROUTE = re.compile(rb"^(\S++)\t([0-9A-F]{8})\t([0-9A-F]{8})\t(?:\d++\t){4}([0-9A-F]{8})\t", re.M)
_GLOBAL_SCOPE = b"00"


@dataclass(frozen=True, slots=True)
class Namespace:
    """sockets: (address as bound, port) by inode, of those that listen. addresses: its own with loopback, without those
    that need an interface to be named with them. v4, v6: the ones to reach it at from outside, "" without."""

    sockets: Mapping[int, tuple[str, int]]
    addresses: frozenset[str]
    v4: str
    v6: str

    def answers(self, bound: str) -> frozenset[str]:
        """The addresses that a socket takes connections to."""
        if bound == "0.0.0.0":
            return frozenset(address for address in self.addresses if ":" not in address)
        return self.addresses if bound == "::" else frozenset({bound})

    def at(self, port: int, addresses: Collection[str]) -> set[int]:
        """The sockets (inodes) that take connections to the port at one of these addresses."""
        return {
            inode
            for inode, (bound, own) in self.sockets.items()
            if own == port and not self.answers(bound).isdisjoint(addresses)
        }

    def reached(self, bound: str, *, inside: bool) -> str:
        """Where to connect to, "" where that is not possible. inside: out of this namespace itself."""
        if bound == "0.0.0.0":
            return "127.0.0.1" if inside else self.v4
        if bound == "::":
            # A server may have ruled out IPv4 for it; and where IPv6 is off the socket is there all the same.
            if inside:
                return "::1" if "::1" in self.addresses else "127.0.0.1"
            return self.v6 or self.v4
        address = ipaddress.ip_address(bound)
        if (address.version == 6 and address.is_link_local) or (address.is_loopback and not inside):
            return ""
        return bound


def read_namespace(proc: str, process: int | str) -> Namespace:
    """That of a process. Raises OSError where it has ended."""
    folder = f"{proc}/{process}/net"
    sockets = dict(_listening(_head(Path(folder, "tcp"))))
    with contextlib.suppress(FileNotFoundError):
        sockets |= _listening(_head(Path(folder, "tcp6")))
    v4 = _local(_optional(f"{folder}/fib_trie", _ROUTES))
    v6 = dict(_inet6(_optional(f"{folder}/if_inet6", _ADDRESSES)))
    outside = [address for address in v4 if not ipaddress.ip_address(address).is_loopback]
    return Namespace(
        sockets,
        frozenset((*v4, *v6)),
        _preferred(outside, _optional(f"{folder}/route", _ADDRESSES)),
        next((address for address, scope in v6.items() if scope == _GLOBAL_SCOPE), ""),
    )


def _optional(path: str, limit: int) -> bytes:
    """The file, empty where the kernel has no such protocol."""
    try:
        return read_once(path, limit)
    except FileNotFoundError:
        return b""


def _head(path: Path) -> bytes:
    """The table up to where no more sockets listen: those come first, and behind them may be 100,000 connections."""
    table = b""
    with path.open("rb", buffering=0) as file:
        while len(table) < _SOCKETS and (part := file.read(_SOCKETS_PART)):
            table += part
            if b" 0A " not in part:
                break
    return table


def _listening(table: bytes) -> Iterator[tuple[int, tuple[str, int]]]:
    for address, port, inode in _LISTENING.findall(table):
        yield int(inode), (_address(address), int(port, 16))


def _address(text: bytes) -> str:
    """Words of 32 bits, each in the byte order of the machine."""
    words = (int(text[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(text), 8))
    packed = b"".join(words)
    if len(packed) == 4:
        return socket.inet_ntop(socket.AF_INET, packed)
    address = ipaddress.IPv6Address(packed)
    return str(address.ipv4_mapped or address)


def _local(trie: bytes) -> list[str]:
    """The IPv4 addresses that are the namespace's own, in ascending order of their networks."""
    found: dict[str, None] = {}
    last = b""
    for match in _LEAF.finditer(trie):
        if match[1] is not None:
            last = match[1]
        elif _is_address(last):
            found[last.decode()] = None
    return list(found)


def _is_address(text: bytes) -> bool:
    try:
        socket.inet_pton(socket.AF_INET, text.decode())
    except OSError:
        return False
    return True


def _inet6(table: bytes) -> Iterator[tuple[str, bytes]]:
    for text, scope in _INET6.findall(table):
        address = ipaddress.IPv6Address(bytes.fromhex(text.decode()))
        if not address.is_link_local:
            yield str(address), scope


def _preferred(addresses: list[str], routes: bytes) -> str:
    """A pod may have more interfaces than that of the node's network, for RDMA: the one of the default route counts,
    and before all others an address in no network at all, as some networks give a pod a single address without one."""
    rows = [(name, *map(_number, numbers)) for name, *numbers in _ROUTE.findall(routes)]
    default = next((name for name, destination, _, mask in rows if destination == mask == 0), None)
    networks = [(name, destination, mask) for name, destination, gateway, mask in rows if mask and not gateway]

    def rank(address: str) -> int:
        number = int(ipaddress.IPv4Address(address))
        names = {name for name, destination, mask in networks if number & mask == destination}
        return 0 if default in names else 2 if names else 1

    return min(addresses, key=rank, default="")


def _number(text: bytes) -> int:
    return int.from_bytes(int(text, 16).to_bytes(4, sys.byteorder), "big")
