"""What `oomcast check` and `oomcast snapshot` say, for people and for programs."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from oomcast.contract import CollectorSpec
from oomcast.daemon import Core
from oomcast.runner import Runner
from oomcast.settings import Settings


def failed(runners: Iterable[Runner]) -> bool:
    return any(runner.state in ("failure", "timeout", None) for runner in runners)


def check(core: Core, settings: Settings, specs: Sequence[CollectorSpec]) -> list[str]:
    """A line per collector: what it does on this machine, or why it does nothing."""
    runners = {runner.name: runner for runner in core.station.runners}
    width = max(len(spec.name) for spec in specs)
    lines = ["settings: ok", f"listen: {settings.http.listen}"]
    for spec in specs:
        runner = runners.get(spec.name)
        if runner is None:
            lines.append(f"{spec.name:{width}}  off      switched off in the settings")
        elif runner.state == "success":
            count = core.store.count(spec.name)
            every = settings.collectors[spec.name].interval
            took = f"{1000 * (runner.duration or 0):.1f} ms"
            lines.append(f"{spec.name:{width}}  ok       {count} series every {every:g} s, {took}")
        elif runner.state == "absent":
            lines.append(f"{spec.name:{width}}  absent   {runner.reason}")
        else:
            lines.append(f"{spec.name:{width}}  FAILED   {runner.reason or 'no result yet'}")
    return lines


class Counters(NamedTuple):
    """at: UTC seconds. values: by the text of the series."""

    at: float
    values: Mapping[str, float]


def counters(core: Core) -> Counters:
    """Every counter of the collectors as it stands."""
    values = {
        sample.series.head.strip(): sample.value
        for metric, groups in core.store.families()
        for group in groups
        for sample in group
        if metric.kind == "counter" and isinstance(sample.value, int | float)
    }
    return Counters(core.clock.time(), values)


def with_all_counters(settings: Settings) -> Settings:
    """The settings with the full set of series for every cgroup, so that none of its counters is missing."""
    cgroup = settings.collectors.get("cgroup")
    if cgroup is None:
        return settings
    collectors = {**settings.collectors, "cgroup": cgroup.model_copy(update={"full": ("*",)})}
    return settings.model_copy(update={"collectors": collectors})


def difference(before: Counters, after: Counters, match: str, *, everything: bool, as_json: bool) -> str:
    """What rose between two readings, most first. A series that only one of them has is left out."""
    seconds = after.at - before.at
    rows = [
        (name, after.values[name] - before.values[name])
        for name in before.values.keys() & after.values.keys()
        if match in name
    ]
    rows = sorted((row for row in rows if row[1] or everything), key=lambda row: (-row[1], row[0]))
    if as_json:
        return json.dumps(
            {
                "from": _utc(before.at),
                "to": _utc(after.at),
                "seconds": round(seconds, 6),
                "counters": [
                    {"series": name, "from": before.values[name], "to": after.values[name], "rise": rise}
                    for name, rise in rows
                ],
            },
            indent=2,
        )
    lines = [f"{_utc(before.at)} to {_utc(after.at)}, {seconds:.1f} s", f"{'RISE':>14} {'PER SECOND':>12}  COUNTER"]
    lines += [f"{rise:>14g} {rise / seconds if seconds > 0 else 0:>12.4g}  {name}" for name, rise in rows]
    return "\n".join(lines if rows else [lines[0], "no counter rose"])


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
