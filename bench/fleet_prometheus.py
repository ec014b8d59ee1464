"""A real Prometheus, the newest that there is, over a fleet on loopback; and what it says of itself."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import yaml

from machine import HERE, background, free_port, memory, wait_for
from peers import Missing

ROOT = HERE.parent
RULES = ROOT / "alerts" / "oomcast.rules.yml"
SHIPPED = ROOT / "deploy" / "prometheus" / "prometheus.yml"

_LINE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_PATIENCE = 300


class Programs(NamedTuple):
    """version: as the program tells it."""

    version: str
    prometheus: Path
    promtool: Path


def newest() -> Programs:
    """Of those that scripts/setup has unpacked and the one on the PATH. Raises Missing."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oomcast" / "prometheus"
    places = [one / "usr" / "bin" for one in cache.glob("[0-9]*")]
    if (there := shutil.which("prometheus")) is not None:
        places.append(Path(there).parent)
    found = [Programs(_version(at / "prometheus"), at / "prometheus", at / "promtool") for at in places]
    if not found:
        raise Missing("there is no Prometheus: make setup-prometheus")
    return max(found, key=lambda one: [int(part) for part in one.version.split(".")])


def _version(program: Path) -> str:
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, timeout=60)
    said = re.search(r"version (\d+(?:\.\d+)+)", done.stdout + done.stderr)
    if said is None:
        raise Missing(f"{program} tells no version")
    return said[1]


def settings(targets: Sequence[str], *, rules: Sequence[Path] = (), remote: str = "") -> str:
    """The configuration that is shipped, for these targets. remote: a URL that all samples are written to as well."""
    config: dict[str, Any] = yaml.safe_load(SHIPPED.read_text())
    config["scrape_configs"][0]["static_configs"][0]["targets"] = list(targets)
    config["rule_files"] = [str(file) for file in rules]
    del config["alerting"]
    if remote:
        config["remote_write"] = [{"url": remote}]
    return yaml.safe_dump(config)


class Own(NamedTuple):
    """A page of Prometheus about itself, and what the kernel says of it. at: monotonic seconds. rss: bytes."""

    at: float
    rss: float
    values: Mapping[str, Mapping[tuple[tuple[str, str], ...], float]]

    def one(self, name: str, **labels: str) -> float:
        """The sum of the series that have these labels, 0 of none."""
        asked = set(labels.items())
        return sum(value for own, value in self.values.get(name, {}).items() if asked <= set(own))

    def by(self, name: str, label: str) -> Mapping[str, float]:
        return {dict(own)[label]: value for own, value in self.values.get(name, {}).items()}


class Prometheus:
    """pid, port: of its process. directory: of its configuration and data."""

    def __init__(self, programs: Programs, directory: Path, port: int, pid: int) -> None:
        self.programs = programs
        self.directory = directory
        self.port = port
        self.pid = pid

    def own(self) -> Own:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=_PATIENCE) as answer:
            text = answer.read().decode()
        values: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
        for name, labels, value in _LINE.findall(text):
            values.setdefault(name, {})[tuple(_LABEL.findall(labels))] = float(value)
        return Own(time.monotonic(), memory(self.pid)[0], values)

    def reload(self, config: str) -> None:
        """Raises RuntimeError if it does not take it."""
        (self.directory / "prometheus.yml").write_text(config)
        before = self.own().one("prometheus_config_last_reload_success_timestamp_seconds")
        os.kill(self.pid, signal.SIGHUP)
        until = time.monotonic() + _PATIENCE
        while (own := self.own()).one("prometheus_config_last_reload_success_timestamp_seconds") <= before:
            if time.monotonic() > until or not own.one("prometheus_config_last_reload_successful"):
                raise RuntimeError("Prometheus does not take its new configuration")
            time.sleep(0.2)

    def query(self, expr: str, **more: str) -> Any:
        """`data` of the answer. Raises ValueError with what Prometheus says against it."""
        asked = f"http://127.0.0.1:{self.port}/api/v1/query?{urlencode({'query': expr, **more})}"
        try:
            with urllib.request.urlopen(asked, timeout=_PATIENCE) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(json.load(error)["error"]) from error

    def slowest(self) -> list[tuple[float, str, str]]:
        """Seconds of its last evaluation, group and name of each rule, the slowest first."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/rules", timeout=_PATIENCE) as answer:
            groups = json.load(answer)["data"]["groups"]
        every = [(rule["evaluationTime"], group["name"], rule["name"]) for group in groups for rule in group["rules"]]
        return sorted(every, reverse=True)

    def number(self, expr: str) -> float:
        """Of the only series, 0 of none."""
        found = self.query(expr)["result"]
        return float(found[0]["value"][1]) if found else 0.0

    def numbers(self, expr: str, label: str) -> Mapping[str, float]:
        return {one["metric"].get(label, ""): float(one["value"][1]) for one in self.query(expr)["result"]}


@contextmanager
def prometheus(programs: Programs, directory: Path, config: str) -> Iterator[Prometheus]:
    """One with that configuration, ready."""
    file, port = directory / "prometheus.yml", free_port()
    file.write_text(config)
    options = {
        "config.file": file, "storage.tsdb.path": directory / "data", "web.listen-address": f"127.0.0.1:{port}",
        "storage.tsdb.retention.time": "10y",
    }  # fmt: skip
    argv: list[str | Path] = [programs.prometheus, *(f"--{name}={value}" for name, value in options.items())]
    with background(argv) as pid:
        wait_for(port, "/-/ready")
        yield Prometheus(programs, directory, port, pid)
