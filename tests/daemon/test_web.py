"""The web side over real sockets: what it answers, to whom, and what a client cannot do to the others."""

import asyncio
import logging
import re
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice
from pathlib import Path

import bcrypt
import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.exposition import choose_encoder
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from daemon.web_harness import OPENMETRICS, TEXT, Authority, Body, Checks, Running, app, read_all, serving
from oomcast import __version__
from oomcast.page import Row
from oomcast.web import accepts_gzip, negotiate
from oomcast.webconfig import RateLimit, WebConfig, load
from oomcast.webconnection import Limits
from oomcast.webserver import ListenError, Server

PLAIN = "text/plain; version=0.0.4; charset=utf-8"
OM_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.fixture(scope="module")
def plain() -> Iterator[Running]:
    with serving(app()) as running:
        yield running


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("pki")).create()
    made.issue("server", "IP:127.0.0.1")
    made.issue("scraper", "DNS:prometheus")
    made.issue("other", "DNS:other")
    Authority(made.folder, "stranger").create().issue("intruder", "DNS:prometheus")
    return made


def test_metrics_in_both_formats(plain: Running) -> None:
    with httpx.Client(base_url=plain.url, headers={"accept-encoding": "identity"}) as client:
        text = client.get("/metrics")
        openmetrics = client.get("/metrics", headers={"accept": PROMETHEUS})
    assert (text.status_code, text.content, text.headers["content-type"]) == (200, TEXT, PLAIN)
    assert text.headers["content-length"] == str(len(TEXT))
    assert text.headers["vary"] == "Accept, Accept-Encoding"
    assert "content-encoding" not in text.headers
    assert (openmetrics.status_code, openmetrics.content) == (200, OPENMETRICS)
    assert openmetrics.headers["content-type"] == OM_TYPE + "; escaping=allow-utf-8"


def test_metrics_compressed(plain: Running) -> None:
    with httpx.stream("GET", plain.url + "/metrics", headers={"accept-encoding": "gzip"}) as response:
        raw = b"".join(response.iter_raw())
    assert response.headers["content-encoding"] == "gzip"
    assert response.headers["content-length"] == str(len(raw))
    assert raw[:2] == b"\x1f\x8b"
    assert httpx.get(plain.url + "/metrics").content == TEXT


def test_head_has_the_headers_of_get(plain: Running) -> None:
    got, head = httpx.get(plain.url + "/metrics"), httpx.head(plain.url + "/metrics")
    assert head.status_code == 200
    assert head.content == b""
    assert {**head.headers, "date": ""} == {**got.headers, "date": ""}


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
        "text/plain",
        "text/plain;version=0.0.4",
        "text/plain; version=1.0.0; escaping=dots",
        "text/plain;version=1.0.0",
        "application/openmetrics-text",
        "application/openmetrics-text;version=1.0.0",
        "application/openmetrics-text; version=1.0.0; escaping=values",
        "application/openmetrics-text;version=1.0.0;escaping=new",
        "application/openmetrics-text;version=0.0.1",
        "application/openmetrics-text;version=0.0.1,text/plain;version=1.0.0;escaping=underscores",
        "application/json",
        PROMETHEUS,
    ],
)
def test_negotiates_as_prometheus_client_does(accept: str) -> None:
    encoder, content_type = choose_encoder(accept)
    assert negotiate(accept) == ("openmetrics" in getattr(encoder, "func", encoder).__module__, content_type)


@pytest.mark.parametrize(
    ("accept", "openmetrics", "content_type"),
    [
        ("application/openmetrics-text;version=1.0.0;q=0", False, PLAIN),
        ("application/openmetrics-text;version=1.0.0;q=0.2,text/plain;version=0.0.4;q=0.9", False, PLAIN),
        ("application/openmetrics-text;version=1.0.0;q=high", False, PLAIN),
        ("application/openmetrics-text;version=9.9.9", False, PLAIN),
        ("application/openmetrics-text;version=x.y", False, PLAIN),
        (
            'APPLICATION/OPENMETRICS-TEXT;VERSION="1.0.0"',
            True,
            negotiate(PROMETHEUS).content_type[:-11] + "underscores",
        ),
    ],
)
def test_negotiates_beyond_prometheus_client(accept: str, openmetrics: bool, content_type: str) -> None:
    assert negotiate(accept) == (openmetrics, content_type)


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("", False),
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip;q=0.000, *", False),
        ("identity", False),
        ("*", True),
        ("*;q=0", False),
        ("gzip;q=inf", False),
        ("br,zstd", False),
    ],
)
def test_gzip_negotiation(header: str, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted


@given(st.text(max_size=60) | st.text(alphabet='gzip*text/plain;,= q0.1version"', max_size=80))
def test_no_header_breaks_negotiation(header: str) -> None:
    assert negotiate(header).content_type
    assert accepts_gzip(header) in (True, False)


def test_other_paths_and_methods(plain: Running) -> None:
    with httpx.Client(base_url=plain.url) as client:
        for path in ("/metrics/", "/metric", "/-/", "/index.html", "/%00", "/..%2f..%2fetc/passwd"):
            response = client.get(path)
            assert (response.status_code, response.text) == (404, "Not Found")
            assert response.headers["content-type"] == "text/plain; charset=utf-8"
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "BREW"):
            response = client.request(method, "/metrics")
            assert (response.status_code, response.text) == (405, "Method Not Allowed")
            assert sorted(response.headers["allow"].split(", ")) == ["GET", "HEAD"]


