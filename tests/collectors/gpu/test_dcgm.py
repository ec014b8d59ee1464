"""Getting the page of a dcgm-exporter, from servers that do everything wrong. Each is a real one on loopback."""

import contextlib
import gzip
import logging
import socket
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from oomcast_collectors.gpu import dcgm
from oomcast_collectors.gpu.dcgm import Dcgm, DcgmError
from oomcast_collectors.gpu.dcgm_text import DcgmGpu
from oomcast_collectors.gpu.settings import GpuSettings

PAGE = (Path(__file__).parents[2] / "fixtures" / "dcgm" / "default-4.8.prom").read_bytes()
USED = 130000 << 20
LOG = logging.getLogger("oomcast.gpu")

Answer = Callable[[socket.socket, threading.Event], None]


class Server:
    """Answers each connection with `answer`, in a thread of its own; `ended` is set when the test is over.

    requests: what clients sent.
    """

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[bytes] = []
        self.ended = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/metrics"
        threading.Thread(target=self._accept, name="test-dcgm", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), name="test-dcgm", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            request = b""
            while b"\r\n\r\n" not in request:
                request += connection.recv(65536)
            self.requests.append(request)
            try:
                self.answer(connection, self.ended)
            except OSError:
                return  # the client went away, which is what it should do

    def close(self) -> None:
        self.ended.set()
        # close() alone leaves accept() waiting; one that was closed before has no descriptor.
        if self._listener.fileno() >= 0:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], Server]]:
    servers: list[Server] = []

    def start(answer: Answer) -> Server:
        servers.append(Server(answer))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


Serve = Callable[[Answer], Server]


def sends(body: bytes, *headers: str, status: str = "200 OK") -> Answer:
    head = "\r\n".join((f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers))

    def answer(connection: socket.socket, ended: threading.Event) -> None:
        connection.sendall(head.encode() + b"\r\n\r\n" + body)

    return answer


def repeats(start: bytes, unit: bytes, pause: float = 0) -> Answer:
    def answer(connection: socket.socket, ended: threading.Event) -> None:
        connection.sendall(start)
        while not ended.wait(pause):
            connection.sendall(unit)

    return answer


def silent(connection: socket.socket, ended: threading.Event) -> None:
    ended.wait()


def failure(url: str, timeout: float = 5.0) -> str:
    with pytest.raises(DcgmError) as caught:
        Dcgm(url, LOG, timeout=timeout).poll()
    return str(caught.value)


def settings(**values: str) -> GpuSettings:
    return GpuSettings.model_validate(values)


def test_a_page_plain_and_packed(serve: Serve) -> None:
    packed = gzip.compress(PAGE)
    for answer in (sends(PAGE), sends(packed, "content-encoding: gzip"), sends(packed, "Content-Encoding: GZIP")):
        server = serve(answer)
        exporter = Dcgm(server.url, LOG)
        for _ in range(2):
            assert [gpu.memory.used for gpu in exporter.poll()] == [USED, 1 << 20]
        assert server.requests[0].startswith(b"GET /metrics HTTP/1.1\r\n")
        assert b"\r\naccept-encoding: gzip\r\n" in server.requests[0].lower()


def test_a_page_in_chunks(serve: Serve) -> None:
    chunks = (
        b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (PAGE[:1], PAGE[1:5000], PAGE[5000:])) + b"0\r\n\r\n"
    )
    start = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    server = serve(lambda connection, ended: connection.sendall(start + chunks))
    assert len(Dcgm(server.url, LOG).poll()) == 2


def test_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"
    assert failure(url).startswith(f"{url}: cannot connect: ")


@pytest.mark.parametrize(
    "url", ["", "metrics", "ftp://127.0.0.1/", "http://", "http://[::1", "http://a b/", "http://é\0/"]
)
def test_no_url(url: str) -> None:
    assert failure(url)


def test_user_and_password_are_sent_but_not_told(serve: Serve) -> None:
    server = serve(sends(b"", status="401 Unauthorized"))
    said = failure(server.url.replace("//", "//me:secret@") + "?token=hidden")
    assert said == f"{server.url}: HTTP 401"
    assert b"authorization: basic" in server.requests[0].lower()


@pytest.mark.parametrize("status", ["500 Internal Server Error", "404 Not Found", "204 No Content", "503 Busy"])
def test_a_status_other_than_200(serve: Serve, status: str) -> None:
    server = serve(sends(b"" if status.startswith("204") else PAGE, status=status))
    assert failure(server.url).endswith(f": HTTP {status[:3]}")


def test_a_redirect_is_not_followed(serve: Serve) -> None:
    target = serve(sends(PAGE))
    assert failure(serve(sends(b"", f"location: {target.url}", status="302 Found")).url).endswith(": HTTP 302")
    assert target.requests == []


def test_the_environments_proxy_is_not_used(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = serve(sends(b"", status="502 Bad Gateway"))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, proxy.url)
    assert len(Dcgm(serve(sends(PAGE)).url, LOG).poll()) == 2
    assert proxy.requests == []


@pytest.mark.parametrize("body", [b"", b"<html>Grafana</html>\n", b"node_memory_MemFree_bytes 1\n", b"\xff\x00" * 1000])
def test_something_else_answers(serve: Serve, body: bytes) -> None:
    assert f"not a dcgm-exporter, no metric DCGM_FI_.. in {len(body)} bytes" in failure(serve(sends(body)).url)


