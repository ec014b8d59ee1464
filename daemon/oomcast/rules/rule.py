"""What a rule is."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["critical", "warning", "info", "none"]
Component = Literal["memory", "gpu", "engine", "requests", "oomcast"]
Phase = Literal["forecast", "symptom", "fact", "itself"]

SCRAPE, EVALUATION, GROUP_WAIT = 15.0, 15.0, 10.0
"""Seconds, of the configurations that are shipped."""


@dataclass(frozen=True, slots=True)
class Alert:
    """phase: what kind of finding it is; forecasts silence symptoms of the same node. audience: automation where no
    person could act in time. hold, keep: seconds, `for` and `keep_firing_for`. sample: seconds at most between the
    cause and its being on /metrics. board: the uid of the dashboard to look at, and what to fill in there.
    summary, description: templates of Prometheus, where <node> stands for the node and <label> for the label that names
    it. why: why it is so, with its `for` and `keep_firing_for`; becomes a comment.
    """

    name: str
    severity: Severity
    component: Component
    phase: Phase
    expr: str
    summary: str
    description: str
    why: str
    hold: float = 0.0
    keep: float = 0.0
    sample: float = 1.0
    board: str = "node"
    audience: str = ""

    @property
    def latency(self) -> float:
        """Seconds from the cause to the page, at most, with what is shipped."""
        return self.sample + SCRAPE + EVALUATION + self.hold + GROUP_WAIT


@dataclass(frozen=True, slots=True)
class Recording:
    """record: level:metric:operation. why: what it is for; becomes a comment."""

    record: str
    expr: str
    why: str
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Recordings first: what is recorded is seen by the alerts behind it in the same evaluation.

    interval: seconds between two evaluations, 0 for those of the server.
    """

    name: str
    rules: tuple[Recording | Alert, ...]
    interval: float = 0.0