def test_health() -> None:
    checks = Checks()
    with serving(app(checks=checks)) as running, httpx.Client(base_url=running.url) as client:
        assert (client.get("/-/healthy").status_code, client.get("/-/healthy").text) == (200, "the loop runs\n")
        checks.health, checks.readiness = (False, "stuck for 9 s"), (False, "gpu has not run")
        assert (client.get("/-/healthy").status_code, client.get("/-/healthy").text) == (503, "stuck for 9 s\n")
        assert (client.get("/-/ready").status_code, client.get("/-/ready").text) == (503, "gpu has not run\n")


def test_headers_on_every_response(plain: Running) -> None:
    for path in ("/", "/metrics", "/nothing"):
        headers = httpx.get(plain.url + path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")
        assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", headers["date"])
        assert "server" not in headers


def test_configured_headers_replace_and_remove() -> None:
    chosen = {"Content-Security-Policy": "", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "deny"}
    with serving(app(config=WebConfig(headers=chosen))) as running:
        headers = httpx.get(running.url + "/").headers
    assert "content-security-policy" not in headers
    assert headers.get_list("x-content-type-options") == ["nosniff"]
    assert headers["x-frame-options"] == "deny"


def test_landing_page_escapes_what_it_shows() -> None:
    rows = (Row("gpu<script>", "failure", 'NVML: "lost" & gone', "GPUs"), Row("ib", "absent"))
    with serving(app(rows=rows)) as running:
        response = httpx.get(running.url + "/")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert "<script" not in response.text
    assert 'gpu&lt;script&gt;<small>GPUs</small></th><td><span class="bad">failing</span></td>' in response.text
    assert "<td>NVML: &quot;lost&quot; &amp; gone</td>" in response.text
    assert '<span class="off">not on this machine</span>' in response.text
    assert "<title>oomcast on node-7</title>" in response.text
    assert f"Version {__version__}." in response.text
    for target in ("metrics", "-/healthy", "-/ready"):
        assert f'<a href="{target}">' in response.text
    assert "http" not in response.text


def test_rate_limit() -> None:
    with serving(app(config=WebConfig(rate_limit=RateLimit(60, 2)))) as running:
        statuses = [httpx.get(running.url + "/metrics").status_code for _ in range(3)]
    assert statuses == [200, 200, 429]


def test_a_render_that_fails_is_a_500_for_that_request(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Body):
        def render(self, openmetrics: bool, gzip: bool) -> list[bytes]:
            raise RuntimeError("broken store")

    with serving(app(Broken())) as running:
        assert httpx.get(running.url + "/metrics").status_code == 500
        assert httpx.get(running.url + "/metrics").status_code == 500
        assert httpx.get(running.url + "/-/healthy").status_code == 200
    assert [record.message.strip() for record in caplog.records if record.levelno >= logging.ERROR] == [
        "Exception in ASGI application"
    ]


# --- who may ---------------------------------------------------------------------------------------------------


def _hash(password: str, rounds: int = 4) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(rounds)).decode()


def test_everything_needs_a_password_when_users_are_configured() -> None:
    config = WebConfig(users={"al": _hash("pa:ss"), "zoë": _hash("x" * 72)})
    with serving(app(config=config)) as running, httpx.Client(base_url=running.url) as client:
        for path in ("/", "/metrics", "/-/healthy", "/-/ready", "/nothing"):
            refused = client.get(path)
            assert (refused.status_code, refused.text) == (401, "Unauthorized\n")
            assert refused.headers["www-authenticate"] == 'Basic realm="oomcast", charset="UTF-8"'
            assert refused.headers["x-content-type-options"] == "nosniff"
        assert client.get("/metrics", auth=("al", "pa:ss")).content == TEXT
        assert client.get("/metrics", auth=("zoë", "x" * 72)).status_code == 200
        # As with every bcrypt implementation, what follows the 72nd byte was never part of the hash.
        assert client.get("/metrics", auth=("zoë", "x" * 90)).status_code == 200
        for wrong in (("al", "pa:s"), ("al", ""), ("bob", "pa:ss"), ("", ""), ("al", "x" * 9000), ("al", "pa:ss\0")):
            assert client.get("/metrics", auth=wrong).status_code == 401


