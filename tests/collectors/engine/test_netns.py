"""The tables of a network namespace, as they are and as they should not be."""

import errno
from pathlib import Path

import pytest

from oomcast_collectors.engine.netns import Namespace, read_namespace

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
REST = "00000000:00000000 00:00000000 00000000  1000        0 {inode} 1 0000000048cea114 100 0 0 10 0\n"
TRIE = """Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 127.0.0.0/8 2 0 2
        +-- 127.0.0.0/31 1 0 0
           |-- 127.0.0.0
              /8 host LOCAL
           |-- 127.0.0.1
              /32 host LOCAL
        |-- 127.255.255.255
           /32 link BROADCAST
"""
LEAF = "     |-- {}\n        /32 host LOCAL\n"
ROUTES = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"


def row(address: str, port: int, inode: int, state: str = "0A") -> str:
    return f"   0: {address}:{port:04X} {'0' * len(address)}:0000 {state} " + REST.format(inode=inode)


def namespace(proc: Path, **files: str) -> Namespace:
    folder = proc / "7/net"
    folder.mkdir(parents=True)
    for name, text in {"tcp": HEAD, **files}.items():
        (folder / name).write_text(text)
    return read_namespace(str(proc), 7)


def test_sockets_that_listen_by_inode(tmp_path: Path) -> None:
    tcp = HEAD + row("0100007F", 8000, 11) + row("00000000", 80, 12) + row("0100007F", 9, 13, "01")
    tcp6 = (
        HEAD
        + row("0" * 32, 8001, 21)
        + row("00000000000000000000000001000000", 8002, 22)
        + row("0000000000000000FFFF00000100007F", 8003, 23)
    )
    assert namespace(tmp_path, tcp=tcp, tcp6=tcp6).sockets == {
        11: ("127.0.0.1", 8000),
        12: ("0.0.0.0", 80),
        21: ("::", 8001),
        22: ("::1", 8002),
        23: ("127.0.0.1", 8003),
    }


def test_garbage_costs_the_garbage_alone(tmp_path: Path) -> None:
    whole = row("0100007F", 8000, 11)
    tcp = HEAD + "   1: 0100007F:1F40 nonsense 0A\n\0\0\n" + whole + whole[:90]
    trie = TRIE + LEAF.format("999.1.1.1") + LEAF.format("1.2.3") + LEAF.format("10.1.2.3") + "     |-- 10."
    found = namespace(tmp_path, tcp=tcp, tcp6="\n" * 1000, fib_trie=trie, if_inet6="zz 01\n", route="x\t\t\t\n")
    assert found == Namespace({11: ("127.0.0.1", 8000)}, frozenset({"127.0.0.1", "10.1.2.3"}), "10.1.2.3", "")


def test_a_table_of_many_connections_is_read_in_part(tmp_path: Path) -> None:
    tcp = HEAD + row("0100007F", 8000, 11) + row("0100007F", 8000, 12, "01") * 5000 + row("0100007F", 8001, 13)
    assert namespace(tmp_path, tcp=tcp).sockets == {11: ("127.0.0.1", 8000)}


def test_a_process_that_ended(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        read_namespace(str(tmp_path), 7)
    assert caught.value.errno == errno.ENOENT


# The network of the pod on eth0, and another one for RDMA whose addresses come first.
ROUTE = "{}\t{}\t{}\t0003\t0\t0\t0\t{}\t0\t0\t0\n"
NETWORK = ROUTE.format("eth0", "00000000", "01F4A80A", "00000000") + ROUTE.format(
    "eth0", "00F4A80A", "0" * 8, "00FFFFFF"
)
SINGLE = ROUTE.format("eth0", "00000000", "0101FEA9", "00000000") + ROUTE.format("eth0", "0101FEA9", "0" * 8, "F" * 8)
RDMA = ROUTE.format("rdma0", "0000010A", "0" * 8, "0000FFFF")


@pytest.mark.parametrize("routes", [NETWORK + RDMA, RDMA + SINGLE])
def test_of_several_addresses_the_one_on_the_default_route(tmp_path: Path, routes: str) -> None:
    trie = TRIE + LEAF.format("10.1.0.9") + LEAF.format("10.168.244.7") + LEAF.format("10.1.0.10")
    found = namespace(tmp_path, fib_trie=trie, route=ROUTES + routes)
    assert found.v4 == "10.168.244.7"
    assert found.answers("0.0.0.0") == {"127.0.0.1", "10.1.0.9", "10.168.244.7", "10.1.0.10"}


def test_ipv6_addresses_by_their_scope(tmp_path: Path) -> None:
    table = (
        "fe8000000000000049423fffe9db8a70 03 40 20 80     eth0\n"
        "00000000000000000000000000000001 01 80 10 80       lo\n"
        "fd000000000000000000000000000002 03 40 00 82     eth0\n"
    )
    found = namespace(tmp_path, fib_trie=TRIE + LEAF.format("10.1.0.9"), if_inet6=table)
    assert found.addresses == {"127.0.0.1", "10.1.0.9", "::1", "fd00::2"}
    assert (found.v4, found.v6) == ("10.1.0.9", "fd00::2")


SPACE = Namespace({}, frozenset({"127.0.0.1", "10.1.0.9", "::1", "fd00::2"}), "10.1.0.9", "fd00::2")
V4_ONLY = Namespace({}, frozenset({"127.0.0.1", "10.1.0.9"}), "10.1.0.9", "")


@pytest.mark.parametrize(
    ("space", "bound", "inside", "outside"),
    [
        (SPACE, "0.0.0.0", "127.0.0.1", "10.1.0.9"),
        (SPACE, "::", "::1", "fd00::2"),
        (V4_ONLY, "::", "127.0.0.1", "10.1.0.9"),
        (SPACE, "127.0.0.1", "127.0.0.1", ""),
        (SPACE, "::1", "::1", ""),
        (SPACE, "10.1.0.9", "10.1.0.9", "10.1.0.9"),
        (SPACE, "fe80::1", "", ""),
        (Namespace({}, frozenset(), "", ""), "0.0.0.0", "127.0.0.1", ""),
    ],
)
def test_where_a_socket_is_reached(space: Namespace, bound: str, inside: str, outside: str) -> None:
    assert space.reached(bound, inside=True) == inside
    assert space.reached(bound, inside=False) == outside


def test_sockets_at_an_address() -> None:
    space = Namespace(
        {1: ("0.0.0.0", 80), 2: ("10.1.0.9", 80), 3: ("::", 80), 4: ("127.0.0.1", 81)}, SPACE.addresses, "", ""
    )
    assert space.at(80, ["127.0.0.1"]) == {1, 3}
    assert space.at(80, ["fd00::2"]) == {3}
    assert space.at(80, ["10.1.0.9"]) == {1, 2, 3}
    assert space.at(81, ["10.1.0.9", "::1"]) == set()
