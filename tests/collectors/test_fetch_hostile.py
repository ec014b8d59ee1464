"""Getting a page from servers that do everything wrong. Each is a real one on loopback."""

import gzip
import socket
import threading
import time
import tracemalloc
import zlib
from typing import Any

import pytest

from oomcast_collectors.fetch import Fetcher, FetchError
from web_servers import Answer, Serve, repeats, sends, silent

PAGE = b"".join(b'requests_total{path="/%d"} %d\n' % (n, n) for n in range(2000))

Make = type[Fetcher]


def failure(fetcher: Fetcher) -> FetchError:
    with pytest.raises(FetchError) as caught:
        fetcher.get()
    assert str(caught.value).startswith(f"{fetcher.name}: ")
    return caught.value


@pytest.mark.parametrize(
    "answer",
    [
        lambda connection, ended: connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 999999\r\n\r\n" + PAGE),
        lambda connection, ended: connection.sendall(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n40\r\n" + PAGE[:64] + b"\r\n"
        ),
        lambda connection, ended: connection.sendall(b"HTTP/1.1 200"),
        lambda connection, ended: connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n"),
        lambda connection, ended: None,
    ],
)
def test_answers_that_are_cut_or_no_http(serve: Serve, make: Make, answer: Answer) -> None:
    error = failure(make(serve(answer).url))
    assert error.kind == "broken"
    assert ": the answer broke off or is no HTTP: " in str(error)
    assert len(str(error)) < 400


@pytest.mark.parametrize(
    ("body", "encoding", "said"),
    [
        (PAGE, "gzip", "its gzip data is broken: "),
        (zlib.compress(PAGE), "gzip", "its gzip data is broken: "),
        (gzip.compress(PAGE)[:-100], "gzip", "its gzip data ends too early"),
        (b"", "gzip", "its gzip data ends too early"),
        (gzip.compress(PAGE) + b"\0", "gzip", "there is more behind its gzip data"),
        (PAGE, "br", "packed with 'br', which was not asked for"),
    ],
)
def test_packed_data_that_is_broken(serve: Serve, make: Make, body: bytes, encoding: str, said: str) -> None:
    error = failure(make(serve(sends(body, f"content-encoding: {encoding}")).url))
    assert error.kind == "broken"
    assert said in str(error)


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\nx: ", b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n"])
@pytest.mark.parametrize("keep", [False, True])
def test_a_server_that_sends_byte_by_byte_is_left_at_the_deadline(
    serve: Serve, make: Make, start: bytes, keep: bool
) -> None:
    server = serve(sends(PAGE), keep=True)
    fetcher = make(server.url, timeout=0.5)
    if keep:
        fetcher.get()  # so that the connection is an old one
    server.answer = repeats(start, b"1", pause=0.05)
    began = time.monotonic()
    error = failure(fetcher)
    assert 0.4 < time.monotonic() - began < 2
    assert (error.kind, str(error)) == ("timeout", f"{server.url}: no whole answer within 0.5 s")
    # Its thread ends as well, and the next request is not kept waiting.
    server.answer = sends(PAGE)
    assert recovered(fetcher) == PAGE


def recovered(fetcher: Fetcher) -> bytes:
    deadline = time.monotonic() + 5
    while True:
        try:
            return fetcher.get()
        except FetchError as error:
            if "still busy" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def test_a_silent_server(serve: Serve, make: Make) -> None:
    server = serve(silent)
    fetcher = make(server.url, timeout=0.3)
    began = time.monotonic()
    assert failure(fetcher).kind == "timeout"
    assert 0.25 < time.monotonic() - began < 2
    server.answer = sends(PAGE)
    assert recovered(fetcher) == PAGE


def test_an_earlier_request_is_not_piled_upon(
    serve: Serve, make: Make, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    server = serve(sends(PAGE))
    hung = threading.Event()
    request.addfinalizer(hung.set)
    lookup = socket.getaddrinfo

    def slow(*arguments: Any, **named: Any) -> Any:
        hung.wait(30)
        return lookup(*arguments, **named)

    # A name server that does not answer; nothing can end a thread that waits for it.
    monkeypatch.setattr(socket, "getaddrinfo", slow)
    fetcher = make(server.url, timeout=0.2)
    assert "no whole answer within 0.2 s" in str(failure(fetcher))
    for _ in range(3):
        assert "still busy with an earlier request" in str(failure(fetcher))
    assert [thread.name for thread in threading.enumerate()].count("fetch") == 1
    hung.set()
    assert recovered(fetcher) == PAGE
    assert len(server.requests) == 1


def test_close_ends_a_request(serve: Serve, make: Make) -> None:
    server = serve(silent)
    fetcher = make(server.url, timeout=20)
    caught: list[FetchError] = []
    thread = threading.Thread(target=lambda: caught.append(failure(fetcher)))
    thread.start()
    while not server.requests:
        time.sleep(0.01)
    fetcher.close()
    thread.join(5)
    assert [error.kind for error in caught] == ["broken"]


def test_an_endless_body_is_cut(serve: Serve, make: Make) -> None:
    error = failure(make(serve(repeats(b"HTTP/1.1 200 OK\r\n\r\n", PAGE)).url, timeout=20, cap=3 << 19))
    assert (error.kind, str(error).partition(": ")[2]) == ("too_large", "larger than 1.5 MiB")


def test_a_page_of_the_largest_size(serve: Serve, make: Make) -> None:
    for answer in (sends(PAGE), sends(gzip.compress(PAGE), "content-encoding: gzip")):
        url = serve(answer).url
        assert make(url, cap=len(PAGE)).get() == PAGE
        assert failure(make(url, cap=len(PAGE) - 1)).kind == "too_large"


def test_a_gzip_bomb_is_cut_before_it_is_unpacked(serve: Serve, make: Make) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    bomb = b"".join(packer.compress(bytes(1 << 24)) for _ in range(8)) + packer.flush()
    assert len(bomb) < 150_000
    fetcher = make(serve(sends(bomb, "content-encoding: gzip")).url, timeout=20)
    tracemalloc.start()
    try:
        assert failure(fetcher).kind == "too_large"
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
