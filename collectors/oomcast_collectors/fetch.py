"""A page by HTTP from a server that may do anything: within a deadline and a size, over one connection that is kept."""

import contextlib
import socket
import ssl
import threading
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from oomcast_collectors.endpoint import Endpoint, FetchError, Kind

if TYPE_CHECKING:
    import httpx

__all__ = ["FetchError", "Fetcher", "Kind"]

_KEPT = 60.0
"""Seconds for which an unused connection is kept."""

_HEADERS = {"accept": "text/plain,*/*;q=0.5", "user-agent": "oomcast"}
_CONNECTED = ("connection.connect_tcp.complete", "connection.start_tls.complete")
_MAX_REASON = 200


class Fetcher:
    """One server, for one thread at a time. name: the URL as it may be shown.

    url: its user and password are sent as basic authentication. timeout: seconds in which the whole page has to be
    here. bearer_file: holds the token, and is read again when it changes. ca_file: certificates in place of the
    system's; insecure: any certificate will do. cap: bytes of the page, packed and unpacked.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 4.0,
        headers: Mapping[str, str] | None = None,
        bearer_file: Path | None = None,
        ca_file: Path | None = None,
        insecure: bool = False,
        cap: int = 16 << 20,
    ) -> None:
        given = {**_HEADERS, **(headers or {}), "accept-encoding": "gzip"}
        self._endpoint = Endpoint(url, given, bearer_file, ca_file, insecure)
        self.name = self._endpoint.name
        self._timeout = timeout
        self._cap = cap
        self._transport: httpx.HTTPTransport | None = None
        self._socket: socket.socket | None = None
        self._attempt: _Attempt | None = None
        self._worker: _Worker | None = None

    def get(self, path: str = "") -> bytes:
        """The body of an answer 200. path: appended to that of the URL. Raises FetchError, all within the timeout."""
        import httpx  # noqa: F401 - 5 MB that not every machine needs; here, so that it takes no time of the request

        if self._attempt is not None and not self._attempt.over(0):
            raise FetchError("timeout", f"{self.name}: still busy with an earlier request")
        worker = self._worker
        if worker is None:
            worker = self._worker = _Worker()
        self._attempt = attempt = _Attempt(lambda attempt: self._run(path, attempt))
        worker.do(attempt.run)
        if not attempt.over(self._timeout):
            attempt.abandon()
            raise self._late()
        outcome, attempt.outcome = attempt.outcome, b""
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def close(self) -> None:
        """Ends the connection, the thread, and a request that is under way."""
        if self._attempt is not None:
            self._attempt.abandon()
        if self._worker is not None:
            self._worker.end()
            self._worker = None
        if self._transport is not None:
            self._transport.close()

    def _late(self) -> FetchError:
        return FetchError("timeout", f"{self.name}: no whole answer within {self._timeout:g} s")

    def _run(self, path: str, attempt: "_Attempt") -> bytes:
        import httpx

        try:
            return self._get(path, attempt)
        except FetchError as error:
            raise FetchError(error.kind, f"{self.name}: {error}", error.status) from error
        except httpx.TimeoutException as error:
            raise self._late() from error
        except (httpx.InvalidURL, httpx.LocalProtocolError, UnicodeError):
            # Their texts quote what they found wrong, which may be the password or the token.
            raise FetchError("config", f"{self.name}: the URL or a header cannot be sent") from None
        except httpx.TransportError as error:
            reason = str(error)[:_MAX_REASON]
            if _of_tls(error):
                # It has the certificates of then, which may have been replaced since.
                self._transport = None
                raise FetchError("tls", f"{self.name}: {reason}") from error
            if isinstance(error, httpx.ConnectError):
                raise FetchError("refused", f"{self.name}: cannot connect: {reason}") from error
            raise FetchError("broken", f"{self.name}: the answer broke off or is no HTTP: {reason}") from error

    def _get(self, path: str, attempt: "_Attempt") -> bytes:
        import httpx

        extensions = {
            "timeout": dict.fromkeys(("connect", "read", "write", "pool"), self._timeout),
            "trace": lambda event, info: self._connected(info, attempt) if event in _CONNECTED else None,
        }
        url, headers = self._endpoint.url(path), self._endpoint.headers()
        request = httpx.Request("GET", url, headers=headers, extensions=extensions)
        if self._transport is None:
            # No client around it: no cookies, redirects, proxies or netrc, and half the time.
            limits = httpx.Limits(max_connections=1, keepalive_expiry=_KEPT)
            self._transport = httpx.HTTPTransport(verify=self._endpoint.tls(), trust_env=False, limits=limits)
        response = self._send(self._transport, request, attempt)
        try:
            return _body(response, self._cap)
        finally:
            response.close()

    def _send(
        self, transport: "httpx.HTTPTransport", request: "httpx.Request", attempt: "_Attempt"
    ) -> "httpx.Response":
        import httpx

        kept = self._socket
        if kept is not None:
            attempt.uses(kept)
        try:
            return transport.handle_request(request)
        except (httpx.RemoteProtocolError, httpx.NetworkError):
            if self._socket is not kept or kept is None or attempt.abandoned:
                raise
        # The server closed the kept connection just when it was used again: that says nothing of the next one.
        return transport.handle_request(request)

    def _connected(self, info: Mapping[str, Any], attempt: "_Attempt") -> None:
        self._socket = info["return_value"].get_extra_info("socket")
        attempt.uses(self._socket)


class _Worker:
    """A thread for what can outlast any timeout there is: the lookup of a name, a file, a server that sends its headers
    byte by byte. It is kept, since a new one for each GET is a fifth of the cost of that."""

    def __init__(self) -> None:
        self._jobs = SimpleQueue[Callable[[], None] | None]()
        threading.Thread(target=self._run, name="fetch", daemon=True).start()

    def do(self, job: Callable[[], None]) -> None:
        """Returns at once; the job is done after those before it."""
        self._jobs.put(job)

    def end(self) -> None:
        self._jobs.put(None)

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            job()
            del job  # it holds a page, and would until the next one


class _Attempt:
    """One GET. outcome: the body, or what went wrong; to be read when it is over."""

    def __init__(self, get: Callable[["_Attempt"], bytes]) -> None:
        self.outcome: bytes | Exception = b""
        self.abandoned = False
        self._socket: socket.socket | None = None
        self._get = get
        self._ended = threading.Event()

    def over(self, wait: float) -> bool:
        """Whether it has ended, which is waited for `wait` seconds."""
        return self._ended.wait(wait)

    def uses(self, connected: socket.socket | None) -> None:
        self._socket = connected
        if self.abandoned:
            self._shut()

    def abandon(self) -> None:
        """Ends it where it waits for the network, or when it next would."""
        self.abandoned = True
        self._shut()

    def _shut(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it is closed
                self._socket.shutdown(socket.SHUT_RDWR)

    def run(self) -> None:
        try:
            self.outcome = self._get(self)
        except Exception as error:  # noqa: BLE001 - handed to the thread that waits, which raises it
            self.outcome = error
        self._ended.set()


def _of_tls(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error is not None


def _body(response: "httpx.Response", cap: int) -> bytes:
    """Unpacked by hand: the library unpacks a chunk whole, a thousand times its size, before it shows it."""
    if response.status_code != 200:
        raise FetchError("status", f"HTTP {response.status_code}", response.status_code)
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip"):
        raise FetchError("broken", f"packed with {encoding[:40]!r}, which was not asked for")
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 16) if encoding == "gzip" else None
    chunks: list[bytes] = []
    received = length = 0
    for chunk in response.iter_raw():
        received += len(chunk)
        part = _unpacked(unpack, chunk, cap + 1 - length) if unpack else chunk
        length += len(part)
        if max(received, length) > cap:
            raise FetchError("too_large", f"larger than {cap / (1 << 20):g} MiB")
        chunks.append(part)
    if unpack and not unpack.eof:
        raise FetchError("broken", "its gzip data ends too early")
    return b"".join(chunks)


def _unpacked(unpack: "zlib._Decompress", chunk: bytes, limit: int) -> bytes:
    try:
        part = unpack.decompress(chunk, limit)
    except zlib.error as error:
        raise FetchError("broken", f"its gzip data is broken: {error}") from error
    if unpack.unused_data:
        raise FetchError("broken", "there is more behind its gzip data")
    return part
