"""The configuration of Alertmanager that is shipped, and what tests change in it."""

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from e2e.prometheuses import Prometheus

ALERTS = Path(__file__).parents[2] / "alerts"
CONFIG = ALERTS / "alertmanager.yml"
TEMPLATES = ALERTS / "templates" / "*.tmpl"

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def shipped(*, examples: bool = False) -> dict[str, Any]:
    """What is shipped, with its templates found from anywhere. examples: with those that are commented out."""
    text = CONFIG.read_text()
    if examples:
        routes, receivers = text.split("\nreceivers:\n")
        text = f"{routes}\nreceivers:\n" + re.sub(r"^    # ", "    ", receivers, flags=re.MULTILINE)
    config: dict[str, Any] = yaml.safe_load(text)
    config["templates"] = [str(TEMPLATES)]
    return config


def faster(route: dict[str, Any], factor: float) -> None:
    """Divides all durations of a route and those below it."""
    for key in ("group_wait", "group_interval", "repeat_interval"):
        if key in route:
            route[key] = f"{_seconds(route[key]) / factor * 1000:.0f}ms"
    for child in route.get("routes", ()):
        faster(child, factor)


def amtool(which: Prometheus, *arguments: str) -> str:
    """What it prints. Raises AssertionError, with all of it, where it fails."""
    argv = [str(which.amtool), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _seconds(duration: str) -> float:
    return float(duration[:-1]) * _UNITS[duration[-1]]
