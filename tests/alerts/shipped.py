"""What is shipped in alerts/, read as text: the tests look at the files, not at what made them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from oomcast.core import CORE_METRICS
from oomcast_collectors.all import ALL

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "alerts"
RULES_FILE = ALERTS / "oomcast.rules.yml"
TESTS = sorted((ALERTS / "tests").glob("*.test.yml"))

Rule = Mapping[str, Any]

RULES: list[Rule] = [r for group in yaml.safe_load(RULES_FILE.read_text())["groups"] for r in group["rules"]]
FIRING = [rule for rule in RULES if "alert" in rule]
RECORDED = [rule for rule in RULES if "record" in rule]
KINDS = {m.name: m.kind for m in CORE_METRICS} | {m.name: m.kind for spec in ALL for m in spec.metrics}

CASES = {"fires", "below", "shorter", "resolves", "reset", "missing", "stale", "silent"}


class Case(NamedTuple):
    """What one test of promtool says in the comment before it that it shows."""

    alert: str
    severity: str
    shows: frozenset[str]


def severity(rule: Rule) -> str:
    text: str = rule["labels"]["severity"]
    return text


def title(rule: Rule) -> str:
    """For the ids of tests."""
    return f"{rule['alert']}-{severity(rule)}" if "alert" in rule else str(rule["record"])


def cases(files: Sequence[Path] = TESTS) -> Iterator[Case]:
    """Of these test files."""
    for file in files:
        for alert, level, shows in re.findall(r"^ *# (Oomcast\w+) (\w+): ([a-z, ]+)$", file.read_text(), re.MULTILINE):
            yield Case(alert, level, frozenset(shows.split(", ")))
