"""Starting, stopping and addresses of the server."""

import asyncio
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from daemon import without_ipv6
from daemon.web_harness import TEXT, Body, Running, app, read_all, serving
from oomcast.webconnection import Limits
from oomcast.webserver import ListenError, Server


@pytest.fixture(scope="module")
def plain() -> Iterator[Running]:
    with serving(app()) as running:
        yield running


BIND = """
import asyncio, sys
from oomcast.webserver import _bind
print(len(asyncio.run(_bind(sys.argv[1], 8))), "listener")
"""


async def _slow(scope: Scope, receive: Receive, send: Send) -> None:
    await asyncio.sleep(0.4 if scope["path"] == "/short" else 60)
    await PlainTextResponse("done")(scope, receive, send)


def test_stop_lets_a_request_finish_and_cuts_off_a_longer_one() -> None:
    with serving(_slow) as running:
        with running.connect() as short, running.connect() as long, running.connect() as idle:
            short.sendall(b"GET /short HTTP/1.1\r\nHost: x\r\n\r\n")
            long.sendall(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
            time.sleep(0.1)
            began = time.monotonic()
            running.call(running.server.stop(1.0))
            took = time.monotonic() - began
            assert read_all(short).endswith(b"done")
            assert read_all(long) == b""
            assert read_all(idle) == b""
        assert 0.9 < took < 1.6
        with pytest.raises(ConnectionRefusedError):
            running.connect()


def test_stop_does_not_wait_for_idle_connections_or_readers_that_do_not_read() -> None:
    big = Body(b"# " + b"x" * 20_000_000 + b"\n")
    with serving(app(big)) as running, httpx.Client(base_url=running.url) as client:
        client.get("/-/healthy")
        began = time.monotonic()
        running.call(running.server.stop(5))
        assert time.monotonic() - began < 0.5
    with serving(app(big)) as running, running.connect() as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(0.2)
        began = time.monotonic()
        running.call(running.server.stop(0.3))
        assert time.monotonic() - began < 1


def test_address_in_use_is_said_before_serving(plain: Running) -> None:
    address = plain.url.removeprefix("http://")
    with (
        pytest.raises(ListenError, match=f"cannot listen on {address}: Address already in use"),
        serving(app(), address),
    ):
        pass


@pytest.mark.parametrize(
    "listen", ["", "9745", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:70000", "::1:9745", "[::1:9745", "a:1:2", ":²"]
)
def test_malformed_addresses(listen: str) -> None:
    with pytest.raises(ListenError, match=r"should be host:port, \[IPv6\]:port or :port"), serving(app(), listen):
        pass


def test_unknown_host() -> None:
    with (
        pytest.raises(ListenError, match=r"cannot listen on nowhere\.invalid:1: "),
        serving(app(), "nowhere.invalid:1"),
    ):
        pass


def test_ipv6() -> None:
    with serving(app(), "[::1]:0") as running:
        assert re.fullmatch(r"http://\[::1\]:\d+", running.url)
        assert httpx.get(running.url + "/metrics").content == TEXT


def test_every_address_with_one_port() -> None:
    with serving(app(), ":0") as running:
        port = running.address[1]
        for host in ("127.0.0.1", "[::1]"):
            assert httpx.get(f"http://{host}:{port}/metrics").content == TEXT


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter is for x86-64")
@pytest.mark.parametrize(("listen", "what"), [(":0", "1 listener"), ("[::1]:0", "Address family not supported")])
def test_a_kernel_without_ipv6(listen: str, what: str) -> None:
    command = [sys.executable, without_ipv6.__file__, sys.executable, "-c", BIND, listen]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert what in done.stdout + done.stderr


def test_signals_stay_with_the_caller() -> None:
    def handlers() -> list[object]:
        return [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]

    async def run() -> None:
        before = handlers()
        server = Server(app(), "127.0.0.1:0")
        await server.start()
        assert handlers() == before
        await server.stop(1)
        assert handlers() == before

    asyncio.run(run())


def test_a_flood_of_connections_leaves_nothing_behind() -> None:
    with serving(app(), limits=Limits(connections=8)) as running:
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(5):
            flood = [running.connect() for _ in range(100)]
            assert httpx.get(running.url + "/metrics").content == TEXT
            for connection in flood:
                connection.close()
        deadline = time.monotonic() + 5
        while len(list(Path("/proc/self/fd").iterdir())) > before and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(list(Path("/proc/self/fd").iterdir())) == before
