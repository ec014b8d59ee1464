"""Where a page is fetched and as whom: the URL, its name without secrets, headers, token and certificates."""

import base64
import re
import ssl
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import SplitResult, unquote, urlsplit

Kind = Literal["refused", "timeout", "status", "too_large", "broken", "tls", "config"]
"""refused: no connection. broken: the answer was cut or is no HTTP. config: for whoever wrote the settings to mend."""

_MAX_TOKEN = 64 << 10
_TOKEN = re.compile(rb"\s*+([!-~]++)\s*+\Z")


class FetchError(Exception):
    """Why there is no page. status: HTTP's, or 0. The text names the server, but no user, password, token or query."""

    def __init__(self, kind: Kind, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.kind = kind
        self.status = status


class Endpoint:
    """A server's address and what it asks of its clients. name: the URL as it may be shown."""

    def __init__(
        self, url: str, headers: Mapping[str, str], bearer_file: Path | None, ca_file: Path | None, insecure: bool
    ) -> None:
        self._url = _split(url)
        self._host = self._url.netloc.rpartition("@")[2] if self._url else ""
        self.name = f"{self._url.scheme}://{self._host}{self._url.path}" if self._url else "the URL"
        self._headers = {name.lower(): value for name, value in headers.items()}
        if self._url and self._url.username is not None:
            user = f"{unquote(self._url.username)}:{unquote(self._url.password or '')}"
            self._headers["authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
        self._bearer = _Bearer(bearer_file) if bearer_file is not None else None
        self._ca_file = ca_file
        self._insecure = insecure

    def url(self, path: str) -> str:
        """path: "", or one to append to that of the URL. Without user and password. Raises FetchError."""
        if self._url is None or path[:1] not in ("", "/"):
            raise FetchError("config", "neither http:// nor https:// with a host and a path")
        whole = f"{self._url.scheme}://{self._host}{self._url.path.rstrip('/') + path if path else self._url.path}"
        return f"{whole}?{self._url.query}" if self._url.query else whole

    def headers(self) -> Mapping[str, str]:
        """With the token of now. Raises FetchError."""
        return self._headers if self._bearer is None else {**self._headers, "authorization": self._bearer.header()}

    def tls(self) -> ssl.SSLContext:
        """Raises FetchError."""
        if self._url is None or self._url.scheme == "http" or self._insecure:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            return context
        try:
            # The certificates of the system take tens of milliseconds and megabytes.
            return ssl.create_default_context(cafile=self._ca_file)
        except OSError as error:
            raise FetchError("config", f"the certificates in {self._ca_file}: {error.strerror or error}") from error


class _Bearer:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, ...] = ()
        self._header = ""

    def header(self) -> str:
        """Raises FetchError, whose text has nothing of what is in the file."""
        try:
            found = self._path.stat()
            stamp = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            if stamp != self._stamp:
                self._header = self._read() if stat.S_ISREG(found.st_mode) else ""
                self._stamp = stamp
        except OSError as error:
            raise FetchError("config", f"the token file {self._path}: {error.strerror}") from error
        if not self._header:
            raise FetchError("config", f"the token file {self._path} holds no token")
        return self._header

    def _read(self) -> str:
        with self._path.open("rb") as file:
            text = file.read(_MAX_TOKEN + 1)
        match = _TOKEN.match(text) if len(text) <= _MAX_TOKEN else None
        return f"Bearer {match[1].decode()}" if match else ""


def _split(url: str) -> SplitResult | None:
    """None for what is no URL of a web server."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises where it is no number
    except ValueError:
        return None
    named = parts.hostname and parts.netloc.isprintable() and " " not in parts.netloc
    return parts if named and parts.scheme in ("http", "https") else None
