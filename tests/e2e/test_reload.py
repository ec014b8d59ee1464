"""SIGHUP to the real program: what changes, what goes on, and what a bad file leaves alone."""

import contextlib
import json
import re
import time
from pathlib import Path
from urllib.error import HTTPError, URLError

import bcrypt
import httpx
import pytest

from e2e.program import OUR_OWN_OFF, Program, plugins, program, until
from e2e.stack import fetch, free_port

HTTP = 'http: {listen: "127.0.0.1:{port}"}\n'
OURS = "cgroup: {enabled: false}, host: {enabled: false}, kernel_log: {enabled: false}"
GOOD = 'collector="good"'


def collectors(**own: str) -> str:
    given = "".join(f", {name}: {{{text}}}" for name, text in own.items())
    return f"{HTTP}collectors: {{{OURS}{given}}}\n"


def count(daemon: Program) -> float:
    """What the good collector counts; 0 before its first run."""
    return daemon.value("oomcast_trouble_good_total") or 0


def test_an_unchanged_collector_goes_on_and_a_changed_one_is_made_anew(tmp_path: Path) -> None:
    specs = {"good": "GOOD", "hangs_in_stop": "HANGS_IN_STOP", "flood": "FLOOD"}
    with program(tmp_path, collectors(), plugins(tmp_path, specs)) as daemon:
        until(lambda: count(daemon) >= 3)
        before = count(daemon)
        made = daemon.value("oomcast_collector_runs_total", f'{GOOD},outcome="success"')
        assert made is not None
        daemon.settings(collectors(flood="enabled: false", hangs_in_stop="interval: 0.25"))
        slowest = reload_and_scrape(daemon)
        assert (tmp_path / "good-made").read_text() == "x"
        assert count(daemon) >= before
        after = daemon.value("oomcast_collector_runs_total", f'{GOOD},outcome="success"')
        assert after is not None
        assert after >= made
        until(lambda: count(daemon) > before)
        # The one that does not stop is left behind after a second, which no request waits for.
        assert slowest < 0.5
        assert "did not stop in time" in daemon.log
        assert "oomcast_trouble_many" not in fetch(f"{daemon.url}/metrics")
        assert daemon.value("oomcast_collector_up", 'collector="flood"') is None
        until(lambda: 0.2 < (daemon.value("oomcast_collector_period_seconds", 'collector="hangs_in_stop"') or 0) < 0.4)

        daemon.settings(collectors(good="interval: 0.3"))
        daemon.reload()
        assert (tmp_path / "good-made").read_text() == "xx"
        until(lambda: daemon.value("oomcast_trouble_many", 'number="999"') == 999)
        assert [message.split("\n")[0] for message in daemon.messages] == ["RELOADING=1", "READY=1"]


def reload_and_scrape(daemon: Program) -> float:
    """Reloads; gives the seconds that the slowest scrape took meanwhile."""
    daemon.messages.clear()
    daemon.process.send_signal(1)
    slowest, end = 0.0, time.monotonic() + 2.5
    while time.monotonic() < end:
        began = time.monotonic()
        fetch(f"{daemon.url}/metrics")
        slowest = max(slowest, time.monotonic() - began)
        time.sleep(0.02)
    daemon.heard("RELOADING=1")
    daemon.heard("READY=1")
    return slowest


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("collectors: {good: {interval: soon}}\n", "collectors.good.interval: should be a number"),
        ("{{{", "expected"),
        ('http: {listen: "127.0.0.1:{port}", web_config: /nonexistent/web.yaml}\n', "/nonexistent/web.yaml"),
        ('http: {listen: "192.0.2.1:80"}\nlog: {level: debug}\n', "cannot listen on 192.0.2.1:80"),
    ],
)
def test_a_bad_file_is_refused_with_its_reason_and_changes_nothing(tmp_path: Path, bad: str, reason: str) -> None:
    with program(tmp_path, collectors(), plugins(tmp_path, {"good": "GOOD"})) as daemon:
        until(lambda: count(daemon) >= 1)
        daemon.settings(bad)
        daemon.reload()
        refusals = [line for line in daemon.log.splitlines() if "reload refused, the old settings go on: " in line]
        assert len(refusals) == 1
        assert reason in refusals[0]
        assert "level=debug" not in daemon.log
        before = count(daemon)
        until(lambda: count(daemon) > before)
        assert (tmp_path / "good-made").read_text() == "x"

        daemon.settings(collectors(good="enabled: false"))
        daemon.reload()
        assert daemon.value("oomcast_trouble_good_total") is None
        assert daemon.end()[0] == 0


