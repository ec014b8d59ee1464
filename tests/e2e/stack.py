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
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
RULES = ROOT / "alerts" / "oomcast.rules.yml"


class Page(NamedTuple):
    """One alert as the webhook got it. at: monotonic seconds of its arrival."""

    at: float
    status: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


class Stack(NamedTuple):
    daemon: str
    prometheus: str
    pages: list[Page]
    log: Path


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
def stack(directory: Path, settings: str = "") -> Iterator[Stack]:
    """All of it: 1 s scrapes and evaluations, pages go out after 0 s of grouping."""
    with ExitStack() as running:
        url, log = running.enter_context(daemon(directory, settings))
        pages: list[Page] = []
        hook = running.enter_context(_webhook(pages))
        alertmanager, prometheus = free_port(), free_port()
        config = directory / "alertmanager.yml"
        config.write_text(_ALERTMANAGER.format(hook=hook))
        running.enter_context(
            process(
                [
                    "prometheus-alertmanager",
                    f"--config.file={config}",
                    f"--storage.path={directory / 'alertmanager'}",
                    f"--web.listen-address=127.0.0.1:{alertmanager}",
                    "--cluster.listen-address=",
                ],
                directory / "alertmanager.log",
            )
        )
        config = directory / "prometheus.yml"
        config.write_text(
            _PROMETHEUS.format(rules=RULES, alertmanager=alertmanager, target=url.removeprefix("http://"))
        )
        running.enter_context(
            process(
                [
                    "prometheus",
                    f"--config.file={config}",
                    f"--storage.tsdb.path={directory / 'prometheus'}",
                    f"--web.listen-address=127.0.0.1:{prometheus}",
                ],
                directory / "prometheus.log",
            )
        )
        wait_for(f"http://127.0.0.1:{alertmanager}/-/ready", directory / "alertmanager.log")
        wait_for(f"http://127.0.0.1:{prometheus}/-/ready", directory / "prometheus.log")
        yield Stack(url, f"http://127.0.0.1:{prometheus}", pages, log)


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


@contextmanager
def _webhook(pages: list[Page]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            at = time.monotonic()
            message: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            pages.extend(Page(at, a["status"], a["labels"], a["annotations"]) for a in message["alerts"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


_PROMETHEUS = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
alerting: {{alertmanagers: [{{static_configs: [{{targets: ["127.0.0.1:{alertmanager}"]}}]}}]}}
scrape_configs: [{{job_name: oomcast, static_configs: [{{targets: ["{target}"]}}]}}]
"""
_ALERTMANAGER = """
route: {{receiver: hook, group_by: ["..."], group_wait: 0s, group_interval: 1s, repeat_interval: 1h}}
receivers: [{{name: hook, webhook_configs: [{{url: "{hook}", send_resolved: true}}]}}]
"""
