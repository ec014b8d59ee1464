"""Which collectors there are: our own explicit tuple, and what installed distributions add to it.

A distribution adds a collector by an entry point in the group "oomcast.collectors", called as the collector, that
names its CollectorSpec. One that is broken is logged and left out: it costs the node its own data and nothing else.
"""

import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata

from oomcast.contract import CollectorSettings, CollectorSpec
from oomcast.metric import Metric

GROUP = "oomcast.collectors"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}\Z")

Families = dict[str, tuple[str, Metric | None]]
"""Whose a metric is, by its family, and its row, which other collectors may list as well; None for one of the core."""


class SpecError(ValueError):
    """A collector that breaks the contract or takes a name that is taken."""


@dataclass(frozen=True, slots=True)
class Found:
    """left_out: names of plug-ins that were not loaded; what the settings file says of them is no error."""

    specs: tuple[CollectorSpec, ...]
    left_out: tuple[str, ...] = ()


def load_specs(reserved: Iterable[Metric] = ()) -> tuple[CollectorSpec, ...]:
    """The specs of all collectors, ours first, plug-ins by name. Details as for `find`."""
    return find(reserved).specs


def find(reserved: Iterable[Metric] = (), log: logging.Logger | None = None) -> Found:
    """All collectors. reserved: metrics of the core, whose names no collector may use.

    Raises SpecError when one of our own breaks the contract; a plug-in that does is logged and left out.
    """
    # The core knows no collector before it is asked for them, and whoever only needs the contract imports none.
    from oomcast_collectors.all import ALL

    log = log or logging.getLogger("oomcast.plugins")
    names: set[str] = set()
    families: Families = {metric.family: ("the core", None) for metric in reserved}
    specs = []
    for spec in ALL:
        _add(spec, names, families)
        specs.append(spec)
    left_out = []
    for entry in _entry_points(log):
        try:
            spec = _load(entry)
            _add(spec, names, families)
        # A plug-in's import runs any code at all; SystemExit is what a script without a main guard ends with.
        except (Exception, SystemExit) as error:
            reason = str(error) if isinstance(error, SpecError) else f"{type(error).__name__}: {error}"
            log.error(
                "collector plug-in is left out: %s",
                reason,
                extra={"plugin": entry.name, "distribution": _distribution(entry), "object": entry.value},
                exc_info=None if isinstance(error, SpecError) else error,
            )
            left_out.append(entry.name)
        else:
            specs.append(spec)
    return Found(tuple(specs), tuple(name for name in dict.fromkeys(left_out) if name not in names))


def _entry_points(log: logging.Logger) -> list[metadata.EntryPoint]:
    """One distribution's unreadable metadata must not hide the others', as it would in `metadata.entry_points()`."""
    found: dict[tuple[str, str], metadata.EntryPoint] = {}
    for distribution in metadata.distributions():
        try:
            for entry in distribution.entry_points.select(group=GROUP):
                # A path that is listed twice, or an older copy further down the path, shows the same one again.
                found.setdefault((distribution.name, entry.name), entry)
        except Exception as error:  # noqa: BLE001 - metadata is written by any tool, and parsed without checks
            where = getattr(distribution, "_path", "unknown place")
            log.warning("metadata of an installed distribution is unreadable: %s: %s", where, error)
    return sorted(found.values(), key=lambda entry: (entry.name, entry.value))


def _load(entry: metadata.EntryPoint) -> CollectorSpec:
    spec = entry.load()
    if not isinstance(spec, CollectorSpec):
        raise SpecError(f"{entry.value} is a {type(spec).__name__}, not a CollectorSpec")
    if spec.name != entry.name:
        raise SpecError(f"the entry point is called {entry.name!r}, its collector {spec.name!r}")
    return spec


def _distribution(entry: metadata.EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else ""


def _add(spec: CollectorSpec, names: set[str], families: Families) -> None:
    """Takes the names of a spec. Raises SpecError, and then takes none of them."""
    problem = next(_problems(spec, names, families), None)
    if problem:
        raise SpecError(problem)
    names.add(spec.name)
    for metric in spec.metrics:
        families.setdefault(metric.family, (f"collector {spec.name}", metric))


def _problems(spec: CollectorSpec, names: set[str], families: Families) -> Iterator[str]:
    if not isinstance(spec.name, str) or not _NAME.match(spec.name):
        yield f"the collector name {spec.name!r} is not lower case letters, digits and _"
    if spec.name in names:
        yield f"the collector name {spec.name!r} is taken"
    if not (isinstance(spec.settings, type) and issubclass(spec.settings, CollectorSettings)):
        yield f"the settings of {spec.name!r} are no subclass of CollectorSettings"
    elif required := [key for key, field in spec.settings.model_fields.items() if field.is_required()]:
        # The daemon must start without a settings file, whatever is installed.
        yield f"the settings of {spec.name!r} have no default for {', '.join(required)}"
    if not isinstance(spec.help, str) or not spec.help or not callable(spec.create):
        yield f"{spec.name!r} needs a help text and a function that creates the collector"
    if not isinstance(spec.metrics, tuple):
        yield f"the metrics of {spec.name!r} are no tuple"
    seen: set[str] = set()
    for metric in spec.metrics:
        if not isinstance(metric, Metric):
            yield f"{spec.name!r} lists a {type(metric).__name__} among its metrics"
        elif metric.family in families and families[metric.family][1] is not metric:
            yield f"the metric {metric.name} of {spec.name!r} belongs to {families[metric.family][0]}"
        elif metric.family in seen:
            yield f"the metric {metric.name} of {spec.name!r} is listed twice"
        else:
            seen.add(metric.family)
