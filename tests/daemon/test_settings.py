import re
from pathlib import Path

import pytest

from daemon.settings_cases import SPECS, EngineSettings, Limits, Target, engines, loaded, problems
from oomcast.address import listen_address
from oomcast.contract import CollectorSettings, Roots
from oomcast.settings import ENGINES, SettingsError, load


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


def test_the_hosts_root_directory_is_where_the_other_paths_start(tmp_path: Path) -> None:
    host = Path("/host")
    assert loaded(tmp_path, "paths: {host: /host}").paths.roots() == Roots(
        host / "proc", host / "sys", host / "dev", host / "var/log/pods", host
    )


def test_a_path_that_is_set_itself_does_not_start_at_the_hosts_root(tmp_path: Path) -> None:
    roots = loaded(tmp_path, "paths: {host: /host, dev: /dev, proc: /p}").paths.roots()
    assert (roots.dev, roots.proc, roots.sys) == (Path("/dev"), Path("/p"), Path("/host/sys"))
