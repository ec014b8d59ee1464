"""The web configuration file: what is accepted means what it says, everything else is refused in words."""

import os
import ssl
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from daemon.web_harness import Authority, app, serving
from oomcast.webconfig import RateLimit, WebConfig, WebConfigError, load

HASH = "$2y$04$abcdefghijklmnopqrstuuHGbaPBZuTuTdbzWTO2.xWiLYnqYsYeC"
Write = Callable[[str], Path]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("pki")).create()
    made.issue("server", "IP:127.0.0.1,DNS:localhost")
    made.issue("scraper", "DNS:prometheus.example,IP:2001:db8::1,URI:spiffe://prod/prometheus")
    return made


@pytest.fixture
def write(authority: Authority) -> Write:
    def write_file(text: str) -> Path:
        path = authority.folder / "web.yml"
        path.write_text(text)
        return path

    return write_file


TLS = "tls_server_config: {cert_file: server.crt, key_file: server.key"


def test_nothing_configured_is_plain_http(write: Write) -> None:
    for text in ("", "# nothing\n", "basic_auth_users:\n", "tls_server_config:\n"):
        assert load(write(text)) == WebConfig()


def test_users_headers_and_rate_limit(write: Write) -> None:
    config = load(
        write(
            f"basic_auth_users: {{alice: '{HASH}'}}\n"
            "http_server_config:\n"
            "  http2: false\n"
            "  headers: {Strict-Transport-Security: max-age=60, X-Frame-Options: deny}\n"
            "rate_limit: {interval: 1m1.5s, burst: 20}\n"
        )
    )
    assert config.users == {"alice": HASH}
    assert config.headers == {"Strict-Transport-Security": "max-age=60", "X-Frame-Options": "deny"}
    assert config.rate_limit == RateLimit(61.5, 20)
    assert config.tls is None
    assert HASH not in repr(config)


def test_tls_defaults(write: Write) -> None:
    tls = load(write(TLS + "}\n")).tls
    assert tls is not None
    assert tls.context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert tls.context.maximum_version is ssl.TLSVersion.TLSv1_3
    assert tls.context.verify_mode is ssl.CERT_NONE
    assert tls.context.options & ssl.OP_CIPHER_SERVER_PREFERENCE
    assert tls.allowed_sans is None


def test_tls_settings_are_honoured(write: Write) -> None:
    settings = (
        ", max_version: TLS12, prefer_server_cipher_suites: false, curve_preferences: [CurveP384],"
        " cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]"
    )
    tls = load(write(TLS + settings + "}\n")).tls
    assert tls is not None
    old = [suite["name"] for suite in tls.context.get_ciphers() if suite["protocol"] == "TLSv1.2"]
    assert old == ["ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256"]
    assert tls.context.maximum_version is ssl.TLSVersion.TLSv1_2
    assert not tls.context.options & ssl.OP_CIPHER_SERVER_PREFERENCE


def test_inline_certificate_and_key(authority: Authority, tmp_path: Path) -> None:
    indented = {
        name: "".join(f"    {line}\n" for line in (authority.folder / f"server.{name}").read_text().splitlines())
        for name in ("crt", "key")
    }
    path = tmp_path / "web.yml"
    path.write_text(f"tls_server_config:\n  cert: |\n{indented['crt']}  key: |\n{indented['key']}")
    with serving(app(), tls=load(path).tls) as running:
        client = ssl.create_default_context(cafile=str(authority.certificate))
        assert httpx.get(running.url + "/-/healthy", verify=client).status_code == 200


