"""The web configuration file that Prometheus exporters share (exporter-toolkit's format): TLS, users, headers.

`load()` reads all of it, certificates too. The daemon calls it at start and again at each reload: a file that has
become wrong raises, and what was in force stays in force.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from oomcast.webtls import CURVES, SUITES, Tls, TlsError, create_tls, read_bounded

_MAX_BYTES = 1 << 20
_BCRYPT = re.compile(r"\$2[abxy]\$(\d\d)\$[./A-Za-z0-9]{53}\Z")
_MAX_COST = 16
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_HEADERS: Mapping[str, tuple[str, ...]] = {
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff", ""),
    "X-Frame-Options": ("deny", "sameorigin", ""),
    "X-XSS-Protection": (),
    "Content-Security-Policy": (),
}


class WebConfigError(ValueError):
    """The web configuration cannot be used; the text says which file, which key and why, and holds no secret."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """One request per `interval` seconds on average, `burst` at once."""

    interval: float
    burst: int


@dataclass(frozen=True, slots=True)
class WebConfig:
    """What the file says, ready to use; the defaults are plain HTTP for everybody.

    users: bcrypt hash by name, empty for no authentication. headers: on every response, replacing the server's own;
    an empty value leaves that header out.
    """

    tls: Tls | None = None
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    rate_limit: RateLimit | None = None


def load(path: Path) -> WebConfig:
    """Reads and checks the file and every certificate that it names (relative to its folder).

    Raises WebConfigError; nothing is half applied.
    """
    try:
        parsed = _File.model_validate(_parse(read_bounded(path, _MAX_BYTES)))
        tls = create_tls(parsed.tls_server_config, path.parent) if parsed.tls_server_config else None
    except ValidationError as exc:
        raise WebConfigError(f"{path}: {_explain(exc)}") from None
    except (OSError, TlsError) as exc:
        raise WebConfigError(f"{path}: {exc}") from exc
    except (ValueError, yaml.YAMLError, RecursionError) as exc:
        raise WebConfigError(f"{path}: {_explain_yaml(exc)}") from None
    limit = parsed.rate_limit
    return WebConfig(
        tls=tls,
        users=parsed.basic_auth_users or {},
        headers=(parsed.http_server_config and parsed.http_server_config.headers) or {},
        rate_limit=RateLimit(limit.interval, limit.burst) if limit and limit.interval else None,
    )


def _one_of(names: Mapping[str, str], what: str) -> AfterValidator:
    def check(value: str) -> str:
        if value not in names:
            raise ValueError(f"unknown {what} {value!r}; known are {', '.join(names)}")
        return value

    return AfterValidator(check)


def _seconds(value: object) -> object:
    if not isinstance(value, str) or value == "0":
        return value
    parts = _DURATION.findall(value)
    if not parts or "".join(number + unit for number, unit in parts) != value:
        raise ValueError("is a duration such as 1s, 500ms or 1m30s")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _bcrypt_hash(value: str) -> str:
    match = _BCRYPT.match(value)
    if not match or not 4 <= int(match[1]) <= 31:
        raise ValueError("is not a bcrypt hash (htpasswd -nBC 10 NAME makes one)")
    if int(match[1]) > _MAX_COST:
        raise ValueError(f"costs 2^{match[1]} rounds for every wrong password; at most {_MAX_COST} is accepted")
    return value


def _user_name(value: str) -> str:
    # Basic authentication ends the name at the first colon, so such a user could never log in.
    if not value or ":" in value:
        raise ValueError("a user name is not empty and has no colon")
    return value


def _known_headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if name not in _HEADERS:
            raise ValueError(f"{name!r} cannot be set; known are {', '.join(_HEADERS)}")
        if _HEADERS[name] and value not in _HEADERS[name]:
            raise ValueError(f"{name} is one of {', '.join(v for v in _HEADERS[name] if v)}")
        if not (value.isascii() and (value.isprintable() or not value)):
            raise ValueError(f"{name} holds characters that a header cannot carry")
    return headers


class _Section(BaseModel):
    # Values never appear in a message: next to a typo there may be a key or a password.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class _TlsSection(_Section):
    cert: str = ""
    key: str = ""
    client_ca: str = ""
    cert_file: str = ""
    key_file: str = ""
    client_ca_file: str = ""
    client_auth_type: Literal[
        "",
        "NoClientCert",
        "RequestClientCert",
        "RequireAnyClientCert",
        "RequireClientCert",
        "VerifyClientCertIfGiven",
        "RequireAndVerifyClientCert",
    ] = ""
    client_allowed_sans: list[str] | None = None
    min_version: Literal["TLS10", "TLS11", "TLS12", "TLS13"] = "TLS12"
    max_version: Literal["TLS10", "TLS11", "TLS12", "TLS13"] = "TLS13"
    cipher_suites: list[Annotated[str, _one_of(SUITES, "cipher suite")]] = []
    prefer_server_cipher_suites: bool = True
    curve_preferences: list[Annotated[str, _one_of(CURVES, "curve")]] = []

    @model_validator(mode="after")
    def _one_source_each(self) -> Self:
        for inline in ("cert", "key", "client_ca"):
            values = getattr(self, inline), getattr(self, f"{inline}_file")
            if all(values):
                raise ValueError(f"{inline} and {inline}_file exclude each other")
            if not any(values) and inline != "client_ca":
                raise ValueError(f"needs {inline}_file (or {inline})")
        return self


class _HttpSection(_Section):
    http2: bool | None = None
    headers: Annotated[dict[str, str], AfterValidator(_known_headers)] = {}

    @model_validator(mode="after")
    def _http_1_only(self) -> Self:
        if self.http2:
            raise ValueError("http2 is not supported: this server speaks HTTP/1.1; remove http2 or set it to false")
        return self


class _RateSection(_Section):
    interval: Annotated[float, BeforeValidator(_seconds), Field(ge=0, allow_inf_nan=False)] = 0.0
    burst: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _lets_something_through(self) -> Self:
        if self.interval and not self.burst:
            raise ValueError("a burst of 0 would refuse every request")
        return self


class _File(_Section):
    tls_server_config: _TlsSection | None = None
    http_server_config: _HttpSection | None = None
    basic_auth_users: (
        dict[Annotated[str, AfterValidator(_user_name)], Annotated[str, AfterValidator(_bcrypt_hash)]] | None
    ) = None
    rate_limit: _RateSection | None = None


class _UniqueKeys(yaml.SafeLoader):
    """YAML forbids a key twice in one mapping, PyYAML lets the last one win: here that could drop a user."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, "a key is there twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _parse(raw: bytes) -> object:
    loader = _UniqueKeys(raw.decode("utf-8"))
    try:
        data = loader.get_single_data()
    finally:
        loader.dispose()
    return {} if data is None else data


def _explain(exc: ValidationError) -> str:
    parts = []
    for error in exc.errors(include_url=False, include_input=False, include_context=False):
        where = ".".join(str(part) for part in error["loc"] if part != "[key]")
        reason = error["msg"].removeprefix("Value error, ")
        if error["type"] == "model_type":
            reason = "is a mapping of keys to values"
        parts.append(f"{where}: {reason}" if where else reason)
    return "; ".join(parts[:10])


def _explain_yaml(exc: Exception) -> str:
    # The text of a YAML error quotes the file, which holds password hashes; so does, shorter, the problem.
    mark = getattr(exc, "problem_mark", None)
    where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
    problem = re.sub(r"'[^']*'", "…", getattr(exc, "problem", None) or type(exc).__name__)
    return f"is not YAML: {problem}{where}"
