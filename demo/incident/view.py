"""What the daemon says, read from its /metrics."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from incident.programs import get

_LINE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class View:
    """One scrape. at: monotonic seconds."""

    at: float
    values: Mapping[tuple[str, frozenset[tuple[str, str]]], float]

    def value(self, name: str, **labels: str) -> float | None:
        """Of the only series of oomcast_<name> with these labels, None without one."""
        return next(iter(self.all(name, **labels).values()), None)

    def all(self, name: str, **labels: str) -> Mapping[frozenset[tuple[str, str]], float]:
        """The values of all of them, by their labels."""
        return {
            have: value for (one, have), value in self.values.items()
            if one == f"oomcast_{name}" and labels.items() <= set(have)
        }  # fmt: skip

    @property
    def exhausted_in(self) -> float | None:
        """Seconds until the GPU's memory is exhausted; infinite if it does not rise; None if there is no forecast."""
        return self.value("time_to_exhaustion_seconds", resource="gpu_memory")

    @property
    def used(self) -> float | None:
        """Bytes of the GPU's memory."""
        return self.value("gpu_memory_used_bytes")

    @property
    def hits(self) -> float | None:
        """The ratio of the prefix cache, 0 to 1."""
        return self.value("kv_cache_hit_ratio")

    @property
    def state(self) -> str:
        """Of the engine, "" without one."""
        states = self.all("engine_state")
        return next((dict(have)["oomcast_engine_state"] for have, value in states.items() if value), "")


def view(daemon: str) -> View:
    """What it says now. Raises OSError."""
    text = get(f"{daemon}/metrics")
    return View(
        time.monotonic(),
        {(name, frozenset(_LABEL.findall(labels))): float(value) for name, labels, value in _LINE.findall(text)},
    )