def test_log_settings_apply(tmp_path: Path) -> None:
    with program(tmp_path, collectors(), plugins(tmp_path, {"good": "GOOD"})) as daemon:
        daemon.settings(collectors() + "log: {level: debug, format: json}\n")
        daemon.reload()
        last = json.loads(daemon.log.splitlines()[-1])
        assert (last["level"], last["logger"], last["msg"]) == ("info", "oomcast", "settings reloaded")
        daemon.settings(collectors() + "log: {level: error}\n")
        daemon.reload()
        size = len(daemon.log)
        daemon.settings(collectors() + "log: {level: loud}\n")
        daemon.reload()
        assert re.match(r"ts=\S+ level=error logger=oomcast msg=\"reload refused", daemon.log[size:])


def test_the_address_moves(tmp_path: Path) -> None:
    with program(tmp_path, collectors(), plugins(tmp_path, {"good": "GOOD"})) as daemon:
        until(lambda: count(daemon) >= 1)
        old, daemon.port = daemon.url, free_port()
        daemon.settings(collectors())
        daemon.reload()
        assert daemon.messages[-1] == f"READY=1\nSTATUS=serving {daemon.url}"
        assert count(daemon) >= 1
        assert (tmp_path / "good-made").read_text() == "x"
        with pytest.raises(URLError):
            fetch(f"{old}/metrics")


def test_users_are_in_force_before_a_new_address_answers(tmp_path: Path) -> None:
    web = tmp_path / "web.yaml"
    password = bcrypt.hashpw(b"geheim", bcrypt.gensalt(4)).decode()
    web.write_text(f'basic_auth_users: {{prometheus: "{password}"}}\n')
    with program(tmp_path, f"{HTTP}{OUR_OWN_OFF}\n") as daemon:
        assert fetch(f"{daemon.url}/metrics")
        daemon.port = free_port()
        daemon.settings(f'http: {{listen: "127.0.0.1:{{port}}", web_config: web.yaml}}\n{OUR_OWN_OFF}\n')
        daemon.messages.clear()
        daemon.process.send_signal(1)
        answers, end = set(), time.monotonic() + 3
        while time.monotonic() < end:
            with contextlib.suppress(httpx.TransportError):
                answers.add(httpx.get(f"{daemon.url}/metrics", timeout=5).status_code)
        assert answers == {401}
        daemon.heard("READY=1")
        with pytest.raises(HTTPError, match="401"):
            fetch(f"{daemon.url}/metrics")
        assert httpx.get(f"{daemon.url}/metrics", auth=("prometheus", "geheim")).status_code == 200
        assert httpx.get(f"{daemon.url}/metrics", auth=("prometheus", "falsch")).status_code == 401

        # Switched off again, with the address as it is.
        daemon.settings(f"{HTTP}{OUR_OWN_OFF}\n")
        daemon.reload()
        assert fetch(f"{daemon.url}/metrics")


def test_two_signals_at_once_are_no_trouble(tmp_path: Path) -> None:
    with program(tmp_path, collectors(), plugins(tmp_path, {"good": "GOOD"})) as daemon:
        for _ in range(20):
            daemon.process.send_signal(1)
        until(lambda: "settings reloaded" in daemon.log)
        assert daemon.end()[0] == 0
