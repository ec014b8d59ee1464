"""Fetching over TLS, in real handshakes."""

import contextlib
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest

from daemon.web_harness import Authority
from oomcast_collectors.fetch import Fetcher, FetchError
from web_servers import Serve, sends

PAGE = b"up 1\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("pki")).create()
    made.issue("server", "IP:127.0.0.1")
    made.issue("other", "DNS:node-7")
    Authority(made.folder, "stranger").create()
    return made


def identity(authority: Authority, name: str = "server") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.folder / f"{name}.crt", authority.folder / f"{name}.key")
    return context


def outcome(url: str, **settings: Any) -> bytes | FetchError:
    with contextlib.closing(Fetcher(url, **settings)) as fetcher:
        try:
            return fetcher.get()
        except FetchError as error:
            return error


def test_certificates(serve: Serve, authority: Authority) -> None:
    url = serve(sends(PAGE), tls=identity(authority)).url
    assert outcome(url, ca_file=authority.certificate) == PAGE
    assert outcome(url, insecure=True) == PAGE
    for ca_file in (None, authority.folder / "stranger.crt"):
        error = outcome(url, ca_file=ca_file)
        assert isinstance(error, FetchError)
        assert error.kind == "tls"
        assert "certificate verify failed" in str(error)


def test_the_name_is_checked(serve: Serve, authority: Authority) -> None:
    url = serve(sends(PAGE), tls=identity(authority, "other")).url
    error = outcome(url, ca_file=authority.certificate)
    assert isinstance(error, FetchError)
    assert (error.kind, "IP address mismatch" in str(error)) == ("tls", True)
    assert outcome(url, ca_file=authority.certificate, insecure=True) == PAGE


def test_the_connection_is_kept(serve: Serve, authority: Authority) -> None:
    server = serve(sends(PAGE), keep=True, tls=identity(authority))
    with contextlib.closing(Fetcher(server.url, ca_file=authority.certificate)) as fetcher:
        assert [fetcher.get() for _ in range(3)] == [PAGE] * 3
    assert server.connections == 1


def test_certificates_that_were_replaced_are_found(serve: Serve, authority: Authority, tmp_path: Path) -> None:
    url = serve(sends(PAGE), tls=identity(authority)).url
    ca_file = tmp_path / "ca.crt"
    ca_file.write_bytes((authority.folder / "stranger.crt").read_bytes())
    with contextlib.closing(Fetcher(url, ca_file=ca_file)) as fetcher:
        with pytest.raises(FetchError, match="certificate verify failed"):
            fetcher.get()
        ca_file.write_bytes(authority.certificate.read_bytes())
        assert fetcher.get() == PAGE


@pytest.mark.parametrize("text", [None, b"", b"no certificate"])
def test_no_certificates(tmp_path: Path, text: bytes | None) -> None:
    ca_file = tmp_path / "ca.crt"
    if text is not None:
        ca_file.write_bytes(text)
    error = outcome("https://127.0.0.1:1/", ca_file=ca_file)
    assert isinstance(error, FetchError)
    assert (error.kind, str(ca_file) in str(error)) == ("config", True)


def test_a_server_that_speaks_no_tls() -> None:
    def answer(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        error = outcome(f"https://127.0.0.1:{listener.getsockname()[1]}/", insecure=True)
        thread.join()
    assert isinstance(error, FetchError)
    assert error.kind == "tls"


def test_plain_http_to_a_server_with_tls(serve: Serve, authority: Authority) -> None:
    server = serve(sends(PAGE), tls=identity(authority))
    error = outcome(server.url.replace("https", "http"))
    assert isinstance(error, FetchError)
    assert error.kind == "broken"
