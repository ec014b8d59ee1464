"""What a person reads: the shipped templates, by amtool, and as PagerDuty, Slack and a mail server get them."""

import email
import email.policy
import json
import socketserver
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.alertmanagers import TEMPLATES, amtool, faster, shipped
from e2e.prometheuses import Prometheus, on_each
from e2e.stack import alertmanager
from requires import needs

pytestmark = [needs("prometheus"), on_each()]

GPU = {
    "labels": {
        "alertname": "OomcastGpuExhaustion", "severity": "critical", "cluster": "inference", "node": "gpu-07",
        "engine": "chat",
    },
    "annotations": {
        "summary": "GPU memory of engine chat on gpu-07 runs out in 4m 10s",
        "description": "GPU memory rises. Next: send prompts above 64K tokens elsewhere.",
        "runbook_url": "https://runbooks.example.com/OomcastGpuExhaustion.md",
        "dashboard_url": "/d/oomcast-long-context?var-node=gpu-07",
    },
}  # fmt: skip
KILLED = {
    "labels": {"alertname": "OomcastEngineKilled", "severity": "critical", "cluster": "inference", "node": "gpu-07"},
    "annotations": {
        "summary": "The OOM killer ended engine <chat> & it's down",
        "description": "It did not come back. Next: start it.",
        "runbook_url": "https://runbooks.example.com/OomcastEngineKilled.md",
        "dashboard_url": "https://grafana.example.com/d/oomcast-node?var-node=gpu-07",
    },
}
BARE = {"labels": {"alertname": "SomebodyElse"}, "annotations": {}}

FIRING_TEXT = """\
GPU memory of engine chat on gpu-07 runs out in 4m 10s
GPU memory rises. Next: send prompts above 64K tokens elsewhere.
Runbook: https://runbooks.example.com/OomcastGpuExhaustion.md
Dashboard: /d/oomcast-long-context?var-node=gpu-07"""
KILLED_TEXT = """\
The OOM killer ended engine <chat> & it's down
It did not come back. Next: start it.
Runbook: https://runbooks.example.com/OomcastEngineKilled.md
Dashboard: https://grafana.example.com/d/oomcast-node?var-node=gpu-07"""

