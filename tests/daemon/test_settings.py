import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from hypothesis import example as given_example
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

import oomcast_collectors
from oomcast.contract import Collector, CollectorSettings, CollectorSpec, Context, Roots
from oomcast.example import example
from oomcast.settings import ENGINES, Settings, SettingsError, listen_address, load
from oomcast.settings_file import MAX_BYTES, MAX_DEPTH, MAX_NODES, parse

DOCUMENT = Path(__file__).parents[2] / "docs" / "oomcast.example.yaml"


class Target(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    kind: str | None = None


class Limits(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    ratio: float = Field(0.5, ge=0, le=1, description="share")
    depth: int = Field(3, gt=0, description="levels")


class EngineSettings(CollectorSettings):
    interval: float = Field(2.0, ge=0.2, description="seconds between two runs")
    targets: tuple[Target, ...] = Field((), description="engines to scrape")
    limits: Limits = Field(Limits.model_validate({}), description="what is too much")
    unit: str | None = Field(None, description="systemd unit; any if null")
    words: tuple[str, ...] = Field(("a: b", "*", "x\ty", "007"), description="words that need care in YAML")
    spread: float | None = Field(None, description="a number or nothing")


def create(settings: CollectorSettings, context: Context) -> Collector:
    raise NotImplementedError


SPECS = (
    CollectorSpec("cgroup", "Memory of cgroups", CollectorSettings, (), create),
    CollectorSpec("engines", "Inference engines", EngineSettings, (), create),
)


def loaded(tmp_path: Path, text: str | bytes, environ: Mapping[str, str] | None = None) -> Settings:
    path = tmp_path / "oomcast.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load(path, environ or {}, SPECS)


def problems(tmp_path: Path, text: str | bytes, environ: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        loaded(tmp_path, text, environ)
    return [line.replace(f"{tmp_path}/", "") for line in str(caught.value).split("\n")]


def engines(settings: Settings) -> EngineSettings:
    found = settings.collectors["engines"]
    assert isinstance(found, EngineSettings)
    return found


def test_defaults() -> None:
    settings = load(None, {}, SPECS)
    assert settings.http.listen == "127.0.0.1:19128"
    assert settings.http.address == ("127.0.0.1", 19128)
    assert settings.http.web_config is None
    assert (settings.log.level, settings.log.format) == ("info", "logfmt")
    assert settings.paths.roots() == Roots()
    assert settings.serving_processes == ENGINES
    assert {name: type(found) for name, found in settings.collectors.items()} == {
        "cgroup": CollectorSettings,
        "engines": EngineSettings,
    }


@pytest.mark.parametrize(
    "text", ["", "\n# nothing\n", "---\n", "null", "{}", "\ufeff", "http:\ncollectors:\n  cgroup:\n"]
)
def test_an_empty_file_and_empty_sections_are_the_defaults(tmp_path: Path, text: str) -> None:
    assert loaded(tmp_path, text) == load(None, {}, SPECS)


def test_a_file(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        """
http: {listen: "[::]:9100", web_config: web.yaml}
log: {level: debug, format: json}
paths: {proc: /host/proc}
serving_processes: [vllm*, 'x']
collectors:
  cgroup: {interval: 5, enabled: false}
  engines:
    limits: {ratio: 1e-1}
    targets:
    - url: http://[::1]:8000/metrics
    - {url: 'http://b', kind: vllm}
""",
    )
    assert settings.http.address == ("::", 9100)
    assert settings.http.web_config == tmp_path / "web.yaml"
    assert (settings.log.level, settings.log.format) == ("debug", "json")
    assert settings.paths.roots() == Roots(proc=Path("/host/proc"))
    assert settings.serving_processes == ("vllm*", "x")
    assert settings.collectors["cgroup"] == CollectorSettings.model_validate({"interval": 5.0, "enabled": False})
    assert engines(settings).limits == Limits.model_validate({"ratio": 0.1})
    assert engines(settings).targets == (Target(url="http://[::1]:8000/metrics"), Target(url="http://b", kind="vllm"))


def test_settings_do_not_change_and_show_all_collectors(tmp_path: Path) -> None:
    settings = loaded(tmp_path, "collectors: {engines: {unit: a.service}}")
    with pytest.raises(ValueError, match="frozen"):
        settings.http = settings.http
    assert settings.model_dump(mode="json")["collectors"]["engines"]["unit"] == "a.service"


def test_every_problem_is_told_at_once_with_its_place(tmp_path: Path) -> None:
    text = """\
http:
  listn: x
  listen: 9128
logs: {}
collector: {}
collectors:
  cgrup: {}
  cgroup:
    intervall: 2
    interval: 0.1
    timeout: true
    enabled: 1
  engines:
    limits: {dept: 3, depth: 2.5, ratio: .nan}
    targets:
    - ulr: x
    - {url: a, kin: b}
serving_processes: vllm
log: [1]
"""
    assert problems(tmp_path, text) == [
        "oomcast.yaml:2:3: http.listn: unknown key, did you mean 'listen'?",
        "oomcast.yaml:3:3: http.listen: should be text (in quotes where it looks like something else), not 9128",
        "oomcast.yaml:4:1: logs: unknown key, did you mean 'log'?",
        "oomcast.yaml:5:1: collector: unknown key, did you mean 'collectors'?",
        "oomcast.yaml:7:3: collectors.cgrup: unknown collector, did you mean 'cgroup'?",
        "oomcast.yaml:9:5: collectors.cgroup.intervall: unknown key, did you mean 'interval'?",
        "oomcast.yaml:10:5: collectors.cgroup.interval: should be greater than or equal to 0.2, not 0.1",
        "oomcast.yaml:11:5: collectors.cgroup.timeout: should be a number, not true",
        "oomcast.yaml:12:5: collectors.cgroup.enabled: should be true or false, not 1",
        "oomcast.yaml:14:14: collectors.engines.limits.dept: unknown key, did you mean 'depth'?",
        "oomcast.yaml:14:23: collectors.engines.limits.depth: should be a whole number, not 2.5",
        "oomcast.yaml:14:35: collectors.engines.limits.ratio: NaN is not a value",
        "oomcast.yaml:16:7: collectors.engines.targets[0].ulr: unknown key, did you mean 'url'?",
        "oomcast.yaml:16:7: collectors.engines.targets[0].url: is required",
        "oomcast.yaml:17:16: collectors.engines.targets[1].kin: unknown key, did you mean 'kind'?",
        "oomcast.yaml:18:1: serving_processes: should be a list",
        "oomcast.yaml:19:1: log: should be a mapping",
    ]


def test_problems_can_be_read_by_a_program(tmp_path: Path) -> None:
    path = tmp_path / "oomcast.yaml"
    path.write_text("http:\n  listn: x\n")
    with pytest.raises(SettingsError) as caught:
        load(path, {}, SPECS)
    (problem,) = caught.value.problems
    assert problem.place == (str(path), 2, 3)
    assert (problem.key, problem.message) == ("http.listn", "unknown key, did you mean 'listen'?")


UNREADABLE: dict[str, tuple[str | bytes, str]] = {
    "bomb": ("a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]", "2:8: *a is a YAML alias"),
    "recursive": ("a: &a [*a]", "1:8: *a is a YAML alias"),
    "merge": ("a: &a {b: 1}\nc: {<<: *a}", "2:9: *a is a YAML alias"),
    "glob": ("serving_processes: [*vllm]", "1:21: *vllm is a YAML alias, which is not supported; quote it"),
    "object": ("a: !!python/object:os.system x", "1:4: the tag tag:yaml.org,2002:python/object:os.system is not"),
    "tag": ("a: !!int x", "1:4: the tag tag:yaml.org,2002:int is not supported"),
    "tab": ("http:\n\tlisten: x", "2:1: is not YAML: found character that cannot start any token; a tab cannot"),
    "brackets": ("http: {listen: [::1]:80}", "1:17: is not YAML: did not find expected node content; put the value"),
    "colon": ("a: b: c", "1:5: is not YAML: mapping values are not allowed in this context"),
    "quote": ("a: 'x", "1:6: is not YAML: found unexpected end of stream"),
    "documents": ("a: 1\n---\nb: 1\n", "2:1: holds more than one YAML document"),
    "list": ("- a", "1:1: must hold `key: value` lines"),
    "text": ("just text", "1:1: must hold `key: value` lines"),
    "deep": ("a: " + "[" * MAX_DEPTH + "]" * MAX_DEPTH, f"1:{MAX_DEPTH + 3}: is nested deeper than {MAX_DEPTH} levels"),
    "deeper": ("{" * 500_000, "1:1001: is not YAML: exceeded maximum nesting depth"),
    "wide": ("a: [" + "1," * 400_000 + "]", f"holds more than {MAX_NODES} keys and values"),
    "control": ("http:\n  a: \x00", "2: holds the character '\\x00'"),
    "binary": (b"\x7fELF\n\xff\xfe", "2: is not UTF-8 text"),
    "utf16": ("http: {}".encode("utf-16"), "1: is not UTF-8 text"),
    "large": (b"#" * (MAX_BYTES + 1), f" is larger than {MAX_BYTES} bytes"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_is_not_a_settings_file_is_one_clear_problem(tmp_path: Path, case: str) -> None:
    text, expected = UNREADABLE[case]
    began = time.monotonic()
    (told,) = problems(tmp_path, text)
    assert time.monotonic() - began < 2
    assert told.startswith("oomcast.yaml:")
    assert expected in told


def test_keys_and_scalars_that_yaml_reads_otherwise(tmp_path: Path) -> None:
    assert problems(tmp_path, "on: 1\n? [a]\n: 1\nlog: {level: info, level: debug, format: off}") == [
        "oomcast.yaml:1:1: on: unknown key",
        "oomcast.yaml:2:3: a key must be plain text",
        "oomcast.yaml:4:20: log.level: is set twice, first in line 4",
        "oomcast.yaml:4:34: log.format: should be 'logfmt' or 'json', not false",
    ]
    settings = loaded(tmp_path, "collectors: {engines: {unit: 2026-01-02, words: [10:30, 1.2.3, '5']}}")
    assert engines(settings).unit == "2026-01-02"
    assert engines(settings).words == ("10:30", "1.2.3", "5")


@pytest.mark.parametrize("text", ["9" * 5000, "0x_", "._", "-.inf", "1e999999"])
def test_odd_numbers(tmp_path: Path, text: str) -> None:
    (told,) = problems(tmp_path, f"collectors: {{cgroup: {{interval: {text}}}}}")
    assert told.startswith("oomcast.yaml:1:23: collectors.cgroup.interval: ")
    assert len(told) < 200


def test_a_problem_does_not_repeat_text_or_escape_sequences(tmp_path: Path) -> None:
    (told,) = problems(tmp_path, 'http: {web_config: /x, listen: "hunter2"}')
    assert "hunter2" not in told
    (told,) = problems(tmp_path, f'"\\e[2J\\n{"k" * 500}": 1')
    assert told.isprintable()
    assert told == f"oomcast.yaml:1:1: \\x1b[2J\\n{'k' * 75}…: unknown key"


def test_many_problems_are_cut(tmp_path: Path) -> None:
    told = problems(tmp_path, "".join(f"k{number}: 1\n" for number in range(9_000)))
    assert len(told) == 51
    assert told[-1] == "and 8950 more problems"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    def told(path: Path) -> str:
        with pytest.raises(SettingsError) as caught:
            load(path, {}, SPECS)
        return str(caught.value)

    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    assert told(tmp_path / "none") == f"{tmp_path}/none: cannot be read: No such file or directory"
    assert told(tmp_path) == f"{tmp_path}: cannot be read: Is a directory"
    assert told(tmp_path / "pipe") == f"{tmp_path}/pipe: cannot be read: not a regular file"
    assert told(tmp_path / "loop") == f"{tmp_path}/loop: cannot be read: Too many levels of symbolic links"
    assert told(Path("/dev/zero")) == "/dev/zero: cannot be read: not a regular file"
    assert told(Path("a\0b")) == "a\\x00b: cannot be read: embedded null byte"


def test_a_file_we_may_not_read(tmp_path: Path) -> None:
    path = tmp_path / "oomcast.yaml"
    path.write_text("")
    path.chmod(0)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if os.getuid() == 0:
                os.setuid(65534)
            load(path, {}, SPECS)
        except SettingsError as error:
            status = 0 if str(error) == f"{path}: cannot be read: Permission denied" else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_environment_wins(tmp_path: Path) -> None:
    environ = {
        "OOMCAST_HTTP__LISTEN": "[::1]:9128",
        "OOMCAST_PATHS__PROC": "/1.5",
        "OOMCAST_SERVING_PROCESSES": "['*x', y]",
        "OOMCAST_COLLECTORS__CGROUP__INTERVAL": "1e1",
        "OOMCAST_COLLECTORS__CGROUP__ENABLED": "false",
        "OOMCAST_COLLECTORS__ENGINES__UNIT": "*.service",
        "OOMCAST_COLLECTORS__ENGINES__LIMITS__DEPTH": "7",
        "OOMCAST_COLLECTORS__ENGINES__TARGETS": "[{url: 'http://a'}]",
        "OOMCAST_COLLECTORS__ENGINES__SPREAD": "null",
        "OOMCAST_REQUIRE": "cgroup",
        "HTTP__LISTEN": "no",
        "oomcast_http__listen": "no",
    }
    settings = loaded(tmp_path, "http: {listen: ':1'}\ncollectors: {engines: {unit: a, targets: [{url: b}]}}", environ)
    assert settings.http.address == ("::1", 9128)
    assert settings.paths.proc == Path("/1.5")
    assert settings.serving_processes == ("*x", "y")
    assert settings.collectors["cgroup"].interval == 10.0
    assert settings.collectors["cgroup"].enabled is False
    assert engines(settings).unit == "*.service"
    assert engines(settings).limits.depth == 7
    assert engines(settings).targets == (Target(url="http://a"),)
    assert engines(settings).spread is None


def test_numbers_stay_text_where_only_text_can_be_meant(tmp_path: Path) -> None:
    environ = {"OOMCAST_COLLECTORS__ENGINES__UNIT": "007", "OOMCAST_HTTP__WEB_CONFIG": ""}
    settings = loaded(tmp_path, "http: {web_config: /x}", environ)
    assert engines(settings).unit == "007"
    assert settings.http.web_config is None


def test_problems_of_the_environment(tmp_path: Path) -> None:
    environ = {
        "OOMCAST_HTTP__LISTEN": "x",
        "OOMCAST_HTTP__LISTN": "x",
        "OOMCAST_LOG__LEVEL": "\udc80",
        "OOMCAST_LOG_FORMAT": "json",
        "OOMCAST_COLLECTORS__CGROUP__INTERVAL": "'",
        "OOMCAST_COLLECTORS__CGROUP__TIMEOUT": "-1",
        "OOMCAST_COLLECTORS__ENGINES__TARGETS": "[{ulr: x}]",
        "OOMCAST_SERVING_PROCESSES": "[" * 100,
        "OOMCAST_ZZZZ\n": "1",
    }
    assert sorted(problems(tmp_path, "paths: 5", environ | {"OOMCAST_PATHS__PROC": "/x"})) == [
        "OOMCAST_COLLECTORS__CGROUP__INTERVAL: collectors.cgroup.interval: is not YAML: found unexpected end of stream",
        "OOMCAST_COLLECTORS__CGROUP__TIMEOUT: collectors.cgroup.timeout: should be greater than 0, not -1",
        "OOMCAST_COLLECTORS__ENGINES__TARGETS: collectors.engines.targets[0].ulr: unknown key, did you mean 'url'?",
        "OOMCAST_COLLECTORS__ENGINES__TARGETS: collectors.engines.targets[0].url: is required",
        "OOMCAST_HTTP__LISTEN: http.listen: should be host:port, [IPv6]:port or :port with a port from 0 to 65535",
        "OOMCAST_HTTP__LISTN: no setting has this environment variable, did you mean 'OOMCAST_HTTP__LISTEN'?",
        "OOMCAST_LOG_FORMAT: no setting has this environment variable, did you mean 'OOMCAST_LOG__FORMAT'?",
        "OOMCAST_LOG__LEVEL: log.level: holds the character '\\udc80'",
        "OOMCAST_SERVING_PROCESSES: serving_processes: is nested deeper than 32 levels",
        "OOMCAST_ZZZZ\\n: no setting has this environment variable",
        "oomcast.yaml:1:1: paths: should be a mapping, not 5",
    ]


def test_what_kubernetes_sets_for_a_service_called_oomcast_is_no_setting() -> None:
    environ = {
        "OOMCAST_SERVICE_HOST": "10.0.0.1",
        "OOMCAST_SERVICE_PORT": "19128",
        "OOMCAST_SERVICE_PORT_METRICS": "19128",
        "OOMCAST_PORT": "tcp://10.0.0.1:19128",
        "OOMCAST_PORT_19128_TCP": "tcp://10.0.0.1:19128",
        "OOMCAST_PORT_19128_TCP_PROTO": "tcp",
        "OOMCAST_PORT_19128_TCP_PORT": "19128",
        "OOMCAST_PORT_19128_TCP_ADDR": "10.0.0.1",
        "OOMCAST_GPU_NODES_SERVICE_HOST": "10.0.0.2",
        "OOMCAST_GPU_NODES_PORT_19128_TCP_ADDR": "10.0.0.2",
    }
    assert load(None, environ, SPECS) == load(None, {}, SPECS)


def test_the_environment_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("log: {level: error}")
    assert load(None, {"OOMCAST_CONFIG": str(path)}, SPECS).log.level == "error"
    assert load(None, {"OOMCAST_CONFIG": ""}, SPECS).log.level == "info"
    with pytest.raises(SettingsError, match=re.escape("/none.yaml: cannot be read")):
        load(path.with_name("none.yaml"), {"OOMCAST_CONFIG": str(path)}, SPECS)


def test_settings_of_a_plugin_that_did_not_load_are_not_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "oomcast.yaml"
    path.write_text("collectors: {vendor: {any: thing}}")
    environ = {"OOMCAST_COLLECTORS__VENDOR__ANY": "thing"}
    assert load(path, environ, SPECS, left_out=["vendor"]) == load(None, {}, SPECS)
    with pytest.raises(SettingsError, match=r"collectors\.vendor: unknown collector"):
        load(path, {}, SPECS)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        (":9128", ("", 9128)),
        ("localhost:65535", ("localhost", 65535)),
        ("[fe80::1%eth0]:1", ("fe80::1%eth0", 1)),
    ],
)
def test_listen_addresses(text: str, address: tuple[str, int]) -> None:
    assert listen_address(text) == address


@pytest.mark.parametrize("text", ["", "9128", "a:", "a:65536", "::1:9128", "a b:1", "http://a:1", "a:1\n", "a:\u0661"])
def test_what_is_no_listen_address(text: str) -> None:
    with pytest.raises(ValueError, match="should be host:port"):
        listen_address(text)


def test_paths_are_absolute(tmp_path: Path) -> None:
    assert problems(tmp_path, "paths: {proc: proc}") == ["oomcast.yaml:1:9: paths.proc: should be an absolute path"]


@hypothesis_settings(deadline=None)
@given(st.text() | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(yaml.safe_dump))
@given_example("? {a: b}\n: c")
@given_example("a: \ud800")
def test_any_text_is_settings_or_an_error(text: str) -> None:
    try:
        outcome = parse(text, "x").values
    except SettingsError as error:
        outcome = {"error": str(error)}
    assert isinstance(outcome, dict)
    assert str(outcome.get("error", "")).isprintable()


class TestExample:
    def uncommented(self, text: str) -> str:
        return re.sub(r"^(\s*)#(?=\S)", r"\1", text, flags=re.MULTILINE)

    def test_it_is_the_defaults_with_and_without_its_comments(self, tmp_path: Path) -> None:
        text = example(SPECS)
        assert loaded(tmp_path, text) == load(None, {}, SPECS)
        assert loaded(tmp_path, self.uncommented(text)) == load(None, {}, SPECS)

    def test_every_key_is_in_it(self) -> None:
        values = yaml.safe_load(self.uncommented(example(SPECS)))
        defaults = load(None, {}, SPECS).model_dump(mode="json")
        assert values == defaults

    def test_a_key_has_its_meaning_its_limits_and_its_variable(self) -> None:
        text = example(SPECS)
        assert (
            """\
    # seconds between two runs
    # (number, at least 0.2; OOMCAST_COLLECTORS__ENGINES__INTERVAL)
    #interval: 2.0
"""
            in text
        )
        assert (
            """\
    # what is too much
    limits:
      # share
      # (number, 0 to 1; OOMCAST_COLLECTORS__ENGINES__LIMITS__RATIO)
      #ratio: 0.5
      # levels
      # (whole number, above 0; OOMCAST_COLLECTORS__ENGINES__LIMITS__DEPTH)
      #depth: 3
"""
            in text
        )
        assert "(list of mapping of url, kind; OOMCAST_COLLECTORS__ENGINES__TARGETS)" in text
        assert "(one of debug, info, warning, error; OOMCAST_LOG__LEVEL)" in text
        assert "(path or null; OOMCAST_HTTP__WEB_CONFIG)" in text
        assert "(true or false; OOMCAST_COLLECTORS__CGROUP__ENABLED)" in text

    def test_the_variables_in_it_are_read(self) -> None:
        names = re.findall(r"OOMCAST_\w+(?=\)$)", example(SPECS), re.MULTILINE)
        values = dict.fromkeys(names, "\x01")
        with pytest.raises(SettingsError) as caught:
            load(None, values, SPECS)
        told = {problem.place.source for problem in caught.value.problems}
        assert not [problem for problem in caught.value.problems if "no setting" in problem.message]
        assert told == set(names)

    def test_the_documented_one_is_current(self, request: pytest.FixtureRequest) -> None:
        text = example(oomcast_collectors.ALL)
        if request.config.getoption("--update-golden"):
            DOCUMENT.write_text(text)
        assert DOCUMENT.read_text() == text, f"{DOCUMENT.name} is not current: pytest --update-golden"
