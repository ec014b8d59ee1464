"""Engines that are slow, refuse, lie or never end: counted by reason, and nobody else's trouble."""

import gzip
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from e2e.engines import Engine, Node, Script, endpoint, page, send, serving, watching
from e2e.program import until
from e2e.stack import fetch

VLLM, LLAMACPP = "vllm-cpu-0.32.0-prefix", "llamacpp-b11434-prefix"
MIB = 1 << 20


def reason(node: Node, engine: str, wanted: str) -> bool:
    return (node.value("engine_scrape_errors_total", engine, reason=wanted) or 0) >= 2


def impatient(**engines: Engine) -> Iterator[str]:
    return (endpoint(engine, name, timeout=1) for name, engine in engines.items())


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Node, Engine, Engine]]:
    """A daemon that watches the engines a, for trouble, and b, which stays well."""
    with serving(VLLM, VLLM) as (one, other), watching(tmp_path, *impatient(a=one, b=other)) as node:
        until(lambda: node.up("a") and node.up("b"))
        yield node, one, other


def unharmed(node: Node, other: Engine) -> bool:
    """Whether the other engine is fresh, and a scrape fast."""
    other.says(num_requests_running=7.0)
    end = time.monotonic() + 3
    while node.value("engine_requests_running", "b") != 7 and time.monotonic() < end:
        began = time.monotonic()
        fetch(f"{node.daemon.url}/metrics")
        assert time.monotonic() - began < 0.5
    return node.value("engine_requests_running", "b") == 7


def test_a_slow_engine(pair: tuple[Node, Engine, Engine]) -> None:
    node, one, other = pair
    one.hang()
    assert unharmed(node, other)
    until(lambda: reason(node, "a", "timeout"))
    assert node.value("engine_up", "a") == 0
    assert node.daemon.value("oomcast_collector_up", 'collector="engine"') == 1
    one.hang(False)
    until(lambda: node.up("a"))
    assert node.daemon.log.count("no whole answer within 1 s") == 1


