"""What a fleet costs: series of one node, and a Prometheus over hundreds of them: `bench/fleet.py [PART..]`.

The nodes are played: pages that one real daemon gave, each node's with values and ids of its own, served on loopback.
Prometheus is a real one with the configuration and the rules that are shipped. Takes root, for cgroups.
"""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # the scripted driver is one of theirs

from fleet_node import Shape
from fleet_prometheus import RULES, newest, prometheus, settings
from fleet_record import count, record
from fleet_watch import ALERTS, Fleet, TooMuch, Watched, receiver, serving, told, wait_until_up, watch
from machine import MB, describe, median, table
from owned import Unusable
from peers import Missing

SHAPES = [Shape(gpus, cgroups, engines) for gpus in (1, 8) for cgroups in (10, 100, 500) for engines in (1, 4)]
SMALL, LARGE = Shape(1, 10, 1), Shape(8, 100, 4)
FULL = Shape(8, 100, 4, objectives=True)
BUDGET = 2000
"""Series of a node at defaults."""

_PAGES, _INTERVAL = 9, 15.0
_TOP = 12


def show_series() -> None:
    """Series and bytes of one scrape. Raises Missing, Unusable."""
    pages = [count(shape) for shape in (*SHAPES, FULL)]
    columns = ("node", "series", "of these _created", "text kB", "gzip kB", f"<= {BUDGET:,}")
    rows = [
        (t.shape, f"{t.series:,}", t.created, f"{t.text / 1e3:.0f}", f"{t.gzip / 1e3:.1f}",
         "within" if t.series <= BUDGET else "above")
        for t in pages
    ]  # fmt: skip
    table("fleet: one scrape", columns, rows)
    for one in (t for t in pages if t.shape in (LARGE, FULL)):
        top = Counter(one.families).most_common(_TOP)
        families = [(name, number, f"{number / one.series:.1%}") for name, number in top]
        table(f"fleet: the names with the most series, of {one.shape}", ("name", "series", "share"), families)


def show_fleet(shape: Shape, nodes: int, seconds: float) -> None:
    """A Prometheus over so many nodes: without rules, with them, and with them and a remote write, each so long.

    Raises Missing, Unusable, TooMuch.
    """
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="oomcast-bench-"))
        recorded, home = Path(directory, "recorded"), Path(directory, "prometheus")
        recorded.mkdir()
        home.mkdir()
        record(shape, recorded, _PAGES, _INTERVAL)
        fleet = stack.enter_context(serving(recorded, nodes))
        remote = stack.enter_context(receiver())
        programs = newest()
        one = stack.enter_context(prometheus(programs, home, settings(fleet.targets)))
        wait_until_up(one, fleet)
        phases = {"no rules": watch(one, fleet, seconds)}
        one.reload(settings(fleet.targets, rules=[RULES]))
        phases["rules"] = watch(one, fleet, seconds)
        firing = told(one)
        one.reload(settings(fleet.targets, rules=[RULES], remote=remote))
        phases["and remote write"] = watch(one, fleet, seconds)
        what = f"{nodes} nodes of {shape}, {fleet.series:,} series each, Prometheus {programs.version}"
        _show_phases(what, phases)
        _show_groups(what, phases["rules"])
        _show_alerts(what, fleet, firing)


def _show_phases(what: str, phases: Mapping[str, Watched]) -> None:
    columns = (
        "", "s", "CPU cores", "to no rules", "RSS GB", "head series", "samples/s", "MB/s as text", "gzip", "WAL MB/s",
        "remote MB/s", "s between scrapes, p99", "CPU cores of the played nodes",
    )  # fmt: skip
    floor = phases["no rules"]
    rows = [
        (name, f"{w.seconds:.0f}", f"{w.cpu:.2f}", f"{w.cpu / floor.cpu:.2f}", f"{w.rss / 1e9:.2f}", f"{w.series:,.0f}",
         f"{w.samples:,.0f}", f"{w.text / MB:.2f}", f"{w.wire / MB:.2f}", f"{w.wal / MB:.2f}", f"{w.remote / MB:.2f}",
         f"{w.late:.2f}", f"{w.server:.2f}")
        for name, w in phases.items()
    ]  # fmt: skip
    table(f"fleet: {what}", columns, rows)


def _show_groups(what: str, watched: Watched) -> None:
    columns = ("group", "every", "seen", "median s", "longest s", "of its interval", "missed")
    rows = [
        (name, f"{group.interval:.0f} s", len(group.seconds), f"{median(group.seconds):.3f}",
         f"{max(group.seconds):.3f}", f"{max(group.seconds) / group.interval:.1%}", f"{group.missed:.0f}")
        for name, group in watched.groups.items() if group.seconds
    ]  # fmt: skip
    table(f"fleet: rule groups, {what}", columns, rows)


def _show_alerts(what: str, fleet: Fleet, firing: Mapping[str, float]) -> None:
    rows = [(name, fleet.numbers[kind], f"{firing.get(name, 0):.0f}") for kind, name in ALERTS.items()]
    rows += [(name, 0, f"{number:.0f}") for name, number in firing.items() if name not in ALERTS.values()]
    table(f"fleet: alerts, {what}", ("alert", "nodes in that trouble", "nodes it fires for"), rows)


def main() -> int:
    """Status 1 if something was not measured."""
    arguments = _arguments()
    sizes = {"small": SMALL, "large": LARGE, "full": FULL}
    parts: dict[str, Callable[[], None]] = {"series": show_series}
    for name, shape in sizes.items():
        parts[name] = partial(show_fleet, shape, arguments.nodes, arguments.seconds)
    print(f"# oomcast fleet\n\n{describe()}", flush=True)
    failed = False
    for part in arguments.part or list(parts):
        try:
            parts[part]()
        except (Missing, Unusable, TooMuch) as reason:
            print(f"\n{part}: not measured: {reason}", flush=True)
            failed = True
    return int(failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", help="series, small, large, full: all of them without")
    parser.add_argument("--nodes", type=int, default=500, help="nodes under one Prometheus (default 500)")
    parser.add_argument("--seconds", type=float, default=300, help="seconds of each watch (default 300)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