def test_an_exporter_without_values_has_no_gpus(serve: Serve) -> None:
    body = b"# HELP DCGM_FI_DEV_SM_CLOCK SM clock\n# TYPE DCGM_FI_DEV_SM_CLOCK gauge\n"
    assert Dcgm(serve(sends(body)).url, LOG).poll() == ()


@pytest.mark.parametrize(
    "answer",
    [
        lambda connection, ended: connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n" + PAGE),
        lambda connection, ended: connection.sendall(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n40\r\n" + PAGE[:64] + b"\r\n"
        ),
        lambda connection, ended: connection.sendall(b"HTTP/1.1 200"),
        lambda connection, ended: connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n"),
        lambda connection, ended: None,
        sends(PAGE, "content-encoding: gzip"),
        sends(zlib.compress(PAGE), "content-encoding: gzip"),
    ],
)
def test_answers_that_are_cut_or_no_http(serve: Serve, answer: Answer) -> None:
    assert ": the answer broke off or is no HTTP: " in failure(serve(answer).url)


def test_packed_data_that_is_cut(serve: Serve) -> None:
    packed = gzip.compress(PAGE)
    assert failure(serve(sends(packed[:-100], "content-encoding: gzip")).url).endswith("its gzip data ends too early")


def test_an_encoding_that_was_not_asked_for(serve: Serve) -> None:
    assert "packed with 'br', which was not asked for" in failure(serve(sends(PAGE, "content-encoding: br")).url)


def test_a_silent_server(serve: Serve) -> None:
    began = time.monotonic()
    assert failure(serve(silent).url, timeout=0.3).endswith(": no whole answer within 0.3 s")
    assert 0.25 < time.monotonic() - began < 2


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\nx: ", b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n"])
def test_a_server_that_sends_byte_by_byte(serve: Serve, start: bytes) -> None:
    server = serve(repeats(start, b"x", pause=0.05))
    exporter = Dcgm(server.url, LOG, timeout=0.3)
    began = time.monotonic()
    with pytest.raises(DcgmError, match=r"no whole answer within 0\.3 s|broke off"):
        exporter.poll()
    assert time.monotonic() - began < 2


def test_an_earlier_request_is_not_piled_upon(serve: Serve) -> None:
    server = serve(repeats(b"HTTP/1.1 200 OK\r\nx: ", b"x", pause=0.05))
    exporter = Dcgm(server.url, LOG, timeout=0.3)
    with pytest.raises(DcgmError, match="no whole answer"):
        exporter.poll()
    with pytest.raises(DcgmError, match="still busy with an earlier request"):
        exporter.poll()
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "answer", [silent, repeats(b"HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n", b"x", pause=0.05)]
)
def test_it_recovers(serve: Serve, answer: Answer) -> None:
    server = serve(answer)
    exporter = Dcgm(server.url, LOG, timeout=0.3)
    with pytest.raises(DcgmError):
        exporter.poll()
    server.answer = sends(PAGE)
    gpus: Sequence[DcgmGpu] = ()
    deadline = time.monotonic() + 5
    while not gpus and time.monotonic() < deadline:
        # The request that was given up ends at its own timeout, which is about now.
        with contextlib.suppress(DcgmError):
            gpus = exporter.poll()
    assert len(gpus) == 2


def test_an_endless_body_is_cut_at_16_mib(serve: Serve) -> None:
    start = b"HTTP/1.1 200 OK\r\n\r\n"
    assert failure(serve(repeats(start, PAGE * 8)).url, timeout=20).endswith(": larger than 16 MiB")


def test_a_gzip_bomb_is_cut_before_it_is_unpacked(serve: Serve) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    bomb = b"".join(packer.compress(bytes(1 << 24)) for _ in range(8)) + packer.flush()
    assert len(bomb) < 150_000
    server = serve(sends(bomb, "content-encoding: gzip"))
    tracemalloc.start()
    try:
        assert failure(server.url, timeout=20).endswith(": larger than 16 MiB")
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_data_behind_packed_data_is_no_way_around_the_limit(serve: Serve) -> None:
    start = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n" + gzip.compress(PAGE)
    assert failure(serve(repeats(start, bytes(1 << 16))).url, timeout=20).endswith(": larger than 16 MiB")


def test_bad_lines_are_told_once(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    server = serve(sends(PAGE + b'DCGM_FI_DEV_FB_USED{gpu="x"} oops\n'))
    exporter = Dcgm(server.url, LOG)
    for _ in range(3):
        assert len(exporter.poll()) == 2
    (record,) = [record for record in caplog.records if record.name == LOG.name]
    assert (record.levelname, record.getMessage()) == ("WARNING", "a dcgm-exporter has lines that cannot be read")
    assert vars(record)["first"] == 'DCGM_FI_DEV_FB_USED{gpu="x"} oops'
    assert vars(record)["lines"] == 1


def test_find_takes_the_url_of_the_settings_unseen() -> None:
    assert dcgm.find(settings(dcgm_url="http://gpu-node:9400/metrics"), LOG) == "http://gpu-node:9400/metrics"


def test_find_tries_the_default(serve: Serve) -> None:
    exporter, other = serve(sends(PAGE)), serve(sends(b"node_load1 1\n"))
    assert dcgm.find(settings(), LOG, default=exporter.url) == exporter.url
    assert dcgm.find(settings(), LOG, default=other.url) is None
    other.close()
    assert dcgm.find(settings(), LOG, default=other.url) is None


def test_the_default_is_this_node() -> None:
    assert dcgm.DEFAULT_URL == "http://127.0.0.1:9400/metrics"
