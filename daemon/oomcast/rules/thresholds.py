"""The table of thresholds. Rules, lines on dashboards and docs/alerts.md are made from it, and from nothing else."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

Unit = Literal["seconds", "ratio", "tokens", "bytes", "bytes/s", "1/s", "count"]


@dataclass(frozen=True, slots=True)
class Threshold:
    """value: in `unit`. why: the reason for this value and no other. source: where it comes from."""

    name: str
    value: float
    unit: Unit
    why: str
    source: str


_INCIDENT = (
    "the incident of long contexts: 18.2 of 80 GB and 92.4 % hits when all is well, 79.6 GB and 3.1 % at the end"
)
_OWN = "chosen"
_BURN = "Google, The Site Reliability Workbook, chapter 5, for an error budget of 30 days"

THRESHOLDS = (
    # The incident
    Threshold("healthy_memory", 0.2275, "ratio", "18.2 of 80 GB: a line on boards, no alert", _INCIDENT),
    Threshold("healthy_hit_rate", 0.924, "ratio", "a line on boards, no alert", _INCIDENT),
    Threshold("crash_memory", 0.995, "ratio", "79.6 of 80 GB: nothing is left to allocate", _INCIDENT),
    Threshold("crash_hit_rate", 0.031, "ratio", "the cache finds nothing any more", _INCIDENT),
    Threshold("long_prompt", 65_536, "tokens", "the longest prompts that were served without trouble", _INCIDENT),
    Threshold("crash_prompt", 131_072, "tokens", "the shortest prompts that ended engines", _INCIDENT),
    # Exhaustion
    Threshold("exhaustion_critical", 600, "seconds", "the least in which a person who is paged can act", _OWN),
    Threshold("exhaustion_warning", 3600, "seconds", "time to plan: to move load, to raise a limit", _OWN),
    Threshold("exhaustion_sudden", 120, "seconds", "nobody acts within two minutes: a machine has to", _OWN),
    Threshold("exhaustion_hold", 300, "seconds", "an hour's warning can wait for the trend to last", _OWN),
    Threshold("load_grace", 900, "seconds", "an engine that loads its model rises, and may load so long", _OWN),
    Threshold("plenty", 0.3, "ratio", "is left: a rise that has just begun is no trend while so much is", _OWN),
    Threshold("plenty_hold", 120, "seconds", "for which it has to last there; what starts has started by then", _OWN),
    Threshold(
        "burst",
        0.05,
        "ratio",
        "of a GPU's usable memory above the plateau: more than activations of short prompts",
        _OWN,
    ),
    Threshold("kv_usage_warning", 0.5, "ratio", "below that a rise is the beginning of a load", _OWN),
    Threshold("kv_usage_critical", 0.9, "ratio", "where engines begin to preempt; the daemon calls it saturated", _OWN),
    Threshold("kv_full", 0.98, "ratio", "nearer than the forecast's noise: nothing rises there any more", _OWN),
    Threshold("kv_hold", 120, "seconds", "a pool fills in seconds when load comes, and empties again", _OWN),
    # Symptoms
    Threshold("hit_rate_own", 0.5, "ratio", "an engine whose usual rate is lower has no reuse to lose", _INCIDENT),
    Threshold("hit_rate_fall", 1 / 3, "ratio", "of its own usual rate: more than a change of the mix", _INCIDENT),
    Threshold("hit_rate_window", 21_600, "seconds", "what is usual: the median of six hours", _INCIDENT),
    Threshold("hit_rate_hold", 360, "seconds", "one long new prompt rules the ratio for its five minutes", _OWN),
    Threshold("restart_grace", 900, "seconds", "a cache is cold after a restart", _INCIDENT),
    Threshold("state_hold", 60, "seconds", "the daemon has seen the evidence for half a minute already", _OWN),
    Threshold("demand_window", 600, "seconds", "room that comes and goes with each request is room", _OWN),
    Threshold("long_failures_warning", 0.05, "ratio", "of the long requests: more than bad luck", _OWN),
    Threshold("long_failures_critical", 0.5, "ratio", "of the long requests: long contexts are down", _OWN),
    Threshold("least_requests", 5, "count", "of fewer requests no share can be told", _OWN),
    Threshold("pressure", 0.1, "ratio", "of the time nobody in the cgroup could go on for want of memory", _OWN),
    Threshold("refaults", 100, "1/s", "pages read back: pressure by reclaim, not by one slow disk", _OWN),
    Threshold("faults_factor", 10, "count", "times its own median of a day: an absolute limit is noise", _OWN),
    Threshold("faults_least", 50, "1/s", "below that no disk notices", _OWN),
    Threshold("faults_window", 86_400, "seconds", "what is usual: a day has its night and its peak", _OWN),
    Threshold("faults_pressure", 0.05, "ratio", "of the time somebody waits: faults that cost nothing are none", _OWN),
    Threshold("allocation_growth", 1 << 20, "bytes/s", "3.7 GB in an hour that nobody gives back", _OWN),
    Threshold("allocation_hold", 1800, "seconds", "a cache that warms up is done by then", _OWN),
    # Facts
    Threshold("kill_window", 300, "seconds", "how long a kill is news", _OWN),
    Threshold("kills_window", 1800, "seconds", "three kills in it are no accident", _OWN),
    Threshold("kills_repeated", 3, "count", "one that recovers is a warning, three are a loop", _OWN),
    Threshold("down_after_kill", 300, "seconds", "a supervisor has restarted it by then, or never will", _OWN),
    Threshold("serving_memory", 3600, "seconds", "who was an engine an hour ago still is one to an alert", _OWN),
    Threshold("engine_down_warning", 120, "seconds", "longer than one slow answer", _OWN),
    Threshold("engine_down_critical", 900, "seconds", "a rolling restart has loaded its model by then", _OWN),
    Threshold("restarts", 3, "count", "in half an hour: it does not come up for good", _OWN),
    Threshold("gpu_hold", 60, "seconds", "a driver that is reset is back by then", _OWN),
    Threshold("config_hold", 600, "seconds", "nothing that changes by itself", _OWN),
    # Objectives
    Threshold("slo_target", 0.99, "ratio", "of the requests of a class should meet their objective", _OWN),
    Threshold("burn_page_fast", 14.4, "count", "2 % of the budget in an hour", _BURN),
    Threshold("burn_page_slow", 6, "count", "5 % of the budget in six hours", _BURN),
    Threshold("burn_ticket_fast", 3, "count", "10 % of the budget in a day", _BURN),
    Threshold("burn_ticket_slow", 1, "count", "10 % of the budget in three days", _BURN),
    Threshold("slo_least_requests", 20, "count", "in the longer window: of fewer one miss is a burn", _OWN),
    Threshold("slo_risk", 0.1, "ratio", "of a class is expected to miss its objective", _OWN),
    Threshold("slo_measured", 1000, "count", "requests of a class before its rate is its own and no prior", _OWN),
    # oomcast itself
    Threshold("down", 60, "seconds", "four scrapes", _OWN),
    Threshold("absent", 300, "seconds", "a Prometheus that starts has scraped everything by then", _OWN),
    Threshold("stale", 60, "seconds", "since the last success of a collector, beside three of its own periods", _OWN),
    Threshold("own_memory", 96 << 20, "bytes", "half above the budget of 64 MB", _OWN),
    Threshold("own_cpu", 0.07, "ratio", "of one core: twice the budget for ten engines", _OWN),
    Threshold("own_hold", 900, "seconds", "longer than any start or reload", _OWN),
    # Everywhere
    Threshold("keep", 600, "seconds", "no critical alert resolves before the one about its dead source fires", _OWN),
    Threshold("keep_sudden", 60, "seconds", "people are told two minutes later, if nothing has helped", _OWN),
    Threshold("keep_warning", 300, "seconds", "load comes in waves, and one wave is one alert", _OWN),
    Threshold("event_window", 300, "seconds", "how long an event is news", _OWN),
)


LENGTHS = (2048, 65_536, 131_072, 200_000)
"""Tokens: oomcast_prompt_tokens_share_ratio tells the share of prompts above these."""

_ORDER = (
    ("exhaustion_sudden", "exhaustion_critical", "exhaustion_warning"),
    ("kv_usage_warning", "kv_usage_critical"),
    ("crash_hit_rate", "hit_rate_own"),
    ("long_prompt", "crash_prompt"),
    ("long_failures_warning", "long_failures_critical"),
    ("engine_down_warning", "engine_down_critical"),
    ("burn_page_slow", "burn_page_fast"),
    ("burn_ticket_slow", "burn_ticket_fast"),
    ("down", "keep"),
)
"""Each at most the next: the milder alert comes first, and none ends before the one about its source."""


def _in_order(values: Mapping[str, float]) -> None:
    for names in _ORDER:
        for low, high in pairwise(names):
            if values[low] > values[high]:
                raise ValueError(f"{low} ({values[low]:g}) should not be above {high} ({values[high]:g})")


class Limits(Mapping[str, float]):
    """The values by name, with a user's own in place of the table's.

    scale: by how much every duration is divided; 1 but where an incident is played in less time than it takes.
    """

    def __init__(self, own: Mapping[str, float] | None = None, scale: float = 1.0) -> None:
        """Raises ValueError for a name that is not in the table, or a value that cannot be meant."""
        table = {one.name: one for one in THRESHOLDS}
        for name, value in (own or {}).items():
            if name not in table:
                raise ValueError(f"no threshold is called {name!r}; known are: {', '.join(table)}")
            if not 0 < value < 1e15:
                raise ValueError(f"{name} should be above 0, not {value:g}")
            if table[name].unit == "ratio" and value > 1:
                raise ValueError(f"{name} is a ratio and should be at most 1, not {value:g}")
            if table[name].unit == "tokens" and value not in LENGTHS:
                ends = ", ".join(f"{length:d}" for length in LENGTHS)
                raise ValueError(f"{name} should be a length that series tell of ({ends}), not {value:g}")
        if not 0 < scale < 1e6:
            raise ValueError(f"the scale should be above 0, not {scale:g}")
        merged = {name: (own or {}).get(name, one.value) for name, one in table.items()}
        _in_order(merged)
        shortest = min(merged[n] for n in merged if table[n].unit == "seconds") / scale
        if shortest < 0.001:
            raise ValueError(f"a duration would be {shortest:g} s: Prometheus has none below a millisecond")
        self._values = {n: v / scale if table[n].unit == "seconds" else v for n, v in merged.items()}
        self.scale = scale

    def __getitem__(self, name: str) -> float:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
