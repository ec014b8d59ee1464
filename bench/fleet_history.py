"""What the shipped rules read once there are days of data: a history is written into blocks, Prometheus goes on from
there over a few live nodes, and says of each rule how many samples one evaluation reads.

Only what rules look back at is written, as far back as they look and at the interval of its scrapes or recordings.
"""

import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import yaml

from fleet_pages import Player, Script
from fleet_prometheus import RULES, Programs, Prometheus

SCRAPED, COUNTED = 15, 120
"""Seconds between two samples: of what is scraped, of the counters that the group oomcast-slo-long records."""

_RANGE = re.compile(r"([a-zA-Z_:][\w:]*)\)*(?:\{[^}]*\})?\)*\[(\d+)([mhd])")
_SECONDS = {"m": 60, "h": 3600, "d": 86400}
_SHORT = 660
"""Seconds back to which everything is written."""

_COUNTERS = {f"engine:oomcast_slo_{what}:max": f"oomcast_slo_{what}_total"
             for what in ("requests", "violations", "predicted_violations")}  # fmt: skip
_FAULTS = "cgroup:oomcast_cgroup_pgmajfault:rate5m"
_SERVING = "oomcast_serving_start_timestamp_seconds"
_TIMEOUT = 1200


class Cost(NamedTuple):
    """Of one evaluation. samples: read. peak: held in memory at a time."""

    group: str
    rule: str
    interval: float
    samples: int
    peak: int


class _Past(NamedTuple):
    """A series as far as it is looked back at. rise: from one sample to the next, 0 of what does not rise."""

    series: str
    first: float
    rise: float
    seconds: int
    every: int


def write(script: Script, targets: Sequence[str], programs: Programs, home: Path) -> None:
    """Blocks into home/data, up to now."""
    text = home / "history.txt"
    now = int(time.time())  # noqa: TID251 - samples have UTC
    with text.open("w") as file:
        for number, target in enumerate(targets):
            for past in _pasts(script, number, target):
                _write(file, past, now)
        file.write("# EOF\n")
    command: list[str | Path] = [
        programs.promtool,
        "tsdb",
        "create-blocks-from",
        "--max-block-duration=4d",
        "openmetrics",
    ]
    subprocess.run([*command, text, home / "data"], check=True, capture_output=True, timeout=_TIMEOUT)
    text.unlink()


def _pasts(script: Script, number: int, target: str) -> Iterator[_Past]:
    player = Player(script, number)
    player.page(time.time())  # noqa: TID251 - what pages say is UTC
    rising = {i: rise for rises in script.rises for i, rise in rises}
    node = target.rpartition(":")[0]
    own = f'cluster="inference",node="{node}"'
    back = look_back()
    values = player.values()
    serving = {
        found for series in values if series.startswith(_SERVING) for found in re.findall('cgroup="(.*?)"', series)
    }
    for i, (series, value) in enumerate(values.items()):
        name, _, labels = series.rstrip("}").partition("{")
        first = float(value)
        rise = rising.get(i, 0.0)
        scraped = ",".join([*filter(None, [labels]), own, f'job="oomcast",instance="{target}"'])
        yield _Past(f"{name}{{{scraped}}}", first, rise, max(back.get(name, 0), _SHORT), SCRAPED)
        for recorded, counter in _COUNTERS.items():
            if name == counter:
                yield _Past(f"{recorded}{{{labels},{own}}}", first, rise, back[recorded], COUNTED)
        if name == "oomcast_cgroup_pgmajfault_total" and serving & set(re.findall('cgroup="(.*?)"', labels)):
            yield _Past(f"{_FAULTS}{{{labels},{own}}}", 0.0, 0.0, back[_FAULTS], SCRAPED)


def _write(file: IO[str], past: _Past, now: int) -> None:
    count = past.seconds // past.every
    began = now - count * past.every
    for i in range(count):
        # Counters begin anew where the live node goes on, as they do when a daemon restarts.
        file.write(f"{past.series} {past.rise * i if past.rise else past.first} {began + i * past.every}\n")


def look_back() -> Mapping[str, int]:
    """Seconds that the rules look back at most, by metric."""
    found: dict[str, int] = {}
    for name, number, unit in _RANGE.findall(RULES.read_text()):
        found[name] = max(found.get(name, 0), int(number) * _SECONDS[unit])
    return found


def costs(one: Prometheus) -> list[Cost]:
    """Of all rules that are shipped, those that read most first."""
    found = []
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        interval = _SECONDS["m"] * int(group["interval"].rstrip("m")) if "interval" in group else SCRAPED
        for rule in group["rules"]:
            read = one.query(f"count({rule['expr']})", stats="all")["stats"]["samples"]
            name = rule.get("record") or f"{rule['alert']} {rule['labels'].get('severity', '')}"
            found.append(Cost(group["name"], name, interval, read["totalQueryableSamples"], read["peakSamples"]))
    return sorted(found, key=lambda cost: -cost.samples)
