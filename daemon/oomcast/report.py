"""What `oomcast check` and `oomcast snapshot` say, for people and for programs."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from oomcast.contract import CollectorSpec
from oomcast.core import Core
from oomcast.runner import Runner
from oomcast.settings import Settings


def failed(runners: Iterable[Runner]) -> bool:
    """Whether one of them has failed, or has no result."""
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
    """at: UTC seconds; monotonic: the same moment. values: by the text of the series."""

    at: float
    monotonic: float
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
    return Counters(core.clock.time(), core.clock.monotonic(), values)


def with_all_counters(settings: Settings) -> Settings:
    """The settings with the full set of series for every cgroup, so that none of its counters is missing."""
    cgroup = settings.collectors.get("cgroup")
    if cgroup is None:
        return settings
    collectors = {**settings.collectors, "cgroup": cgroup.model_copy(update={"full": ("*",)})}
    return settings.model_copy(update={"collectors": collectors})


@dataclass(frozen=True, slots=True)
class Difference:
    """What happened to counters between two readings.

    rose: (series, from, to), most first. appeared: series that only the second reading has, gone: that only the first
    has, both with their value: how much of it falls between the two is not known. began_anew: (series, from, to).
    """

    before: Counters
    after: Counters
    rose: Sequence[tuple[str, float, float]]
    appeared: Sequence[tuple[str, float]]
    gone: Sequence[tuple[str, float]]
    began_anew: Sequence[tuple[str, float, float]]

    @property
    def seconds(self) -> float:
        return self.after.monotonic - self.before.monotonic


def difference(before: Counters, after: Counters, match: str, *, everything: bool) -> Difference:
    """match: text that a series has to hold. everything: those that did not rise, or came and went at 0, too."""
    old = {name: value for name, value in before.values.items() if match in name}
    new = {name: value for name, value in after.values.items() if match in name}
    both = [(name, old[name], new[name]) for name in sorted(old.keys() & new.keys())]
    rose = [row for row in both if row[2] > row[1] or (everything and row[2] == row[1])]
    return Difference(
        before,
        after,
        rose=sorted(rose, key=lambda row: row[1] - row[2]),
        appeared=[(name, new[name]) for name in sorted(new.keys() - old.keys()) if new[name] or everything],
        gone=[(name, old[name]) for name in sorted(old.keys() - new.keys()) if old[name] or everything],
        began_anew=[row for row in both if row[2] < row[1]],
    )


def as_json(found: Difference) -> str:
    """An object; times are ISO 8601 in UTC."""
    between = [{"series": name, "from": old, "to": new, "rise": new - old} for name, old, new in found.rose]
    return json.dumps(
        {
            "from": _utc(found.before.at),
            "to": _utc(found.after.at),
            "seconds": round(found.seconds, 6),
            "counters": between,
            "appeared": [{"series": name, "to": value} for name, value in found.appeared],
            "gone": [{"series": name, "from": value} for name, value in found.gone],
            "began_anew": [{"series": name, "from": old, "to": new} for name, old, new in found.began_anew],
        },
        indent=2,
    )


def as_text(found: Difference) -> str:
    """A table for people."""
    seconds = found.seconds
    lines = [f"{_utc(found.before.at)} to {_utc(found.after.at)}, {seconds:.1f} s"]
    lines += [f"{'RISE':>14} {'PER SECOND':>12}  COUNTER"] if found.rose else ["no counter rose"]
    lines += [f"{new - old:>14g} {_rate(new - old, seconds):>12}  {name}" for name, old, new in found.rose]
    lines += [f"{'appeared':>14} {value:>12g}  {name}" for name, value in found.appeared]
    lines += [f"{'gone':>14} {value:>12g}  {name}" for name, value in found.gone]
    lines += [f"{'began anew':>14} {new:>12g}  {name}" for name, _, new in found.began_anew]
    return "\n".join(lines)


def _rate(rise: float, seconds: float) -> str:
    return f"{rise / seconds:.4g}" if seconds > 0 else "-"


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
