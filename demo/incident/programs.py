"""The programs that the demo runs: the daemon, and Prometheus where it is installed."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_START_SECONDS = 30.0
_END_SECONDS = 10.0

_PROMETHEUS = """\
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: oomcast
    static_configs: [{{targets: ["{target}"], labels: {{cluster: demo, node: demo}}}}]
"""


class Failed(Exception):
    """A program did not start, or ended too early."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def get(url: str) -> str:
    """Raises OSError."""
    with urllib.request.urlopen(url, timeout=5) as answer:
        body: bytes = answer.read()
        return body.decode()


@contextmanager
def daemon(directory: Path, settings: Mapping[str, object], environment: Mapping[str, str]) -> Iterator[str]:
    """Yields its URL once it is ready. Raises Failed."""
    config = directory / "oomcast.yaml"
    address = f"127.0.0.1:{free_port()}"
    config.write_text(json.dumps({**settings, "http": {"listen": address}}))
    command = [sys.executable, "-m", "oomcast", "run", "--config", str(config)]
    with _running(command, directory / "oomcast.log", f"http://{address}/-/ready", environment):
        yield f"http://{address}"


@contextmanager
def prometheus(directory: Path, target: str, speed: float) -> Iterator[str]:
    """The same of Prometheus, with the rules that are shipped, in the time of the play; it scrapes each second."""
    rules = directory / "oomcast.rules.yml"
    printed = [sys.executable, "-m", "oomcast", "rules", "--scale", str(speed)]
    rules.write_bytes(subprocess.run(printed, check=True, capture_output=True, timeout=_START_SECONDS).stdout)
    address = f"127.0.0.1:{free_port()}"
    config = directory / "prometheus.yml"
    config.write_text(_PROMETHEUS.format(rules=rules, target=target.removeprefix("http://")))
    storage = f"--storage.tsdb.path={directory / 'prometheus'}"
    command = ["prometheus", f"--config.file={config}", storage, f"--web.listen-address={address}"]
    with _running(command, directory / "prometheus.log", f"http://{address}/-/ready", {}):
        yield f"http://{address}"


def firing(url: str) -> list[str]:
    """What the alerts say that Prometheus has firing, but for the one that always is. Raises OSError."""
    alerts = json.loads(get(f"{url}/api/v1/alerts"))["data"]["alerts"]
    return sorted(
        f"{one['labels']['alertname']} ({one['labels']['severity']}): {one['annotations']['summary']}"
        for one in alerts
        if one["state"] == "firing" and one["labels"]["severity"] != "none"
    )


@contextmanager
def _running(command: Sequence[str], log: Path, ready: str, environment: Mapping[str, str]) -> Iterator[None]:
    # It ends with this process, however that ends.
    if shutil.which("setpriv"):
        command = ["setpriv", "--pdeathsig", "TERM", *command]
    with log.open("wb") as out:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env={**os.environ, **environment},
            # Ctrl-C is for the demo, which ends its programs in order.
            start_new_session=True,
        )  # fmt: skip
    try:
        _wait(child, ready, log)
        yield
    finally:
        child.terminate()
        try:
            child.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _wait(child: "subprocess.Popen[bytes]", ready: str, log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while True:
        try:
            get(ready)
        except OSError as error:
            if child.poll() is None and time.monotonic() < end:
                time.sleep(0.1)
                continue
            raise Failed(f"{Path(log).stem} did not start:\n{log.read_text(errors='replace')[-2000:]}") from error
        return
