"""TLS as the web configuration asks for it, in real handshakes."""

import ssl
import time
from pathlib import Path

import httpx
import pytest

from daemon.web_harness import TEXT, Authority, Running, app, read_all, serving
from oomcast.webconfig import WebConfig, load
from oomcast.webconnection import Limits


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("pki")).create()
    made.issue("server", "IP:127.0.0.1")
    made.issue("scraper", "DNS:prometheus")
    made.issue("other", "DNS:other")
    Authority(made.folder, "stranger").create().issue("intruder", "DNS:prometheus")
    return made


def _config(authority: Authority, extra: str = "", certificate: str = "server") -> WebConfig:
    path = authority.folder / "web.yml"
    path.write_text(f"tls_server_config: {{cert_file: {certificate}.crt, key_file: {certificate}.key{extra}}}\n")
    return load(path)


def _client(authority: Authority, name: str = "") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if name:
        context.load_cert_chain(authority.folder / f"{name}.crt", authority.folder / f"{name}.key")
    return context


def _refused(running: Running, context: ssl.SSLContext) -> bool:
    """Whether the server ends the connection rather than answer; with TLS 1.3 the client learns it when reading."""
    try:
        return httpx.get(running.url + "/metrics", verify=context).status_code == 0
    except httpx.TransportError:
        return True


def test_tls(authority: Authority) -> None:
    with serving(app(), tls=_config(authority).tls) as running:
        assert running.url.startswith("https://127.0.0.1:")
        assert httpx.get(running.url + "/metrics", verify=_client(authority)).content == TEXT
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(running.url + "/metrics")
        with pytest.raises(httpx.TransportError):
            httpx.get(running.url.replace("https", "http") + "/metrics")
        assert httpx.get(running.url + "/metrics", verify=_client(authority)).content == TEXT


def test_versions_and_the_curve_hold_in_the_handshake(authority: Authority) -> None:
    with serving(app(), tls=_config(authority, ", min_version: TLS13").tls) as running:
        old = _client(authority)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        assert _refused(running, old)
        assert not _refused(running, _client(authority))
    with serving(app(), tls=_config(authority, ", min_version: TLS13, curve_preferences: [CurveP384]").tls) as running:
        for curve, refused in (("secp384r1", False), ("prime256v1", True)):
            context = _client(authority)
            context.set_ecdh_curve(curve)
            assert _refused(running, context) is refused, curve


def test_mutual_tls(authority: Authority) -> None:
    extra = ", client_ca_file: ca.crt, client_auth_type: RequireAndVerifyClientCert"
    with serving(app(), tls=_config(authority, extra).tls) as running:
        assert not _refused(running, _client(authority, "scraper"))
        assert _refused(running, _client(authority))
        assert _refused(running, _client(authority, "intruder"))
    with serving(app(), tls=_config(authority, extra + ", client_allowed_sans: [prometheus]").tls) as running:
        assert not _refused(running, _client(authority, "scraper"))
        assert _refused(running, _client(authority, "other"))


def test_client_certificate_if_given(authority: Authority) -> None:
    extra = ", client_ca_file: ca.crt, client_auth_type: VerifyClientCertIfGiven"
    with serving(app(), tls=_config(authority, extra).tls) as running:
        assert not _refused(running, _client(authority))
        assert not _refused(running, _client(authority, "scraper"))
        assert _refused(running, _client(authority, "intruder"))


def test_certificates_change_without_a_restart(authority: Authority, tmp_path: Path) -> None:
    def presented(running: Running) -> str:
        return ssl.get_server_certificate(running.address)

    pair = authority.folder / "live.crt", authority.folder / "live.key"
    for path, old in zip(pair, authority.issue("first", "IP:127.0.0.1"), strict=True):
        path.write_bytes(old.read_bytes())
    with serving(app(), tls=_config(authority, certificate="live").tls) as running:
        assert presented(running).strip() == (authority.folder / "first.crt").read_text().strip()
        for path, new in zip(pair, authority.issue("second", "IP:127.0.0.1"), strict=True):
            path.write_bytes(new.read_bytes())
        with httpx.Client(verify=_client(authority)) as client:
            assert client.get(running.url + "/metrics").status_code == 200
            running.configure(_config(authority, certificate="live").tls)
            assert presented(running).strip() == (authority.folder / "second.crt").read_text().strip()
            assert client.get(running.url + "/metrics").status_code == 200
            running.configure(None)
            assert running.server.url.startswith("http://")
            assert httpx.get(running.server.url + "/metrics").content == TEXT


def test_unfinished_handshakes_block_nobody(authority: Authority) -> None:
    limits = Limits(handshake=0.5, connections=4)
    with serving(app(), tls=_config(authority).tls, limits=limits) as running:
        stuck = [running.connect() for _ in range(12)]
        assert not _refused(running, _client(authority))
        began = time.monotonic()
        assert [read_all(connection) for connection in stuck] == [b""] * 12
        assert time.monotonic() - began < 3
        for connection in stuck:
            connection.close()
