"""What a fetcher asks a server for and as whom, and what it says where there is no page."""

import base64
import gzip
import os
import socket
import threading
from pathlib import Path

import pytest

from oomcast_collectors.fetch import Fetcher, FetchError
from web_servers import Serve, sends

PAGE = b"".join(b'requests_total{path="/%d"} %d\n' % (n, n) for n in range(2000))

Make = type[Fetcher]


def failure(fetcher: Fetcher, path: str = "") -> FetchError:
    with pytest.raises(FetchError) as caught:
        fetcher.get(path)
    assert str(caught.value).startswith(f"{fetcher.name}: ")
    return caught.value


def test_a_page_plain_and_packed(serve: Serve, make: Make) -> None:
    packed = gzip.compress(PAGE)
    for answer in (sends(PAGE), sends(packed, "content-encoding: gzip"), sends(packed, "Content-Encoding: GZIP")):
        server = serve(answer)
        fetcher = make(server.url)
        assert fetcher.get() == fetcher.get() == PAGE
        assert server.requests[0].startswith(b"GET /metrics HTTP/1.1\r\n")
        assert b"\r\naccept-encoding: gzip\r\n" in server.requests[0].lower()


def test_a_page_in_chunks(serve: Serve, make: Make) -> None:
    parts = (PAGE[:1], PAGE[1:5000], PAGE[5000:])
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    start = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    assert make(serve(lambda connection, ended: connection.sendall(start + chunks)).url).get() == PAGE


def test_the_connection_is_kept(serve: Serve, make: Make) -> None:
    server = serve(sends(PAGE), keep=True)
    fetcher = make(server.url)
    assert [fetcher.get() for _ in range(5)] == [PAGE] * 5
    assert (len(server.requests), server.connections) == (5, 1)


def test_a_connection_that_was_closed_meanwhile_is_made_anew(serve: Serve, make: Make) -> None:
    server = serve(sends(PAGE))
    fetcher = make(server.url)
    assert [fetcher.get() for _ in range(3)] == [PAGE] * 3
    assert server.connections == 3


def test_a_connection_that_is_closed_on_the_second_request_is_made_anew(serve: Serve, make: Make) -> None:
    answered: set[int] = set()

    def once(connection: socket.socket, ended: threading.Event) -> None:
        if id(connection) in answered:
            connection.shutdown(socket.SHUT_RDWR)
            return
        answered.add(id(connection))
        kept.append(connection)  # so that no other gets its id
        sends(PAGE)(connection, ended)

    kept: list[socket.socket] = []
    server = serve(once, keep=True)
    fetcher = make(server.url)
    assert [fetcher.get() for _ in range(3)] == [PAGE] * 3
    assert (server.connections, len(server.requests)) == (3, 5)


def test_no_cookie_is_kept(serve: Serve, make: Make) -> None:
    server = serve(sends(PAGE, "set-cookie: a=b; path=/"), keep=True)
    fetcher = make(server.url)
    fetcher.get()
    fetcher.get()
    assert b"cookie" not in server.requests[1].lower()


@pytest.mark.parametrize(
    ("suffix", "path", "asked"),
    [
        ("", "", b"/metrics"),
        ("", "/sub", b"/metrics/sub"),
        ("/?model=a%20b#x", "", b"/metrics/?model=a%20b"),
        ("/?model=x", "/props", b"/metrics/props?model=x"),
    ],
)
def test_paths(serve: Serve, make: Make, suffix: str, path: str, asked: bytes) -> None:
    server = serve(sends(PAGE))
    make(server.url + suffix).get(path)
    assert server.requests[0].split(b" ")[1] == asked


def test_headers(serve: Serve, make: Make) -> None:
    server = serve(sends(PAGE))
    make(server.url, headers={"X-Scope": "a", "Accept": "application/json", "Accept-Encoding": "br"}).get()
    head = server.requests[0].lower().split(b"\r\n")
    assert {b"x-scope: a", b"accept: application/json", b"accept-encoding: gzip", b"user-agent: oomcast"} <= set(head)


