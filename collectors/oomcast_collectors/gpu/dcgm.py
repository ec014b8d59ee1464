"""The GPUs as a dcgm-exporter on this node tells them, for machines where NVML itself cannot be used.

A poll may take as long as its timeout: this is for a thread of the collector, never for a run or a scrape.
"""

import logging
import re
import ssl
import threading
import time
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from oomcast.logs import OnChange
from oomcast_collectors.gpu.dcgm_text import DcgmGpu, Page, is_page, parse
from oomcast_collectors.gpu.settings import GpuSettings

if TYPE_CHECKING:
    import httpx

DEFAULT_URL = "http://127.0.0.1:9400/metrics"

_MAX_BYTES = 16 << 20
_PROBE_SECONDS = 1.0
_USER = re.compile(r"//[^/]*@")


class DcgmError(Exception):
    """Why there are no readings, in words. It names the exporter without user and password."""


class Dcgm:
    """One dcgm-exporter, for one thread at a time. timeout: seconds in which the whole page has to be here."""

    def __init__(self, url: str, log: logging.Logger, *, timeout: float = 4.0) -> None:
        self._url = url
        self._name = _USER.sub("//", url).partition("?")[0]
        self._timeout = timeout
        self._told = OnChange(log)
        self._tls: ssl.SSLContext | None = None
        self._request: _Request | None = None

    def poll(self) -> Sequence[DcgmGpu]:
        """The GPUs of now, by index. Raises DcgmError."""
        body = self._body()
        if not is_page(body):
            raise DcgmError(f"{self._name}: not a dcgm-exporter, no metric DCGM_FI_.. in {len(body)} bytes")
        page = parse(body)
        self._tell(page)
        return page.gpus

    def _body(self) -> bytes:
        if self._tls is None:
            # The certificates of the system take tens of milliseconds and megabytes.
            https = self._url.lower().startswith("https:")
            self._tls = ssl.create_default_context() if https else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self._request is not None and not self._request.over(0):
            raise DcgmError(f"{self._name}: still busy with an earlier request")
        self._request = _Request(self._url, self._tls, self._timeout)
        if not self._request.over(self._timeout):
            raise DcgmError(f"{self._name}: no whole answer within {self._timeout:g} s")
        outcome = self._request.outcome
        if isinstance(outcome, Exception):
            raise DcgmError(f"{self._name}: {outcome or type(outcome).__name__}") from outcome
        return outcome

    def _tell(self, page: Page) -> None:
        if page.malformed:
            extra = {"url": self._name, "lines": page.malformed, "first": page.example}
            self._told.report("lines", True, logging.WARNING, "a dcgm-exporter has lines that cannot be read", extra)
        else:
            self._told.report("lines", False, logging.DEBUG, "all lines of the dcgm-exporter can be read")


def find(settings: GpuSettings, log: logging.Logger, *, default: str = DEFAULT_URL) -> str | None:
    """The URL of the settings, answered or not; else `default` if a dcgm-exporter answers there within a second."""
    if settings.dcgm_url:
        return settings.dcgm_url
    try:
        Dcgm(default, log, timeout=_PROBE_SECONDS).poll()
    except DcgmError as error:
        log.debug("no dcgm-exporter found: %s", error)
        return None
    return default


class _Request:
    """One GET in a thread of its own: a server that sends its headers byte by byte meets every timeout there is.

    outcome: the body, or what went wrong; to be read when it is over.
    """

    def __init__(self, url: str, tls: ssl.SSLContext, timeout: float) -> None:
        self.outcome: bytes | Exception = DcgmError("no outcome")
        self._thread = threading.Thread(
            target=self._run, args=(url, tls, timeout), name="oomcast-gpu-dcgm", daemon=True
        )
        self._thread.start()

    def over(self, wait: float) -> bool:
        """Whether it has ended, which is waited for `wait` seconds."""
        self._thread.join(wait)
        return not self._thread.is_alive()

    def _run(self, url: str, tls: ssl.SSLContext, timeout: float) -> None:
        try:
            self.outcome = _get(url, tls, timeout)
        except Exception as error:  # noqa: BLE001 - handed to the thread that polls, which raises it
            self.outcome = error


def _get(url: str, tls: ssl.SSLContext, timeout: float) -> bytes:
    # Here, as it is 5 MB that only machines without NVML need.
    import httpx

    deadline = time.monotonic() + timeout
    # A client for each request: no cookie and no connection outlives it.
    with httpx.Client(verify=tls, trust_env=False, follow_redirects=False, timeout=timeout) as client:
        try:
            with client.stream("GET", url, headers={"accept-encoding": "gzip", "accept": "text/plain"}) as response:
                if response.status_code != 200:
                    raise DcgmError(f"HTTP {response.status_code}")
                return _read(response, deadline)
        except httpx.ConnectError as error:
            raise DcgmError(f"cannot connect: {error}") from error
        except (httpx.TimeoutException, TimeoutError) as error:
            raise DcgmError(f"no whole answer within {timeout:g} s") from error
        except (httpx.RequestError, zlib.error) as error:
            raise DcgmError(f"the answer broke off or is no HTTP: {error}") from error


def _read(response: "httpx.Response", deadline: float) -> bytes:
    """The body, unpacked by hand: the library unpacks a chunk whole, a thousand times its size, before it shows it."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip"):
        raise DcgmError(f"packed with {encoding[:40]!r}, which was not asked for")
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 16) if encoding == "gzip" else None
    body, received = bytearray(), 0
    for chunk in response.iter_raw():
        received += len(chunk)
        body += unpack.decompress(chunk, _MAX_BYTES + 1 - len(body)) if unpack else chunk
        if max(received, len(body)) > _MAX_BYTES:
            raise DcgmError(f"larger than {_MAX_BYTES >> 20} MiB")
        if time.monotonic() > deadline:
            raise TimeoutError
    if unpack and not unpack.eof:
        raise DcgmError("its gzip data ends too early")
    return bytes(body)
