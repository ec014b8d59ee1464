"""An `ssl.SSLContext` from the settings of exporter-toolkit's `tls_server_config`.

Those settings are Go's. What Python's ssl module cannot do is refused in words; nothing is quietly weaker or
stricter than what the operator wrote.
"""

import io
import ipaddress
import os
import ssl
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

_MAX_PEM_BYTES = 1 << 20
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_VERIFYING = {
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}

CURVES: Mapping[str, str] = {
    "CurveP256": "prime256v1",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
    "X25519": "X25519",
}
"""OpenSSL's name of a curve by Go's."""

SUITES: Mapping[str, str] = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_AES_128_GCM_SHA256": "",
    "TLS_AES_256_GCM_SHA384": "",
    "TLS_CHACHA20_POLY1305_SHA256": "",
}
"""OpenSSL's name of a cipher suite by Go's; empty for those of TLS 1.3, which cannot be chosen."""


class TlsError(ValueError):
    """A TLS setting that is wrong, or that Python's ssl cannot honour; the text holds no secret."""


class TlsSettings(Protocol):
    """The keys of `tls_server_config`, each with its default filled in."""

    @property
    def cert(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def client_ca(self) -> str: ...
    @property
    def cert_file(self) -> str: ...
    @property
    def key_file(self) -> str: ...
    @property
    def client_ca_file(self) -> str: ...
    @property
    def client_auth_type(self) -> str: ...
    @property
    def client_allowed_sans(self) -> Sequence[str] | None: ...
    @property
    def min_version(self) -> str: ...
    @property
    def max_version(self) -> str: ...
    @property
    def cipher_suites(self) -> Sequence[str]: ...
    @property
    def prefer_server_cipher_suites(self) -> bool: ...
    @property
    def curve_preferences(self) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True)
class Tls:
    """How connections are secured. allowed_sans: alternative names of which a client's certificate has one;
    None lets in every client that `context` does."""

    context: ssl.SSLContext
    allowed_sans: frozenset[str] | None = None

    def admits(self, certificate: Mapping[str, Any] | None) -> bool:
        """Whether a peer with this verified certificate (as `SSLSocket.getpeercert()` has it) may speak to us."""
        if self.allowed_sans is None:
            return True
        names = (certificate or {}).get("subjectAltName", ())
        return any(_canonical(name) in self.allowed_sans for _, name in names)


def create_tls(settings: TlsSettings, folder: Path) -> Tls:
    """The context for `settings`, with file names relative to `folder`. Raises TlsError, or OSError for a file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    _set_versions(context, settings)
    _set_ciphers(context, settings)
    _set_client_auth(context, settings, folder)
    _load_pair(context, _pem(settings, "cert", folder), _pem(settings, "key", folder))
    sans = settings.client_allowed_sans
    if sans is None:
        return Tls(context)
    if context.verify_mode is not ssl.CERT_REQUIRED:
        raise TlsError("client_allowed_sans needs client_auth_type RequireAndVerifyClientCert")
    return Tls(context, frozenset(map(_canonical, sans)))


def read_bounded(path: Path, limit: int) -> bytes:
    """The file's content. Raises OSError; TlsError when it is no regular file or holds more than `limit` bytes."""
    # Non-blocking, so that a named pipe in place of the file cannot hang a start or a reload.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise TlsError(f"{path} is not a regular file")
        data = os.read(fd, limit + 1)
    finally:
        os.close(fd)
    if len(data) > limit:
        raise TlsError(f"{path} is larger than {limit} bytes")
    return data


def _set_versions(context: ssl.SSLContext, settings: TlsSettings) -> None:
    for key in ("min_version", "max_version"):
        name = getattr(settings, key)
        if name not in _VERSIONS:
            raise TlsError(f"{key} {name}: OpenSSL no longer offers TLS below 1.2; use TLS12 or TLS13")
    lowest, highest = _VERSIONS[settings.min_version], _VERSIONS[settings.max_version]
    if lowest > highest:
        raise TlsError(f"min_version {settings.min_version} is above max_version {settings.max_version}")
    context.minimum_version, context.maximum_version = lowest, highest


def _set_ciphers(context: ssl.SSLContext, settings: TlsSettings) -> None:
    for name in settings.cipher_suites:
        if not SUITES[name]:
            raise TlsError(f"cipher_suites: {name} belongs to TLS 1.3, whose suites cannot be chosen; remove it")
    if settings.cipher_suites:
        context.set_ciphers(":".join(SUITES[name] for name in settings.cipher_suites))
    if settings.prefer_server_cipher_suites:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    if len(settings.curve_preferences) > 1:
        raise TlsError("curve_preferences: Python's ssl takes one curve, not a list of them; name one or none")
    for name in settings.curve_preferences:
        try:
            context.set_ecdh_curve(CURVES[name])
        except (ValueError, ssl.SSLError):
            raise TlsError(f"curve_preferences: Python's ssl cannot select {name} here") from None


def _set_client_auth(context: ssl.SSLContext, settings: TlsSettings, folder: Path) -> None:
    kind = settings.client_auth_type or "NoClientCert"
    authority = _pem(settings, "client_ca", folder)
    if kind == "NoClientCert":
        if authority:
            raise TlsError("client_ca_file is set, but client_auth_type asks no client for a certificate")
        return
    if kind not in _VERIFYING:
        raise TlsError(
            f"client_auth_type {kind} accepts certificates without verifying them, which Python's ssl cannot do;"
            f" use {' or '.join(_VERIFYING)}"
        )
    if not authority:
        raise TlsError(f"client_auth_type {kind} needs client_ca_file")
    try:
        context.load_verify_locations(cadata=authority.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError, ValueError):
        raise TlsError("client_ca_file (or client_ca) holds no certificate in PEM form") from None
    context.verify_mode = _VERIFYING[kind]
    # Go trusts each certificate of the file, an intermediate one too.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    # The module reads files only. Memory files give it exactly the bytes that were read, and keep an inline key
    # off the disk.
    with _memory_file(certificate) as cert_file, _memory_file(key) as key_file:
        paths = [f"/proc/self/fd/{file.fileno()}" for file in (cert_file, key_file)]
        try:
            context.load_cert_chain(paths[0], paths[1], password=_no_password)
        except ssl.SSLError as exc:
            reason = (exc.reason or "not in PEM form").replace("_", " ").lower()
            raise TlsError(f"cert_file and key_file do not make a pair: {reason}") from None


def _memory_file(data: bytes) -> io.FileIO:
    file = os.fdopen(os.memfd_create("oomcast-tls", os.MFD_CLOEXEC), "r+b", buffering=0)
    file.write(data)
    return file


def _no_password() -> NoReturn:
    # OpenSSL would ask on the terminal otherwise, and a daemon would wait there for ever.
    raise TlsError("key_file is encrypted; a daemon has nobody to ask for the passphrase")


def _pem(settings: TlsSettings, name: str, folder: Path) -> bytes:
    if inline := getattr(settings, name):
        return str(inline).encode()
    file = getattr(settings, f"{name}_file")
    return read_bounded(folder / file, _MAX_PEM_BYTES) if file else b""


def _canonical(name: str) -> str:
    # IPv6 has many spellings, and getpeercert() uses another than people do.
    try:
        return str(ipaddress.ip_address(name.strip()))
    except ValueError:
        return name
