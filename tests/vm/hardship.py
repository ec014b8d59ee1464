"""What was seen of the daemon while the guest thrashed and ran out of memory, as vm.guest.hardship wrote it down."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from vm.results import Family, parse

_GLOBAL_KILL = re.compile(r"oom-kill:constraint=CONSTRAINT_NONE,.*,global_oom,task_memcg=(.*?),task=(.*?),pid=")


class Answer(NamedTuple):
    """A scrape: monotonic seconds, what failed or "", and the lines of the page that were kept."""

    began: float
    ended: float
    failed: str
    text: str

    def value(self, name: str, labels: str) -> float | None:
        """Of the series with exactly these labels, as they are written."""
        found = re.search(rf"^{name}{{{re.escape(labels)}}} (\S+)$", self.text, re.MULTILINE)
        return float(found[1]) if found else None


class Look(NamedTuple):
    """The daemon as the kernel has it. Bytes, and seconds that it waited so far: for memory, for a processor."""

    at: float
    resident: int
    swapped: int
    charged: int
    minimum: int
    adjust: int
    major_faults: int
    memory_wait: float
    cpu_wait: float


class Hardship:
    """Phases: idle, thrash, oom; and exposed, the thrash without the protection of the unit."""

    def __init__(self, file: Path) -> None:
        read: Any = json.loads(file.read_text())
        self.phases: Mapping[str, tuple[float, float]] = read["phases"]
        self.kernel: Mapping[str, Mapping[str, Mapping[str, str]]] = read["kernel"]
        self.killed: Sequence[tuple[float, str, str]] = [
            (at, found[1], found[2]) for at, text in read["kmsg"] if (found := _GLOBAL_KILL.match(text)) is not None
        ]
        """When the kernel killed somebody since the machine was out of memory, cgroup and name."""
        self._pages: Mapping[str, str] = read["pages"]
        self._answers = [Answer(*answer) for answer in read["answers"]]
        self._looks = [_look(at, files) for at, files in read["looks"]]

    def answers(self, *phases: str) -> list[Answer]:
        """Those that ended within the phases, all without one: what lies between two phases is in none."""
        return [answer for answer in self._answers if not phases or self._within(answer.ended, phases)]

    def looks(self, *phases: str) -> list[Look]:
        return [look for look in self._looks if self._within(look.at, phases)]

    def longest_gap(self, *phases: str) -> float:
        """Seconds between two answers, where any of that time was in the phases: a silence may outlast its phase."""
        answered = [answer.ended for answer in self._answers if not answer.failed]
        spans = [self.phases[phase] for phase in phases]
        return max(
            after - before
            for before, after in pairwise(answered)
            if any(before < ended and after > began for began, ended in spans)
        )

    def series(self, page: str, name: str) -> Family:
        """All series of a metric in the page after a phase."""
        return self._parsed[page].get(name, {})

    def kernel_says(self, page: str, file: str, key: str) -> tuple[float, float]:
        """A number of a file of the kernel's, before and after the page after a phase was made."""
        found = [re.search(rf"^{key}[ =](?:.*total=)?(\d+)$", self.kernel[page][when][file], re.M) for when in _WHEN]
        before, after = (int(match[1]) if match else math.nan for match in found)
        return before, after

    @property
    def kill(self) -> float:
        """When the first was killed."""
        at, _, _ = self.killed[0]
        return at

    @property
    def lead(self) -> float:
        """Seconds to the first kill from when on the page always said that the machine's memory would run out."""
        lead = 0.0
        for answer in reversed(self.answers("oom")):
            left = answer.value("oomcast_time_to_exhaustion_seconds", 'resource="host_memory"')
            if answer.ended < self.kill:
                if left is None or not math.isfinite(left):
                    break
                lead = self.kill - answer.ended
        return lead

    def said(self) -> Iterator[str]:
        """The figures, a line each."""
        for phase, (began, ended) in self.phases.items():
            took = [answer.ended - answer.began for answer in self.answers(phase)]
            first, *_, last = self.looks(phase)
            memory, cpu = last.memory_wait - first.memory_wait, last.cpu_wait - first.cpu_wait
            faults = last.major_faults - first.major_faults
            yield (
                f"{phase}: {ended - began:.0f} s, {len(took)} answers, half of them within {median(took):.2f} s,"
                f" longest gap {self.longest_gap(phase):.2f} s; the daemon waited {memory:.2f} s for memory and"
                f" {cpu:.2f} s for a processor, had {faults} major faults, and of {first.resident >> 20} MiB"
                f" {last.resident >> 20} stayed ({last.charged >> 20} charged, {last.swapped >> 20} in swap)"
            )
        rise = self.kill - self.phases["oom"][0]
        yield f"the first kill came {rise:.1f} s after the rise began, and was foreseen {self.lead:.1f} s ahead"

    def _within(self, at: float, phases: Sequence[str]) -> bool:
        return any(self.phases[phase][0] <= at <= self.phases[phase][1] for phase in phases)

    @cached_property
    def _parsed(self) -> Mapping[str, Mapping[str, Family]]:
        return {page: parse(text) for page, text in self._pages.items()}


_WHEN = ("before", "after")


def _look(at: float, files: Mapping[str, str]) -> Look:
    fields = files["stat"].rpartition(")")[2].split()
    return Look(
        at=at,
        resident=_kibibytes(files["status"], "VmRSS"),
        swapped=_kibibytes(files["status"], "VmSwap"),
        charged=int(files["memory.current"]),
        minimum=int(files["memory.min"]),
        adjust=int(files["oom_score_adj"]),
        major_faults=int(fields[9]),
        memory_wait=_some(files["memory.pressure"]),
        cpu_wait=_some(files["cpu.pressure"]),
    )


def _kibibytes(status: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    assert found
    return int(found[1]) << 10


def _some(pressure: str) -> float:
    found = re.search(r"^some .* total=(\d+)$", pressure, re.MULTILINE)
    assert found
    return int(found[1]) / 1e6
