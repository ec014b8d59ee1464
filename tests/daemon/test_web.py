"""The web side over real sockets: what it answers, to whom, and what a client cannot do to the others."""

import logging
import re
from collections.abc import Iterator

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.exposition import choose_encoder

from daemon.web_harness import OPENMETRICS, TEXT, Body, Checks, Running, app, serving
from oomcast import __version__
from oomcast.page import Row
from oomcast.web import accepts_gzip, negotiate
from oomcast.webconfig import RateLimit, WebConfig

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
