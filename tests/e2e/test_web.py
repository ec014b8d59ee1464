"""TLS and basic authentication of the real program, asked by curl and httpx."""

import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import httpx
import pytest

from daemon.web_harness import Authority
from e2e.program import Program, program

SETTINGS = 'http: {listen: "127.0.0.1:{port}", web_config: web.yaml}\n'


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[tuple[Program, Authority]]:
    authority = Authority(tmp_path).create()
    renew(authority, "first")
    password = bcrypt.hashpw(b"geheim", bcrypt.gensalt(4)).decode()
    (tmp_path / "web.yaml").write_text(
        f"tls_server_config: {{cert_file: node.crt, key_file: node.key}}\n"
        f'basic_auth_users: {{prometheus: "{password}"}}\n'
    )
    with program(tmp_path, SETTINGS) as daemon:
        yield daemon, authority


def renew(authority: Authority, name: str) -> None:
    """Puts a new certificate and key where the web configuration has them."""
    certificate, key = authority.issue(name, sans="IP:127.0.0.1")
    certificate.replace(authority.folder / "node.crt")
    key.replace(authority.folder / "node.key")


def subject(daemon: Program, authority: Authority) -> str:
    pem = ssl.get_server_certificate(("127.0.0.1", daemon.port), ca_certs=str(authority.certificate))
    shown = subprocess.run(
        ("openssl", "x509", "-noout", "-subject"), input=pem, capture_output=True, text=True, check=True
    )
    return shown.stdout.strip().replace(" ", "")


def curl(daemon: Program, authority: Authority, *arguments: str) -> tuple[int, str]:
    argv = ("curl", "-sS", "--noproxy", "*", "--cacert", str(authority.certificate), "-o", "/dev/null", *arguments)
    url = f"https://127.0.0.1:{daemon.port}/metrics"
    done = subprocess.run(
        (*argv, "-w", "%{http_code} %{content_type}", url), capture_output=True, text=True, timeout=30, check=False
    )
    return done.returncode, done.stdout


def test_curl_needs_the_authority_and_the_password(secure: tuple[Program, Authority]) -> None:
    daemon, authority = secure
    assert f"url=https://127.0.0.1:{daemon.port}" in daemon.log
    assert curl(daemon, authority, "-u", "prometheus:geheim") == (0, "200 text/plain; version=0.0.4; charset=utf-8")
    assert curl(daemon, authority)[1].startswith("401 ")
    assert curl(daemon, authority, "-u", "prometheus:falsch")[1].startswith("401 ")
    assert curl(daemon, authority, "--tls-max", "1.1", "-u", "prometheus:geheim")[0] != 0
    plain = subprocess.run(
        ("curl", "-sS", "--noproxy", "*", f"http://127.0.0.1:{daemon.port}/metrics"),
        capture_output=True, timeout=30, check=False,
    )  # fmt: skip
    assert plain.returncode != 0
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"https://127.0.0.1:{daemon.port}/metrics")


def test_a_renewed_certificate_is_taken_on_reload_and_a_bad_one_is_not(secure: tuple[Program, Authority]) -> None:
    daemon, authority = secure
    assert subject(daemon, authority) == "subject=CN=first"
    renew(authority, "second")
    daemon.reload()
    assert subject(daemon, authority) == "subject=CN=second"
    (authority.folder / "node.crt").write_text("no certificate")
    daemon.reload()
    assert "reload refused, the old settings go on: " in daemon.log
    assert subject(daemon, authority) == "subject=CN=second"
    assert curl(daemon, authority, "-u", "prometheus:geheim")[1].startswith("200 ")
    code, seconds = daemon.end()
    assert (code, seconds < 5) == (0, True)