@pytest.mark.parametrize(
    "value", ["Basic", "Basic !!!", "Basic YWw=", "Bearer YWw6cGE=", "Basic YWw6cGE", "basic \xff", "Basic ////"]
)
def test_garbage_credentials_are_401(value: str) -> None:
    with serving(app(config=WebConfig(users={"al": _hash("pa")}))) as running:
        response = httpx.get(running.url, headers=[(b"authorization", value.encode("latin-1"))])
        assert response.status_code == 401
        twice = [("authorization", "Basic YWw6cGE="), ("authorization", "Basic YWw6cGE=")]
        assert httpx.get(running.url, headers=twice).status_code == 401
        assert httpx.get(running.url, headers=twice[:1]).status_code == 200


class Hashing:
    """bcrypt itself, counted; it waits while the gate is closed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.gate = threading.Event()
        self.gate.set()
        self._real = bcrypt.checkpw
        monkeypatch.setattr(bcrypt, "checkpw", self._check)

    def _check(self, password: bytes, hashed: bytes) -> bool:
        self.count += 1
        assert self.gate.wait(10)
        return self._real(password, hashed)


@pytest.fixture
def hashing(monkeypatch: pytest.MonkeyPatch) -> Hashing:
    return Hashing(monkeypatch)


def test_verdicts_are_remembered_until_the_users_change(hashing: Hashing) -> None:
    application = app(config=WebConfig(users={"al": _hash("old")}))
    with serving(application) as running, httpx.Client(base_url=running.url) as client:
        for _ in range(3):
            assert client.get("/metrics", auth=("al", "old")).status_code == 200
            assert client.get("/metrics", auth=("al", "bad")).status_code == 401
            assert client.get("/metrics", auth=("nobody", "bad")).status_code == 401
        assert hashing.count == 3

        async def change() -> None:
            application.configure(WebConfig(users={"al": _hash("new")}))

        running.call(change())
        assert client.get("/metrics", auth=("al", "old")).status_code == 401
        assert client.get("/metrics", auth=("al", "new")).status_code == 200
        for attempt in range(150):
            client.get("/metrics", auth=("al", str(attempt)))
        before = hashing.count
        assert client.get("/metrics", auth=("al", "new")).status_code == 200
        assert hashing.count == before, "guessing pushed the known user out"
        client.get("/metrics", auth=("al", "0"))
        assert hashing.count == before + 1, "wrong verdicts are kept without a bound"


def _ask(running: Running, user: str, password: str) -> int:
    return httpx.get(running.url, auth=(user, password)).status_code


def test_hashing_blocks_nobody_and_is_done_once_for_all(hashing: Hashing) -> None:
    users = {"al": _hash("slow"), "quick": _hash("quick")}
    with serving(app(config=WebConfig(users=users))) as running, ThreadPoolExecutor(4) as clients:
        assert _ask(running, "quick", "quick") == 200
        hashing.gate.clear()
        waiting = [clients.submit(_ask, running, "al", "slow") for _ in range(4)]
        assert [_ask(running, "quick", "quick") for _ in range(3)] == [200, 200, 200]
        assert not any(future.done() for future in waiting)
        hashing.gate.set()
        assert [future.result() for future in waiting] == [200] * 4
    assert hashing.count == 2


def test_a_flood_of_guesses_is_turned_away_while_known_users_go_on(hashing: Hashing) -> None:
    with serving(app(config=WebConfig(users={"al": _hash("known")}))) as running, ThreadPoolExecutor(24) as clients:
        assert _ask(running, "al", "known") == 200
        hashing.gate.clear()
        guesses = [clients.submit(_ask, running, "al", str(number)) for number in range(24)]
        turned_away = [future.result() for future in islice(as_completed(guesses), 8)]
        assert turned_away == [429] * 8
        assert _ask(running, "al", "known") == 200
        assert _ask(running, "al", "another") == 429
        hashing.gate.set()
        assert sorted(future.result() for future in guesses) == [401] * 16 + [429] * 8


def test_a_request_that_waits_for_its_hash_does_not_delay_the_stop(
    hashing: Hashing, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(app(config=WebConfig(users={"al": _hash("known")}))) as running, ThreadPoolExecutor(1) as clients:
        hashing.gate.clear()
        waiting = clients.submit(_ask, running, "al", "known")
        while not hashing.count:
            time.sleep(0.01)
        began = time.monotonic()
        running.call(running.server.stop(0.2))
        assert time.monotonic() - began < 1.5
        with pytest.raises(httpx.TransportError):
            waiting.result()
        hashing.gate.set()
    assert caplog.records == []


# --- TLS -------------------------------------------------------------------------------------------------------


def _config(authority: Authority, extra: str = "", certificate: str = "server") -> WebConfig:
    path = authority.folder / "web.yml"
    path.write_text(f"tls_server_config: {{cert_file: {certificate}.crt, key_file: {certificate}.key{extra}}}\n")
    return load(path)


def _client(authority: Authority, name: str = "") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if name:
        context.load_cert_chain(authority.folder / f"{name}.crt", authority.folder / f"{name}.key")
    return context


def _refused(running: Running, context: ssl.SSLContext) -> bool:
    """Whether the server ends the connection rather than answer; with TLS 1.3 the client learns it when reading."""
    try:
        return httpx.get(running.url + "/metrics", verify=context).status_code == 0
    except httpx.TransportError:
        return True


def test_tls(authority: Authority) -> None:
    with serving(app(), tls=_config(authority).tls) as running:
        assert running.url.startswith("https://127.0.0.1:")
        assert httpx.get(running.url + "/metrics", verify=_client(authority)).content == TEXT
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(running.url + "/metrics")
        with pytest.raises(httpx.TransportError):
            httpx.get(running.url.replace("https", "http") + "/metrics")
        assert httpx.get(running.url + "/metrics", verify=_client(authority)).content == TEXT


def test_versions_and_the_curve_hold_in_the_handshake(authority: Authority) -> None:
    with serving(app(), tls=_config(authority, ", min_version: TLS13").tls) as running:
        old = _client(authority)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        assert _refused(running, old)
        assert not _refused(running, _client(authority))
    with serving(app(), tls=_config(authority, ", min_version: TLS13, curve_preferences: [CurveP384]").tls) as running:
        for curve, refused in (("secp384r1", False), ("prime256v1", True)):
            context = _client(authority)
            context.set_ecdh_curve(curve)
            assert _refused(running, context) is refused, curve


def test_mutual_tls(authority: Authority) -> None:
    extra = ", client_ca_file: ca.crt, client_auth_type: RequireAndVerifyClientCert"
    with serving(app(), tls=_config(authority, extra).tls) as running:
        assert not _refused(running, _client(authority, "scraper"))
        assert _refused(running, _client(authority))
        assert _refused(running, _client(authority, "intruder"))
    with serving(app(), tls=_config(authority, extra + ", client_allowed_sans: [prometheus]").tls) as running:
        assert not _refused(running, _client(authority, "scraper"))
        assert _refused(running, _client(authority, "other"))


def test_client_certificate_if_given(authority: Authority) -> None:
    extra = ", client_ca_file: ca.crt, client_auth_type: VerifyClientCertIfGiven"
    with serving(app(), tls=_config(authority, extra).tls) as running:
        assert not _refused(running, _client(authority))
        assert not _refused(running, _client(authority, "scraper"))
        assert _refused(running, _client(authority, "intruder"))


def test_certificates_change_without_a_restart(authority: Authority, tmp_path: Path) -> None:
    def presented(running: Running) -> str:
        return ssl.get_server_certificate(running.address)

    pair = authority.folder / "live.crt", authority.folder / "live.key"
    for path, old in zip(pair, authority.issue("first", "IP:127.0.0.1"), strict=True):
        path.write_bytes(old.read_bytes())
    with serving(app(), tls=_config(authority, certificate="live").tls) as running:
        assert presented(running).strip() == (authority.folder / "first.crt").read_text().strip()
        for path, new in zip(pair, authority.issue("second", "IP:127.0.0.1"), strict=True):
            path.write_bytes(new.read_bytes())
        with httpx.Client(verify=_client(authority)) as client:
            assert client.get(running.url + "/metrics").status_code == 200
            running.configure(_config(authority, certificate="live").tls)
            assert presented(running).strip() == (authority.folder / "second.crt").read_text().strip()
            assert client.get(running.url + "/metrics").status_code == 200
            running.configure(None)
            assert running.server.url.startswith("http://")
            assert httpx.get(running.server.url + "/metrics").content == TEXT


def test_unfinished_handshakes_block_nobody(authority: Authority) -> None:
    limits = Limits(handshake=0.5, connections=4)
    with serving(app(), tls=_config(authority).tls, limits=limits) as running:
        stuck = [running.connect() for _ in range(12)]
        assert not _refused(running, _client(authority))
        began = time.monotonic()
        assert [read_all(connection) for connection in stuck] == [b""] * 12
        assert time.monotonic() - began < 3
        for connection in stuck:
            connection.close()


# --- what a client cannot do -----------------------------------------------------------------------------------


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


# --- starting and stopping -------------------------------------------------------------------------------------


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
    with pytest.raises(ListenError, match=r"is not host:port, \[ipv6\]:port or :port"), serving(app(), listen):
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
