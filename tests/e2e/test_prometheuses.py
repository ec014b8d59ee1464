"""Every Prometheus of this machine, with the Alertmanager of its generation: scrape, alert, page, resolve."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from e2e.prometheuses import PROGRAMS, Prometheus, found, newest, oldest, on_each
from e2e.stack import alertmanager, fetch, host, prometheus, serving, webhook
from requires import main, needs

pytestmark = needs("prometheus")

KEPT = 2.0
"""Seconds of keep_firing_for."""

RULES = """
groups:
  - name: toy
    rules:
      - alert: ToyIsHigh
        expr: toy > 1
        keep_firing_for: 2s
        labels: {severity: page}
        annotations: {summary: "is {{ $value }}"}
"""
PROMETHEUS = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [toy.rules.yml]
alerting: {{alertmanagers: [{{static_configs: [{{targets: ["{alertmanager}"]}}]}}]}}
scrape_configs: [{{job_name: toy, static_configs: [{{targets: ["{target}"]}}]}}]
"""
ALERTMANAGER = """
route: {{receiver: toys, group_by: [alertname], group_wait: 0s, group_interval: 1s, repeat_interval: 1h}}
receivers: [{{name: toys, webhook_configs: [{{url: "{hook}toys", send_resolved: true}}]}}]
"""


@on_each()
def test_each_pages_once_and_resolves_after_keeping_on(which: Prometheus, tmp_path: Path) -> None:
    values = [7]
    (tmp_path / "toy.rules.yml").write_text(RULES)
    with ExitStack() as running:
        target = running.enter_context(_target(values))
        hook, messages = running.enter_context(webhook())
        pager = running.enter_context(alertmanager(tmp_path, ALERTMANAGER.format(hook=hook), which))
        config = PROMETHEUS.format(alertmanager=host(pager), target=host(target))
        url = running.enter_context(prometheus(tmp_path, config, which))
        assert f"version {_version(f'{url}/api/v1/status/buildinfo', 'data')} " in _said(which.promtool)
        assert f"version {_version(f'{pager}/api/v2/status', 'versionInfo')} " in _said(which.amtool)
        _becomes(lambda: len(messages) == 1)
        cleared = time.monotonic()
        values.append(0)
        _becomes(lambda: len(messages) == 2)
    fired, resolved = messages
    assert (fired.path, fired.receiver, fired.status) == ("/toys", "toys", "firing")
    assert (fired.group_key, fired.group_labels) == ('{}:{alertname="ToyIsHigh"}', {"alertname": "ToyIsHigh"})
    labels = {"alertname": "ToyIsHigh", "instance": host(target), "job": "toy", "severity": "page"}
    assert [(page.status, page.labels, page.annotations) for page in fired.pages] == [
        ("firing", labels, {"summary": "is 7"})
    ]
    assert (resolved.path, resolved.status, resolved.group_key) == ("/toys", "resolved", fired.group_key)
    assert [(page.status, page.labels) for page in resolved.pages] == [("resolved", labels)]
    assert resolved.at - cleared >= KEPT


def test_what_the_machine_can_do_tells_the_versions(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    versions = ", ".join(one.version for one in found())
    assert f"prometheus: available ({versions})" in capsys.readouterr().out.splitlines()


def test_whole_versions_are_found_once_each_the_oldest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    [installed] = found.__wrapped__()
    directory = tmp_path / "oomcast" / "prometheus"
    for version in ("10.1.0", "1.9.2", installed.version, "9.9.9", ".fetch-1"):
        (directory / version / "usr" / "bin").mkdir(parents=True)
        for name in PROGRAMS:
            (directory / version / "usr" / "bin" / name).touch(mode=0o755)
    (directory / "9.9.9" / "usr" / "bin" / "amtool").unlink()
    (directory / "sid").symlink_to("10.1.0")
    old, same, new = found.__wrapped__()
    assert (old.version, same, new.version) == ("1.9.2", installed, "10.1.0")
    assert new.alertmanager == directory / "10.1.0" / "usr" / "bin" / "prometheus-alertmanager"


def test_the_oldest_and_the_newest_are_the_ends_of_what_is_found() -> None:
    assert (oldest(), newest()) == (found()[0], found()[-1])


@contextmanager
def _target(values: list[int]) -> Iterator[str]:
    """What Prometheus scrapes: the last of `values`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(f"toy {values[-1]}\n".encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with serving(Handler) as url:
        yield url


def _version(url: str, key: str) -> str:
    """As a running server tells it."""
    version: str = json.loads(fetch(url))[key]["version"]
    return version


def _said(program: Path) -> str:
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout


def _becomes(true: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)
