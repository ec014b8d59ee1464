"""What was seen in the guest, as its driver wrote it down."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

Family = Mapping[frozenset[tuple[str, str]], float]
"""The series of a metric: labels, and the value."""


class End(NamedTuple):
    """Of a program that was started. status: as of subprocess, -9 after SIGKILL, None if it was still there."""

    program: str
    pid: int
    status: int | None


class Results:
    """scrapes: texts of /metrics, "before" anything happened, "after" all but the host's memory ran out, at the "end".

    kmsg: what the kernel logged, (seconds of its clock, text). forecasts: time to exhaustion by cgroup, (monotonic
    seconds, seconds left).
    """

    def __init__(self, file: Path) -> None:
        read: Any = json.loads(file.read_text())
        self.scrapes: Mapping[str, str] = read["scrapes"]
        self.kmsg: Sequence[tuple[float, str]] = [(time, text) for time, text in read["kmsg"]]
        self.forecasts: Mapping[str, Sequence[tuple[float, float]]] = read["forecasts"]
        self._truth: Mapping[str, Mapping[str, Mapping[str, str]]] = read["truth"]
        self._ends: Mapping[str, Sequence[Sequence[Any]]] = read["ends"]

    def value(self, name: str, when: str = "end", /, **labels: str) -> float | None:
        """Of exactly this series in a scrape, None where it is absent."""
        return self.series(name, when).get(frozenset(labels.items()))

    def series(self, name: str, when: str = "end") -> Family:
        """All series of a metric in a scrape, by their labels."""
        return self._parsed[when].get(name, {})

    def kills(self, owner: str, when: str = "end") -> Mapping[str, float]:
        """oomcast_oom_kills_total of an owner that are not 0, by whose limit it was, "" where that is not known."""
        found = {}
        for labels, value in self.series("oomcast_oom_kills_total", when).items():
            pairs = dict(labels)
            if pairs["owner"] == owner and value:
                found[pairs.get("limit_owner", "")] = value
        return found

    def file(self, cgroup: str, name: str, when: str = "after") -> str:
        """A file of a cgroup, read at the time of the scrape."""
        return self._truth[when][cgroup][name]

    def counts(self, cgroup: str, name: str, when: str = "after") -> Mapping[str, int]:
        """The numbers of a file by their keys."""
        lines = (line.split() for line in self.file(cgroup, name, when).splitlines())
        return {key: int(value) for key, value in lines}

    def ends(self, cgroup: str) -> list[End]:
        return [End(*end) for end in self._ends[cgroup]]

    def killed(self) -> list[tuple[float, int, str]]:
        """Time, pid and limit's cgroup, if it was one, of each kill that the kernel logged with its cgroup."""
        line = re.compile(r"oom-kill:constraint=.*?(?:oom_memcg=(.*?),)?task_memcg=.*,task=.*,pid=(\d+),uid=0")
        return [(time, int(found[2]), found[1] or "") for time, text in self.kmsg if (found := line.match(text))]

    @cached_property
    def _parsed(self) -> Mapping[str, Mapping[str, Family]]:
        return {when: parse(text) for when, text in self.scrapes.items()}


def parse(text: str) -> Mapping[str, Family]:
    """The series of a page, by metric."""
    found: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return found
