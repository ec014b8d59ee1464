"""The real daemon, Prometheus and Alertmanager on loopback, with a webhook that collects what is paged."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from e2e.prometheuses import Prometheus

ROOT = Path(__file__).parents[2]
RULES = ROOT / "alerts" / "oomcast.rules.yml"


class Page(NamedTuple):
    """One alert as the webhook got it. at: monotonic seconds of its arrival."""

    at: float
    status: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


class Message(NamedTuple):
    """One message of an Alertmanager as the webhook got it, with the alerts of a group as they were sent.

    at: monotonic seconds of its arrival. path: that of the URL it came to, "/" of the webhook's own URL.
    """

    at: float
    path: str
    receiver: str
    status: str
    group_key: str
    group_labels: Mapping[str, str]
    alerts: Sequence[Mapping[str, Any]]

    @property
    def pages(self) -> list[Page]:
        return [Page(self.at, alert["status"], alert["labels"], alert["annotations"]) for alert in self.alerts]


class Stack(NamedTuple):
    """The addresses of the daemon and its Prometheus, what Alertmanager has sent so far, and the daemon's log."""

    daemon: str
    prometheus: str
    messages: Sequence[Message]
    log: Path

    @property
    def pages(self) -> list[Page]:
        """All alerts of all messages so far."""
        return [page for message in tuple(self.messages) for page in message.pages]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def process(
    argv: list[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended by SIGTERM afterwards, or by SIGKILL when it does not take that."""
    with log.open("ab") as out:
        child = subprocess.Popen(argv, stdout=out, stderr=out, env={**os.environ, **(environment or {})})
    try:
        yield child
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


@contextmanager
def daemon(
    directory: Path, settings: str = "", environment: Mapping[str, str] | None = None
) -> Iterator[tuple[str, Path]]:
    """The daemon as a user runs it; yields its address and its log."""
    config = directory / "oomcast.yaml"
    config.write_text(settings or "{}")
    log = directory / "oomcast.log"
    listen = {"OOMCAST_HTTP__LISTEN": f"127.0.0.1:{free_port()}", **(environment or {})}
    argv = [sys.executable, "-m", "oomcast", "run", "--config", str(config)]
    with process(argv, log, listen):
        url = f"http://{listen['OOMCAST_HTTP__LISTEN']}"
        wait_for(f"{url}/-/ready", log)
        yield url, log


@contextmanager
def stack(directory: Path, settings: str = "", which: Prometheus | None = None, rules: Path = RULES) -> Iterator[Stack]:
    """All of it: 1 s scrapes and evaluations, pages go out after 0 s of grouping."""
    with ExitStack() as running:
        url, log = running.enter_context(daemon(directory, settings))
        hook, messages = running.enter_context(webhook())
        pager = running.enter_context(alertmanager(directory, _ALERTMANAGER.format(hook=hook), which))
        config = _PROMETHEUS.format(rules=rules, alertmanager=host(pager), target=host(url))
        yield Stack(url, running.enter_context(prometheus(directory, config, which)), messages, log)


def rules(directory: Path, *options: str) -> Path:
    """A rule file as `oomcast rules` prints it with these options."""
    file = directory / "oomcast.rules.yml"
    argv = [sys.executable, "-m", "oomcast", "rules", *options]
    file.write_bytes(subprocess.run(argv, check=True, capture_output=True, timeout=60).stdout)
    return file


@contextmanager
def prometheus(
    directory: Path, config: str, which: Prometheus | None = None, *, port: int = 0, flags: Sequence[str] = ()
) -> Iterator[str]:
    """A Prometheus that is ready, the one on the PATH or `which`; yields its address, without a slash at the end.

    config: the text of its configuration. Its log and data stay in `directory`: started there once more, it goes on
    with them, and on the same `port` if that is given. Two at a time need a directory each.
    """
    program = which.prometheus if which else "prometheus"
    with _server(directory, "prometheus", config, [str(program), *flags], "--storage.tsdb.path", port) as url:
        yield url


@contextmanager
def alertmanager(
    directory: Path, config: str, which: Prometheus | None = None, *, port: int = 0, flags: Sequence[str] = ()
) -> Iterator[str]:
    """An Alertmanager that is ready, the one on the PATH or that of `which`; all else is as in prometheus()."""
    program = which.alertmanager if which else "prometheus-alertmanager"
    # It would else listen for peers, on a port that every other one wants too.
    argv = [str(program), "--cluster.listen-address=", *flags]
    with _server(directory, "alertmanager", config, argv, "--storage.path", port) as url:
        yield url


@contextmanager
def _server(directory: Path, name: str, config: str, argv: list[str], storage: str, port: int) -> Iterator[str]:
    directory.mkdir(exist_ok=True)
    path, log = directory / f"{name}.yml", directory / f"{name}.log"
    path.write_text(config)
    address = f"127.0.0.1:{port or free_port()}"
    where = [f"--config.file={path}", f"{storage}={directory / name}", f"--web.listen-address={address}"]
    with process([*argv, *where], log):
        wait_for(f"http://{address}/-/ready", log)
        yield f"http://{address}"


@contextmanager
def webhook() -> Iterator[tuple[str, Sequence[Message]]]:
    """What Alertmanagers send to; yields its URL, with a slash at the end, and the messages so far, a list that grows.

    A receiver may add a path to the URL: its messages are told by it.
    """
    messages: list[Message] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            at = time.monotonic()
            said: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            group = said["groupKey"], said["groupLabels"]
            messages.append(Message(at, self.path, said["receiver"], said["status"], *group, said["alerts"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with serving(Handler) as url:
        yield url, messages


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server in threads of this process; yields its URL, with a slash at the end."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def host(url: str) -> str:
    """The host and port of a URL without a path, as the targets of a Prometheus configuration are written."""
    return url.removeprefix("http://").rstrip("/")


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        body: bytes = answer.read()
        return body.decode()


def wait_for(url: str, log: Path, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            fetch(url)
        except OSError as error:
            if time.monotonic() > end:
                raise AssertionError(f"{url}: {error}\n{log.read_text()[-4000:]}") from error
            time.sleep(0.05)
        else:
            return


def series(url: str, name: str) -> dict[str, float]:
    """The values of a metric on /metrics by the text of its labels."""
    found = re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", fetch(f"{url}/metrics"), re.MULTILINE)
    return {labels: float(value) for labels, value in found}


_PROMETHEUS = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
alerting: {{alertmanagers: [{{static_configs: [{{targets: ["{alertmanager}"]}}]}}]}}
scrape_configs:
  - job_name: oomcast
    static_configs: [{{targets: ["{target}"], labels: {{cluster: e2e, node: n1}}}}]
"""
_ALERTMANAGER = """
route: {{receiver: hook, group_by: ["..."], group_wait: 0s, group_interval: 1s, repeat_interval: 1h}}
receivers: [{{name: hook, webhook_configs: [{{url: "{hook}", send_resolved: true}}]}}]
"""
