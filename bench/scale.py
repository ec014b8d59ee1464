"""What a fleet costs: series of one node, and a Prometheus over hundreds of them: `bench/scale.py [PART..]`.

The nodes are played: pages that one real daemon gave, each node's with values and ids of its own, served on loopback.
Prometheus is a real one with the configuration and the rules that are shipped. Takes root, for cgroups; and two hours
for all parts.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # the scripted driver is one of theirs

import fleet_show
from fleet_disk import block
from fleet_history import costs, write
from fleet_node import Shape
from fleet_pages import Script, read
from fleet_prometheus import RULES, Prometheus, newest, prometheus, settings
from fleet_record import count, record
from fleet_watch import Fleet, TooMuch, receiver, serving, told, wait_until_up, watch
from machine import describe
from owned import Unusable
from peers import Missing

SHAPES = [Shape(gpus, cgroups, engines) for gpus in (1, 8) for cgroups in (10, 100, 500) for engines in (1, 4)]
SIZES = {"small": Shape(1, 10, 1), "large": Shape(8, 100, 4), "full": Shape(8, 100, 4, objectives=True)}

_PAGES, _INTERVAL = 9, 15.0
_FEW = 4
"""Nodes whose history is written: what is read rises with their number, and nothing else."""

_SLOWEST = 150.0
"""Seconds in which each group is evaluated once."""


class Bench:
    """home: a directory of its own. What is recorded of a shape is recorded once."""

    def __init__(self, home: Path, nodes: int, seconds: float) -> None:
        self._home = home
        self._nodes = nodes
        self._seconds = seconds

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """Each raises peers.Missing, Unusable, TooMuch."""
        fleets = {name: partial(self._fleet, name) for name in SIZES}
        return {"series": _series, **fleets, "rules": self._rules, "disk": self._disk}

    def _fleet(self, name: str) -> None:
        """A Prometheus without rules, with them, and with them and a remote write, each as long."""
        with self._started(name, self._nodes) as (one, fleet), receiver() as remote:
            phases = {"no rules": watch(one, fleet, self._seconds)}
            one.reload(settings(fleet.targets, rules=[RULES]))
            phases["rules"] = watch(one, fleet, self._seconds)
            firing, slowest = told(one), one.slowest()
            one.reload(settings(fleet.targets, rules=[RULES], remote=remote))
            phases["and remote write"] = watch(one, fleet, self._seconds)
        what = f"{self._nodes} nodes of {SIZES[name]}, {fleet.series:,} series each, Prometheus {one.programs.version}"
        fleet_show.show_phases(what, phases)
        fleet_show.show_groups(what, phases["rules"], self._nodes)
        fleet_show.show_slowest(what, slowest)
        fleet_show.show_alerts(what, fleet, firing)

    def _rules(self) -> None:
        with self._started("full", _FEW, past=True) as (one, fleet):
            one.reload(settings(fleet.targets, rules=[RULES]))
            watched = watch(one, fleet, _SLOWEST)
            found = costs(one)
        what = f"of {SIZES['full']}"
        fleet_show.show_costs(what, found, _FEW)
        fleet_show.show_groups(f"{_FEW} nodes with three days of history, {what}", watched, _FEW)

    def _disk(self) -> None:
        fleet_show.show_blocks({str(shape): block(self._script(name), _FEW, newest()) for name, shape in SIZES.items()})

    @contextmanager
    def _started(self, name: str, nodes: int, *, past: bool = False) -> Iterator[tuple[Prometheus, Fleet]]:
        """A Prometheus without rules that has scraped all nodes. past: with days of history."""
        programs = newest()
        with tempfile.TemporaryDirectory(dir=self._home) as directory, ExitStack() as stack:
            fleet = stack.enter_context(serving(self._recorded(name), nodes))
            home = Path(directory)
            if past:
                write(self._script(name), fleet.targets, programs, home)
            one = stack.enter_context(prometheus(programs, home, settings(fleet.targets)))
            wait_until_up(one, fleet)
            yield one, fleet

    def _script(self, name: str) -> Script:
        return Script(read(self._recorded(name)))

    def _recorded(self, name: str) -> Path:
        directory = self._home / name
        if not (directory / "recorded.json").exists():
            directory.mkdir(exist_ok=True)
            record(SIZES[name], directory, _PAGES, _INTERVAL)
        return directory


def _series() -> None:
    pages = [count(shape) for shape in (*SHAPES, SIZES["full"])]
    fleet_show.show_pages(pages)
    for one in pages:
        if one.shape in SIZES.values():
            fleet_show.show_names(one)


def main() -> int:
    """Status 1 if something was not measured."""
    arguments = _arguments()
    print(f"# oomcast fleet\n\n{describe()}", flush=True)
    failed = False
    with tempfile.TemporaryDirectory(prefix="oomcast-bench-") as home:
        parts = Bench(Path(home), arguments.nodes, arguments.seconds).parts()
        for part in arguments.part or parts:
            try:
                parts[part]()
            except (Missing, Unusable, TooMuch) as reason:
                print(f"\n{part}: not measured: {reason}", flush=True)
                failed = True
    return int(failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = list(Bench(Path(), 0, 0).parts())
    parser.add_argument("part", nargs="*", help=f"which of {', '.join(known)}; all of them without")
    parser.add_argument("--nodes", type=int, default=500, help="nodes under one Prometheus (default 500)")
    parser.add_argument("--seconds", type=float, default=300, help="seconds of each watch (default 300)")
    arguments = parser.parse_args()
    unknown = set(arguments.part) - set(known)
    if unknown:
        parser.error(f"no part is called {', '.join(sorted(unknown))}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
