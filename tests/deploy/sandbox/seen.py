"""What the guest's driver wrote down, for the tests that compare it."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from deploy.sandbox.modes import CHECK

_CHECKED = re.compile(r"^(\w+) +(ok|off|absent|FAILED) +(.*)$", re.MULTILINE)
Series = Mapping[frozenset[tuple[str, str]], float]


@dataclass(frozen=True)
class Process:
    """status: /proc/PID/status with command and oom_score_adj. capabilities are sets of 64 bits."""

    status: Mapping[str, str]

    @property
    def command(self) -> str:
        return self.status["command"]

    @property
    def users(self) -> set[str]:
        return set(self.status["Uid"].split())

    def capabilities(self, kind: str) -> int:
        return int(self.status[f"Cap{kind}"], 16)


class Seen:
    """Of one mode, after everything had happened."""

    def __init__(self, read: Mapping[str, Any]) -> None:
        self.show: Mapping[str, str] = read["show"]
        self.cgroup: Mapping[str, str] = {name: text.strip() for name, text in read["cgroup"].items()}
        self.processes: Sequence[Process] = [Process(one) for one in read["processes"].values()]
        self.log: str = read["log"]
        self._metrics: str = read["metrics"]

    def value(self, name: str, /, **labels: str) -> float | None:
        """Of exactly this series, None where it is absent."""
        return self.series(name).get(frozenset(labels.items()))

    def series(self, name: str) -> Series:
        return self._parsed.get(name, {})

    def total(self, name: str, /, **labels: str) -> float:
        """Of all series with these labels, and others."""
        return sum(value for own, value in self.series(name).items() if own >= set(labels.items()))

    @property
    def names(self) -> set[str]:
        return {name for name in self._parsed if not name.endswith("_created")}

    @property
    def collectors(self) -> Mapping[str, str]:
        """up, down or absent."""
        ups = {dict(labels)["collector"]: value for labels, value in self.series("oomcast_collector_up").items()}
        ran = {dict(labels)["collector"] for labels in self.series("oomcast_collector_runs_total")}
        return {name: {1.0: "up", 0.0: "down", None: "absent"}[ups.get(name)] for name in sorted(ran)}

    @cached_property
    def _parsed(self) -> Mapping[str, Series]:
        found: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
        for family in text_string_to_metric_families(self._metrics):
            for sample in family.samples:
                found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
        return found


class Results:
    """modes: by name. tried: what `tries` could do. reload, stopped, reclaimed: see the driver."""

    def __init__(self, file: Path) -> None:
        self._read: Any = json.loads(file.read_text())
        self.reload: Mapping[str, str] = self._read["reload"]
        self.stopped: Mapping[str, Mapping[str, str]] = self._read["stopped"]
        self.reclaimed: Mapping[str, Mapping[str, int]] = self._read["reclaim"]

    def mode(self, name: str) -> Seen:
        return self._modes[name]

    def tried(self, name: str) -> Mapping[str, str]:
        found: Mapping[str, str] = json.loads(self._read["once"][name])
        return found

    @cached_property
    def checked(self) -> Mapping[str, tuple[str, str]]:
        """Verdict and the rest of the line, by collector."""
        return {found[1]: (found[2], found[3]) for found in _CHECKED.finditer(self._read["once"][CHECK])}

    @cached_property
    def _modes(self) -> Mapping[str, Seen]:
        return {name: Seen(read) for name, read in self._read.items() if isinstance(read, dict) and "metrics" in read}