CASES: dict[str, tuple[list[Any], list[Any], str, str]] = {
    "one": (
        [GPU], [],
        "CRITICAL gpu-07: GPU memory of engine chat on gpu-07 runs out in 4m 10s",
        FIRING_TEXT,
    ),
    "three-and-one-over": (
        [GPU, KILLED, BARE], [KILLED],
        "CRITICAL gpu-07: GPU memory of engine chat on gpu-07 runs out in 4m 10s, +2 more",
        f"{FIRING_TEXT}\n\n{KILLED_TEXT}\n\nSomebodyElse\n\nOver:\n* The OOM killer ended engine <chat> & it's down",
    ),
    "over": (
        [], [KILLED, GPU],
        "RESOLVED gpu-07: The OOM killer ended engine <chat> & it's down, +1 more",
        "Over:\n* The OOM killer ended engine <chat> & it's down\n"
        "* GPU memory of engine chat on gpu-07 runs out in 4m 10s",
    ),
    "bare": ([BARE], [], "ALERT: SomebodyElse", "SomebodyElse"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_title_and_text(which: Prometheus, tmp_path: Path, name: str) -> None:
    firing, resolved, title, text = CASES[name]
    assert _render(which, tmp_path, "title", firing, resolved) == title
    assert _render(which, tmp_path, "text", firing, resolved) == text


def test_a_relative_link_is_one_of_the_grafana_that_is_named(which: Prometheus, tmp_path: Path) -> None:
    site = tmp_path / "site.tmpl"
    site.write_text('{{ define "oomcast.grafana" }}https://g.example.com{{ end }}')
    links = [
        line
        for line in _render(which, tmp_path, "text", [GPU, KILLED], [], site).splitlines()
        if line.startswith("Dashboard: ")
    ]
    assert links == [
        "Dashboard: https://g.example.com/d/oomcast-long-context?var-node=gpu-07",
        "Dashboard: https://grafana.example.com/d/oomcast-node?var-node=gpu-07",
    ]


@pytest.mark.parametrize(("severity", "shown"), [("critical", "critical"), ("info", "info"), ("page", "error")])
def test_the_severity_is_one_that_pagerduty_knows(which: Prometheus, tmp_path: Path, severity: str, shown: str) -> None:
    alert = {"labels": {"alertname": "A", "severity": severity}, "annotations": {}}
    assert _render(which, tmp_path, "severity", [alert], []) == shown


def test_the_examples_arrive_as_written(which: Prometheus, tmp_path: Path) -> None:
    """PagerDuty, Slack and mail as they are in the file, with the keys in files; what fires, and that it is over."""
    with _api() as (url, posted), _mail() as (smarthost, mails):
        config = _examples(tmp_path, url, smarthost)
        with alertmanager(tmp_path, yaml.safe_dump(config), which) as pager:
            _post(pager, GPU, KILLED)
            _becomes(lambda: len(posted) >= 2 and len(mails) >= 1)
            _post(pager, GPU, KILLED, over=True)
            _becomes(lambda: len(posted) >= 4 and len(mails) >= 2)
    title = "CRITICAL gpu-07: The OOM killer ended engine <chat> & it's down, +1 more"
    text = f"{KILLED_TEXT}\n\n{FIRING_TEXT}"
    over = (
        "Over:\n* The OOM killer ended engine <chat> & it's down\n"
        "* GPU memory of engine chat on gpu-07 runs out in 4m 10s"
    )
    trigger, resolve = (body for path, body in posted if path == "/pagerduty")
    assert (trigger["event_action"], resolve["event_action"]) == ("trigger", "resolve")
    assert trigger["dedup_key"] == resolve["dedup_key"]
    assert trigger["routing_key"] == "its-key"
    assert (trigger["payload"]["summary"], trigger["payload"]["severity"]) == (title, "critical")
    details = [body["payload"]["custom_details"] for body in (trigger, resolve)]
    # Newer ones read each as YAML where that can be done, as it can of nothing.
    assert [(one["firing"] or "", one["resolved"] or "") for one in details] == [(text, ""), ("", over)]
    slack = [body["attachments"][0] for path, body in posted if path == "/slack"]
    assert [one["title"] for one in slack] == [title, title.replace("CRITICAL", "RESOLVED")]
    assert [one["text"] for one in slack] == [text, over]
    assert [mail["Subject"] for mail in mails] == [title, title.replace("CRITICAL", "RESOLVED")]
    assert [_lines(mail) for mail in mails] == [text.splitlines(), over.splitlines()]


def _render(
    which: Prometheus, directory: Path, name: str, firing: Sequence[Any], resolved: Sequence[Any], *more: Path
) -> str:
    alerts = [{"status": "firing", **one} for one in firing] + [{"status": "resolved", **one} for one in resolved]
    common = {"severity": alerts[0]["labels"]["severity"]} if "severity" in alerts[0]["labels"] else {}
    data = directory / "data.json"
    data.write_text(json.dumps({"status": alerts[0]["status"], "alerts": alerts, "commonLabels": common}))
    globs = [f"--template.glob={path}" for path in (TEMPLATES, *more)]
    text = f'--template.text={{{{ template "oomcast.{name}" . }}}}'
    return amtool(which, "template", "render", *globs, text, f"--template.data={data}")


def _examples(directory: Path, url: str, smarthost: str) -> dict[str, Any]:
    """The examples in the shipped file, all for one receiver, with addresses of this test."""
    config = shipped(examples=True)
    receivers = {receiver["name"]: receiver for receiver in config["receivers"]}
    pagerduty, slack, mail = (
        receivers[name][f"{kind}_configs"][0]
        for name, kind in (("page", "pagerduty"), ("ticket", "slack"), ("ticket", "email"))
    )
    for one, key, secret in (
        (pagerduty, "routing_key_file", "its-key"),
        (slack, "api_url_file", f"{url}/slack"),
    ):
        file = directory / Path(one[key]).name
        file.write_text(secret)
        one[key] = str(file)
    pagerduty["url"] = f"{url}/pagerduty"
    # The server of this test knows neither TLS nor users.
    mail |= {"smarthost": smarthost, "require_tls": False}
    del mail["auth_username"], mail["auth_password_file"]
    page = {"name": "page", "pagerduty_configs": [pagerduty], "slack_configs": [slack], "email_configs": [mail]}
    config["receivers"] = [*(one for name, one in receivers.items() if name != "page"), page]
    faster(config["route"], 50)
    return config


def _post(url: str, *alerts: dict[str, Any], over: bool = False) -> None:
    # One that has fired for longer than group_wait would not wait for the others.
    now = datetime.now(UTC)
    ends = now if over else now + timedelta(hours=1)
    times = {"endsAt": ends.isoformat()} if over else {"startsAt": now.isoformat(), "endsAt": ends.isoformat()}
    body = json.dumps([{**one, **times} for one in alerts]).encode()
    request = urllib.request.Request(f"{url}/api/v2/alerts", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=10).close()


def _lines(mail: email.message.EmailMessage) -> list[str]:
    """Of a mail that is plain text and nothing else."""
    parts = [part for part in mail.walk() if not part.is_multipart()]
    assert [part.get_content_type() for part in parts] == ["text/plain"]
    text: str = parts[0].get_content()
    return text.strip().splitlines()


@contextmanager
def _api() -> Iterator[tuple[str, Sequence[tuple[str, dict[str, Any]]]]]:
    """Takes what is posted as PagerDuty and Slack do; yields its URL and the bodies so far with their paths."""
    posted: list[tuple[str, dict[str, Any]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(202 if self.path == "/pagerduty" else 200)
            self.end_headers()
            self.wfile.write(b'{"status": "success"}' if self.path == "/pagerduty" else b"ok")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with _served(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        yield f"http://{address}", posted


@contextmanager
def _mail() -> Iterator[tuple[str, Sequence[email.message.EmailMessage]]]:
    """As much of a mail server as a client without TLS needs; yields its address and the mails so far."""
    mails: list[email.message.EmailMessage] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self._say("220 here")
            for line in self.rfile:
                command = line.decode().strip().upper()
                if command == "DATA":
                    self._say("354 go on")
                    lines = list(iter(self.rfile.readline, b".\r\n"))
                    mails.append(email.message_from_bytes(b"".join(lines), policy=email.policy.default))
                self._say("221 bye" if command == "QUIT" else "250 ok")

        def _say(self, line: str) -> None:
            self.wfile.write(f"{line}\r\n".encode())

    with _served(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)) as address:
        yield address, mails


@contextmanager
def _served(server: socketserver.TCPServer) -> Iterator[str]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _becomes(true: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)
