"""Many nodes, each generation's Prometheus and Alertmanager with what is shipped, all durations divided by a factor."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import yaml

from e2e.prometheuses import Prometheus, newest, oldest
from e2e.stack import ROOT, Message, alertmanager, host, prometheus, rules, webhook

ALERTS = ROOT / "alerts"
CLUSTER = "e2e"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATIONS = ("group_wait", "group_interval", "repeat_interval")


class Watch(NamedTuple):
    """What one generation watches with. prometheus: its address. messages: that its Alertmanager has sent so far."""

    prometheus: str
    messages: Sequence[Message]


def generations() -> Sequence[Prometheus]:
    """The oldest and the newest; one where the machine has but one."""
    return tuple({one.version: one for one in (oldest(), newest())}.values())


@contextmanager
def watching(directory: Path, nodes: Mapping[str, str], factor: float) -> Iterator[Mapping[str, Watch]]:
    """Yields what watches, by the version of Prometheus. nodes: addresses of daemons by name."""
    file = rules(directory, "--scale", f"{factor:g}")
    with ExitStack() as running:
        watches = {}
        for which in generations():
            own = directory / which.version
            own.mkdir()
            hook, messages = running.enter_context(webhook())
            pager = running.enter_context(alertmanager(own, routes(hook, factor), which))
            config = _scrapes(file, host(pager), nodes)
            watches[which.version] = Watch(running.enter_context(prometheus(own, config, which)), messages)
        yield watches


def routes(hook: str, factor: float) -> str:
    """The Alertmanager's configuration as it is shipped, but for its durations and the address of its receivers."""
    config = yaml.safe_load((ALERTS / "alertmanager.yml").read_text())
    config["templates"] = [str(ALERTS / one) for one in config["templates"]]
    _scale(config["route"], factor)
    for receiver in config["receivers"]:
        for one in receiver.get("webhook_configs", ()):
            one["url"] = re.sub(r"^http://127\.0\.0\.1:9095/", hook, one["url"])
            assert one["url"].startswith(hook), one
    return yaml.safe_dump(config)


def _scale(route: dict[str, object], factor: float) -> None:
    for key in _DURATIONS:
        if key in route:
            route[key] = f"{round(1000 * seconds(str(route[key])) / factor)}ms"
    below = route.get("routes", [])
    assert isinstance(below, list)
    for one in below:
        _scale(one, factor)


def seconds(duration: str) -> float:
    """Of a duration with one unit, as the file has them."""
    number, unit = re.fullmatch(r"(\d+)([smhd])", duration).groups()  # type: ignore[union-attr]  # the durations are ours
    return float(number) * _SECONDS[unit]


def _scrapes(file: Path, pager: str, nodes: Mapping[str, str]) -> str:
    targets = [{"targets": [host(url)], "labels": {"cluster": CLUSTER, "node": name}} for name, url in nodes.items()]
    return yaml.safe_dump(
        {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(file)],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [pager]}]}]},
            "scrape_configs": [{"job_name": "oomcast", "static_configs": targets}],
        }
    )
