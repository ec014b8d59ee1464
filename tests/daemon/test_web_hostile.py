"""What one client cannot do to the others, over real sockets."""

import logging
import re
import socket
import time
from collections.abc import Iterator

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.web_harness import TEXT, Body, Running, app, read_all, serving
from oomcast.webconnection import Limits


@pytest.fixture(scope="module")
def plain() -> Iterator[Running]:
    with serving(app()) as running:
        yield running


def test_slow_clients_block_nobody_and_are_dropped() -> None:
    limits = Limits(request=0.6, connections=8)
    with serving(app(), limits=limits) as running:
        began = time.monotonic()
        slow = [running.connect() for _ in range(8)]
        for connection in slow:
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-A")
        assert httpx.get(running.url + "/metrics").content == TEXT
        while time.monotonic() - began < 0.5:
            for connection in slow[1:]:
                connection.sendall(b"a")
            time.sleep(0.05)
        assert [read_all(connection) for connection in slow] == [b""] * 8
        assert 0.5 < time.monotonic() - began < 3
        for connection in slow:
            connection.close()


def test_a_body_that_trickles_in_ends_too() -> None:
    with serving(app(), limits=Limits(request=0.5)) as running, running.connect() as connection:
        connection.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
        began = time.monotonic()
        connection.settimeout(0.05)
        answer = b""
        with pytest.raises((BrokenPipeError, ConnectionResetError)):  # noqa: PT012 - it is the loop that ends
            while time.monotonic() - began < 5:
                connection.sendall(b"b")
                try:
                    answer += connection.recv(4096)
                except TimeoutError:
                    continue
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert time.monotonic() - began < 3


def test_a_reader_that_does_not_read_is_dropped() -> None:
    big = Body(b"# " + b"x" * 20_000_000 + b"\n")
    with serving(app(big), limits=Limits(response=0.5)) as running, running.connect() as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(0.2)
        assert httpx.get(running.url + "/-/healthy").status_code == 200
        time.sleep(0.8)
        assert len(read_all(connection)) < 20_000_000


def _until(connection: socket.socket, end: bytes) -> bytes:
    received = b""
    while not received.endswith(end):
        data = connection.recv(4096)
        assert data
        received += data
    return received


def test_idle_connections_end_and_the_oldest_makes_room() -> None:
    with serving(app(), limits=Limits(idle=1, connections=2)) as running:
        connections = []
        for _ in range(3):
            connection = running.connect()
            connection.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
            assert _until(connection, b"the loop runs\n").startswith(b"HTTP/1.1 200 OK")
            connections.append(connection)
        began = time.monotonic()
        assert read_all(connections[0]) == b""
        assert time.monotonic() - began < 0.5
        assert [read_all(connection) for connection in connections[1:]] == [b"", b""]
        assert 0.5 < time.monotonic() - began < 3
        for connection in connections:
            connection.close()


def test_scrapes_at_once_are_bounded() -> None:
    big = Body(b"# " + b"x" * 20_000_000 + b"\n")
    with serving(app(big)) as running:
        readers = [running.connect() for _ in range(17)]
        for reader in readers:
            reader.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert reader.recv(12, socket.MSG_PEEK | socket.MSG_WAITALL)
        firsts = [reader.recv(12) for reader in readers]
        assert firsts == [b"HTTP/1.1 200"] * 16 + [b"HTTP/1.1 503"]
        for reader in readers:
            reader.close()
        assert httpx.get(running.url + "/-/healthy").status_code == 200


HOSTILE = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 200,
    b"GET\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 40_000 + b"\r\n\r\n",
    b"GET /" + b"a" * 20_000,
    b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nA\0: b\r\n\r\n",
]


@pytest.mark.parametrize("request_bytes", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_requests_get_400(request_bytes: bytes, plain: Running, caplog: pytest.LogCaptureFixture) -> None:
    with plain.connect() as connection:
        connection.sendall(request_bytes)
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"Invalid HTTP request received." in answer
    assert httpx.get(plain.url + "/-/healthy").status_code == 200
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_chunk_gone_wrong_after_the_answer(plain: Running, caplog: pytest.LogCaptureFixture) -> None:
    with plain.connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert _until(connection, b"Method Not Allowed").startswith(b"HTTP/1.1 405")
        connection.sendall(b"ZZZ\r\n")
        assert read_all(connection) == b""
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_answers_are_not_held_back_by_nagle(plain: Running) -> None:
    with httpx.Client(base_url=plain.url) as client:
        times = []
        for _ in range(21):
            began = time.monotonic()
            client.get("/nothing")
            times.append(time.monotonic() - began)
    assert sorted(times)[10] < 0.03


def test_pipelined_requests_are_all_answered(plain: Running) -> None:
    with plain.connect() as connection:
        one = b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n"
        connection.sendall(one * 20 + one.replace(b"Host: x", b"Host: x\r\nConnection: close"))
        assert read_all(connection).count(b"HTTP/1.1 200 OK\r\n") == 21


def test_upgrades_are_not_followed(plain: Running) -> None:
    headers = {"connection": "upgrade, close", "upgrade": "websocket", "sec-websocket-key": "x"}
    assert httpx.get(plain.url + "/-/healthy", headers=headers).status_code == 200


@settings(max_examples=40, deadline=None)
@given(data=st.binary(min_size=1, max_size=300))
def test_random_bytes(plain: Running, data: bytes) -> None:
    with plain.connect() as connection:
        connection.sendall(data + b"\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        answer = read_all(connection)
    assert answer == b"" or re.match(rb"HTTP/1.1 (200|400|404|405) ", answer)


def test_floods_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    with serving(app()) as running:
        for _ in range(5):
            with running.connect() as connection:
                connection.sendall(b"nonsense\r\n\r\n")
                read_all(connection)
    assert [record.message for record in caplog.records].count("Invalid HTTP request received.") == 1