def test_nothing_listens(make: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"
    error = failure(make(url))
    assert error.kind == "refused"
    assert str(error).startswith(f"{url}: cannot connect: ")


URLS = [
    "",
    "metrics",
    "ftp://127.0.0.1/",
    "http://",
    "http://[::1",
    "http://a:b/",
    "http://u:pa/ss@h/",
    "http://a b/",
    "http://é\0/",
]


@pytest.mark.parametrize("url", URLS)
def test_no_url(make: Make, url: str) -> None:
    error = failure(make(url))
    assert error.kind == "config"
    assert "pa" not in str(error).partition("path")[0]


def test_a_path_is_no_way_to_another_server(serve: Serve, make: Make) -> None:
    server = serve(sends(PAGE))
    assert failure(make(server.url), "@evil/").kind == "config"
    assert server.requests == []


def test_user_and_password_are_sent_but_not_told(serve: Serve, make: Make) -> None:
    server = serve(sends(b"", status="401 Unauthorized"))
    error = failure(make(server.url.replace("//", "//me:s%40cret@") + "?token=hidden"))
    assert (str(error), error.kind, error.status) == (f"{server.url}: HTTP 401", "status", 401)
    assert b"\r\nauthorization: Basic " + base64.b64encode(b"me:s@cret") + b"\r\n" in server.requests[0]


@pytest.mark.parametrize("value", ["a\nb", "geheim\u20ac", "a\0"])
def test_a_header_that_cannot_be_sent_is_not_told(serve: Serve, make: Make, value: str) -> None:
    error = failure(make(serve(sends(PAGE)).url, headers={"x-key": value}))
    assert (error.kind, str(error).partition(": ")[2]) == ("config", "the URL or a header cannot be sent")
    assert error.__cause__ is None


@pytest.mark.parametrize("status", ["500 Internal Server Error", "404 Not Found", "204 No Content", "503 Busy"])
def test_a_status_other_than_200(serve: Serve, make: Make, status: str) -> None:
    error = failure(make(serve(sends(b"" if status.startswith("204") else PAGE, status=status)).url))
    assert (error.kind, error.status, str(error)[-8:]) == ("status", int(status[:3]), f"HTTP {status[:3]}")


def test_a_redirect_is_not_followed(serve: Serve, make: Make) -> None:
    target = serve(sends(PAGE))
    assert failure(make(serve(sends(b"", f"location: {target.url}", status="302 Found")).url)).status == 302
    assert target.requests == []


def test_the_environments_proxy_is_not_used(serve: Serve, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = serve(sends(b"", status="502 Bad Gateway"))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, proxy.url)
    assert make(serve(sends(PAGE)).url).get() == PAGE
    assert proxy.requests == []


def test_the_token_is_read_again_when_it_changes(serve: Serve, make: Make, tmp_path: Path) -> None:
    server = serve(sends(PAGE), keep=True)
    token = tmp_path / "token"
    token.write_text(" first\n")
    fetcher = make(server.url, bearer_file=token)
    fetcher.get()
    replacement = tmp_path / "new"
    replacement.write_text("other\n")
    os.utime(replacement, ns=(0, token.stat().st_mtime_ns))
    replacement.replace(token)
    fetcher.get()
    lines = [line for request in server.requests for line in request.split(b"\r\n") if b"authorization" in line.lower()]
    assert lines == [b"authorization: Bearer first", b"authorization: Bearer other"]


def test_a_token_that_cannot_be_had(serve: Serve, make: Make, tmp_path: Path) -> None:
    server = serve(sends(PAGE))
    token = tmp_path / "token"
    fetcher = make(server.url, bearer_file=token)

    def said() -> str:
        error = failure(fetcher)
        assert error.kind == "config"
        return str(error).removeprefix(f"{server.url}: ")

    assert said() == f"the token file {token}: No such file or directory"
    for text in (b"", b" \n", b"geheim und geheim", b"geheim\xff", b"x" * 100_000):
        token.write_bytes(text)
        assert said() == f"the token file {token} holds no token"
    token.unlink()
    os.mkfifo(token)
    assert said() == f"the token file {token} holds no token"
    token.unlink()
    token.write_text("t")
    assert fetcher.get() == PAGE
    assert len(server.requests) == 1