CA = "client_ca_file: ca.crt"
REFUSED = {
    "a key twice": (
        f"basic_auth_users:\n  al: '{HASH}'\n  al: '{HASH}'\n",
        "is not YAML: a key is there twice (line 3,",
    ),
    "not a mapping": ("- 1\n", "is a mapping of keys to values"),
    "broken YAML": ("{a: [", "is not YAML: expected the node content, but found … (line 1, column 6)"),
    "deep YAML": ("[" * 1_500, "is not YAML: RecursionError"),
    "not UTF-8": ("\udcff", "is not YAML: UnicodeDecodeError"),
    "a list as a key": ("{[a]: b}\n", "is not YAML: found unhashable key"),
    "a tag": ("!!python/object/apply:os.system [id]", "is not YAML: could not determine a constructor"),
    "not a section": ("tls_server_config: yes\n", "tls_server_config: is a mapping of keys to values"),
    "false": ("false\n", "is a mapping of keys to values"),
    "unknown section": ("basic_auth: {}\n", "basic_auth: Extra inputs are not permitted"),
    "unknown TLS key": (TLS + ", ciphers: []}\n", "tls_server_config.ciphers: Extra inputs are not permitted"),
    "no certificate": ("tls_server_config: {key_file: server.key}\n", "tls_server_config: needs cert_file (or cert)"),
    "no key": ("tls_server_config: {cert_file: server.crt}\n", "tls_server_config: needs key_file (or key)"),
    "two certificates": (TLS + ", cert: x}\n", "cert and cert_file exclude each other"),
    "absent file": ("tls_server_config: {cert_file: no.crt, key_file: server.key}\n", "No such file or directory"),
    "no certificate in it": (
        "tls_server_config: {cert_file: web.yml, key_file: server.key}\n",
        "cert_file and key_file do not make a pair: ",
    ),
    "another's key": (
        "tls_server_config: {cert_file: server.crt, key_file: scraper.key}\n",
        "cert_file and key_file do not make a pair: key values mismatch",
    ),
    "folder": ("tls_server_config: {cert_file: ., key_file: server.key}\n", "is not a regular file"),
    "endless": ("tls_server_config: {cert_file: /dev/zero, key_file: server.key}\n", "is not a regular file"),
    "TLS 1.0": (TLS + ", min_version: TLS10}\n", "min_version TLS10: OpenSSL no longer offers TLS below 1.2"),
    "unknown version": (TLS + ", min_version: SSL3}\n", "tls_server_config.min_version: Input should be 'TLS10'"),
    "versions reversed": (
        TLS + ", min_version: TLS13, max_version: TLS12}\n",
        "min_version TLS13 is above max_version TLS12",
    ),
    "unknown suite": (TLS + ", cipher_suites: [RC4]}\n", "cipher_suites.0: unknown cipher suite 'RC4'"),
    "TLS 1.3 suite": (
        TLS + ", cipher_suites: [TLS_AES_128_GCM_SHA256]}\n",
        "cipher_suites: TLS_AES_128_GCM_SHA256 belongs to TLS 1.3, whose suites cannot be chosen",
    ),
    "several curves": (
        TLS + ", curve_preferences: [CurveP256, CurveP384]}\n",
        "curve_preferences: Python's ssl takes one curve, not a list of them",
    ),
    "unknown curve": (TLS + ", curve_preferences: [P1]}\n", "curve_preferences.0: unknown curve 'P1'"),
    "unverified, if any": (
        TLS + f", {CA}, client_auth_type: RequestClientCert}}\n",
        "client_auth_type RequestClientCert accepts certificates without verifying them",
    ),
    "unverified": (
        TLS + ", client_auth_type: RequireAnyClientCert}\n",
        "client_auth_type RequireAnyClientCert accepts certificates without verifying them",
    ),
    "authority unused": (TLS + f", {CA}}}\n", "client_ca_file is set, but client_auth_type asks no client"),
    "no authority": (
        TLS + ", client_auth_type: RequireAndVerifyClientCert}\n",
        "client_auth_type RequireAndVerifyClientCert needs client_ca_file",
    ),
    "authority is a key": (
        TLS + ", client_auth_type: VerifyClientCertIfGiven, client_ca_file: server.key}\n",
        "client_ca_file (or client_ca) holds no certificate in PEM form",
    ),
    "names of nobody": (
        TLS + f", {CA}, client_auth_type: VerifyClientCertIfGiven, client_allowed_sans: [a]}}\n",
        "client_allowed_sans needs client_auth_type RequireAndVerifyClientCert",
    ),
    "HTTP/2": ("http_server_config: {http2: true}\n", "http2 is not supported: this server speaks HTTP/1.1"),
    "another header": ("http_server_config: {headers: {Server: x}}\n", "'Server' cannot be set; known are Strict-"),
    "header value": (
        "http_server_config: {headers: {X-Frame-Options: maybe}}\n",
        "X-Frame-Options is one of deny, sameorigin",
    ),
    "header injection": (
        'http_server_config: {headers: {Content-Security-Policy: "a\\r\\nb: c"}}\n',
        "Content-Security-Policy holds characters that a header cannot carry",
    ),
    "plain password": ("basic_auth_users: {al: hunter2}\n", "basic_auth_users.al: is not a bcrypt hash"),
    "expensive hash": (
        "basic_auth_users: {al: '" + HASH.replace("$04", "$31") + "'}\n",
        "basic_auth_users.al: costs 2^31 rounds for every wrong password",
    ),
    "colon in a name": (f"basic_auth_users: {{'a:b': '{HASH}'}}\n", "a user name is not empty and has no colon"),
    "not a duration": ("rate_limit: {interval: soon, burst: 1}\n", "rate_limit.interval: is a duration such as 1s"),
    "no burst": ("rate_limit: {interval: 1s}\n", "rate_limit: a burst of 0 would refuse every request"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_words(case: str, write: Write) -> None:
    text, expected = REFUSED[case]
    path = write("")
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(WebConfigError) as error:
        load(path)
    assert expected in str(error.value)
    assert str(path) in str(error.value)
    assert HASH not in str(error.value)
    assert "hunter2" not in str(error.value)


def test_absent_and_oversized_files(tmp_path: Path) -> None:
    with pytest.raises(WebConfigError, match="No such file or directory"):
        load(tmp_path / "web.yml")
    (tmp_path / "web.yml").write_bytes(b"#" * (1 << 20) + b"#")
    with pytest.raises(WebConfigError, match="is larger than 1048576 bytes"):
        load(tmp_path / "web.yml")


def test_a_pipe_in_place_of_the_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "web.yml")
    with pytest.raises(WebConfigError, match="is not a regular file"):
        load(tmp_path / "web.yml")


def test_encrypted_key_does_not_ask_on_the_terminal(authority: Authority, write: Write) -> None:
    authority._openssl("ec", "-in", "server.key", "-aes128", "-passout", "pass:geheim", "-out", "locked.key")
    with pytest.raises(WebConfigError, match="key_file is encrypted"):
        load(write("tls_server_config: {cert_file: server.crt, key_file: locked.key}\n"))


def test_loading_leaves_no_descriptor_behind(write: Write) -> None:
    path = write(TLS + "}\n")
    load(path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        load(path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize(
    ("sans", "admitted"),
    [
        (None, True),
        (["prometheus.example"], True),
        (["2001:0DB8::0:1"], True),
        (["spiffe://prod/prometheus"], True),
        (["example", "prometheus.example.org"], False),
        ([], False),
    ],
)
def test_client_names(sans: list[str] | None, admitted: bool, write: Write) -> None:
    allowed = "" if sans is None else f", client_allowed_sans: {sans}"
    tls = load(write(TLS + f", {CA}, client_auth_type: RequireAndVerifyClientCert{allowed}}}\n")).tls
    assert tls is not None
    certificate = {
        "subjectAltName": (
            ("DNS", "prometheus.example"),
            ("IP Address", "2001:DB8:0:0:0:0:0:1"),
            ("URI", "spiffe://prod/prometheus"),
        )
    }
    assert tls.admits(certificate) is admitted
    assert tls.admits({}) is (sans is None)