def endless(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.end_headers()
    while True:
        request.wfile.write(b"vllm:num_requests_running 1.0\n" * 2000)


def drip(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.end_headers()
    while True:
        request.wfile.write(b"#")
        request.wfile.flush()
        time.sleep(0.05)


def no_http(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"\x16\x03\x01\x00\xa5 this is no HTTP\r\n\r\n")
    request.close_connection = True


def cut(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.send_header("content-length", str(MIB))
    request.end_headers()
    request.wfile.write(page(VLLM))
    request.close_connection = True


def bomb(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.send_header("content-encoding", "gzip")
    request.send_header("content-length", str(len(BOMB)))
    request.end_headers()
    request.wfile.write(BOMB)


BOMB = gzip.compress(b"\n" * (64 * MIB), 1)


@pytest.mark.parametrize(
    ("script", "wanted"),
    [(endless, "too_large"), (drip, "timeout"), (no_http, "broken"), (cut, "broken"), (bomb, "too_large")],
)
def test_a_hostile_answer(pair: tuple[Node, Engine, Engine], script: Script, wanted: str) -> None:
    node, one, other = pair
    one.pages["/metrics"] = script
    until(lambda: reason(node, "a", wanted))
    assert unharmed(node, other)
    one.pages["/metrics"] = page(VLLM)
    until(lambda: node.up("a"))
    assert node.value("engine_restarts_total", "a") == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>" * 1000,
        b"\xff\x00\n" * 10_000,
        # Of a Python process, and of no engine.
        b"process_start_time_seconds 1.7e+09\nhttp_requests_total 5.0\n",
    ],
)
def test_a_page_that_loses_its_metrics(pair: tuple[Node, Engine, Engine], body: bytes) -> None:
    node, one, other = pair
    one.pages["/metrics"] = body
    until(lambda: reason(node, "a", "unknown"))
    assert node.value("engine_up", "a") == 0
    assert unharmed(node, other)
    one.pages["/metrics"] = page(VLLM)
    until(lambda: node.up("a"))


def test_lines_that_cannot_be_read_cost_themselves(pair: tuple[Node, Engine, Engine]) -> None:
    node, one, _ = pair
    one.pages["/metrics"] = (
        page(VLLM).replace(b"vllm:num_requests_running{", b"vllm:num_requests_running{{")
        + b"vllm:num_preemptions_total{engine=\n"
        + b'vllm:kv_cache_usage_perc{engine="\xff\\n"} -5\n'
        + b'vllm:request_success_total{finished_reason="\xff\\"evil\\n"} 1e300\n'
    )
    until(lambda: (node.value("engine_scrape_malformed_lines_total", "a") or 0) >= 4)
    assert node.up("a")
    assert node.value("engine_requests_running", "a") is None
    assert (node.value("kv_cache_usage_ratio", "a") or 0) >= 0
    assert "level=error" not in node.daemon.log


@pytest.mark.parametrize("status", [301, 401, 404, 500, 503])
def test_a_status(pair: tuple[Node, Engine, Engine], status: int) -> None:
    node, one, other = pair
    one.status["/metrics"] = status
    until(lambda: reason(node, "a", "status"))
    assert node.value("engine_up", "a") == 0
    assert node.daemon.log.count(f"HTTP {status}") == 1
    assert unharmed(node, other)


def test_a_status_from_the_beginning(tmp_path: Path) -> None:
    with serving(VLLM, VLLM, VLLM) as (missing, broken, locked):
        del missing.pages["/metrics"]
        broken.status["/metrics"] = 500
        locked.token = "geheim"
        ends = map(endpoint, (missing, broken, locked), "abc")
        with watching(tmp_path, *ends) as node:
            until(lambda: reason(node, "a", "unknown") and reason(node, "b", "status") and reason(node, "c", "status"))
            assert "no metrics of a known engine; they may be switched off" in node.daemon.log
            assert "HTTP 401" in node.daemon.log


def test_a_token_and_its_rotation(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    with serving(VLLM) as (engine,):
        engine.token = "one"
        with watching(tmp_path, endpoint(engine, "a", bearer_token_file=token)) as node:
            until(lambda: node.up("a"))
            engine.token = "another"
            until(lambda: reason(node, "a", "status"))
            token.write_text("another\n")
            until(lambda: node.up("a"))
            token.unlink()
            until(lambda: reason(node, "a", "config"))
            assert "one\n" not in node.daemon.log
            assert "another" not in node.daemon.log


def test_a_packed_page(tmp_path: Path) -> None:
    with serving(VLLM) as (engine,):
        engine.packed = True
        with watching(tmp_path, endpoint(engine, "a")) as node:
            until(lambda: node.up("a"))
            assert node.value("kv_cache_queries_total", "a") == 10550


def garbage(request: BaseHTTPRequestHandler) -> None:
    send(request, b"[" * 100_000)


def late(request: BaseHTTPRequestHandler) -> None:
    time.sleep(30)


@pytest.mark.parametrize("script", [garbage, late, endless])
def test_other_pages_are_not_needed(tmp_path: Path, script: Script) -> None:
    with serving(VLLM) as (engine,):
        for path in ("/v1/models", "/version", "/health"):
            engine.pages[path] = script
        with watching(tmp_path, endpoint(engine, "a")) as node:
            until(lambda: node.up("a"), 10)
            assert node.value("engine_requests_running", "a") == 0
            assert "version" not in next(line for line in node.text().splitlines() if "oomcast_engine_info{" in line)


@pytest.mark.parametrize("script", [garbage, late])
def test_slots_that_are_not_told(tmp_path: Path, script: Script) -> None:
    with serving(LLAMACPP) as (engine,):
        engine.pages["/slots"] = script
        engine.pages["/props"] = b'{"total_slots": 4, "default_generation_settings": {"n_ctx": 4096}}'
        with watching(tmp_path, endpoint(engine, "a")) as node:
            until(lambda: node.up("a"), 10)
            assert node.value("kv_cache_capacity_tokens", "a") == 16384
            assert node.value("kv_cache_headroom_tokens", "a") is None
            node.looks(engine)
            assert node.value("engine_scrape_errors_total", "a", reason="timeout") is None
