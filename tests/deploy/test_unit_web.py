"""deploy/web-config.example.yml with the real program."""

import re
import ssl
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path

import pytest

from daemon.web_harness import Authority
from e2e.program import program

EXAMPLE = Path(__file__).parents[2] / "deploy" / "web-config.example.yml"
SETTINGS = 'http: {listen: "127.0.0.1:{port}", web_config: web.yml}\n'


def status(port: int, authority: Authority, user: str, client: tuple[Path, Path] | None = None) -> int:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if client:
        context.load_cert_chain(*client)
    request = urllib.request.Request(f"https://127.0.0.1:{port}/metrics")
    if user:
        request.add_header("Authorization", f"Basic {b64encode(user.encode()).decode()}")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(request, timeout=30) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def lay_out(folder: Path, text: str) -> Authority:
    authority = Authority(folder).create()
    authority.issue("tls", sans="IP:127.0.0.1")
    (folder / "web.yml").write_text(text)
    return authority


def test_the_example_serves_its_user_by_tls_and_nobody_else(tmp_path: Path) -> None:
    authority = lay_out(tmp_path, EXAMPLE.read_text())
    with program(tmp_path, SETTINGS) as daemon:
        assert status(daemon.port, authority, "prometheus:change-me") == 200
        assert status(daemon.port, authority, "prometheus:other") == 401
        assert status(daemon.port, authority, "") == 401


def test_with_what_it_suggests_it_asks_clients_for_certificates(tmp_path: Path) -> None:
    authority = lay_out(tmp_path, re.sub(r"^  #(?=\S)", "  ", EXAMPLE.read_text(), flags=re.MULTILINE))
    client = authority.issue("client", sans="DNS:prometheus")
    authority.certificate.rename(tmp_path / "clients-ca.crt")
    authority = Authority(tmp_path, "clients-ca")
    with program(tmp_path, SETTINGS) as daemon:
        assert status(daemon.port, authority, "prometheus:change-me", client) == 200
        with pytest.raises((ConnectionError, ssl.SSLError, urllib.error.URLError)):  # which it is, is chance
            status(daemon.port, authority, "prometheus:change-me")
