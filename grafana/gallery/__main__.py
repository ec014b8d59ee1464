"""make dashboards: each with all well, near the crash and after it; fails on errors, and on what never has data."""

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gallery.draw import Shot, asked, draw, empty, shrink, wrong
from gallery.names import unknown
from gallery.play import HURT, Played, played
from gallery.without import reason, unneeded

BOARDS = ("fleet", "node", "long-context", "forensics", "itself")
_LOOKS = ((1600, "dark"), (1200, "light"))
README = ("fleet-near", "node-near", "long-context-near", "forensics-crashed", "itself-near")
"""Those that the README shows, of the larger width."""

FOLDER = Path(__file__).parents[2] / "build" / "dashboards"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make dashboards", description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the pictures go (build/dashboards)")
    parser.add_argument("--readme", action="store_true", help="also renew those of the README, in docs/pictures")
    parser.add_argument("--keep", action="store_true", help="let Prometheus run on until Enter is pressed")
    arguments = parser.parse_args()
    _say("a fleet lives through the incident: two and a half minutes")
    with played() as play:
        began = time.monotonic()
        shots = list(_shots(play))
        try:
            reports = draw(shots, play.prometheus, arguments.folder)
        except subprocess.CalledProcessError as error:
            _say(f"FAILED  {error}\n{error.stderr[-4000:]}")
            return 1
        (arguments.folder / "reports.json").write_text(json.dumps(reports, indent=1))
        _say(f"{len(shots)} pictures in {time.monotonic() - began:.0f} s in {arguments.folder}")
        if arguments.readme:
            shrink(arguments.folder, README)
        faults = [*_faults(shots, reports, play)]
        for fault in faults:
            _say(f"WRONG  {fault}")
        if arguments.keep:
            _say(f"{play}\nPrometheus runs until Enter is pressed")
            sys.stdin.readline()
    return int(bool(faults))


def _shots(play: Played) -> Iterator[Shot]:
    states = {"calm": play.calm, "near": play.near, "crashed": play.crashed}
    looks = {"calm": _LOOKS, "near": _LOOKS[:1], "crashed": _LOOKS}
    for board in BOARDS:
        variables = {} if board in ("fleet", "itself") else {"node": HURT}
        for state, until in states.items():
            for width, theme in looks[state]:
                yield Shot(board, f"{board}-{state}-{width}", play.began, until, width, theme, variables)
        # Of all nodes, with nothing folded: what joins two nodes by mistake shows here.
        yield Shot(board, f"{board}-all", play.began, play.crashed, 1600, "dark", expand=True)


def _faults(shots: Sequence[Shot], reports: Sequence[Mapping[str, Any]], play: Played) -> Iterator[str]:
    for shot, report in zip(shots, reports, strict=True):
        yield from (f"{shot.name}: {fault}" for fault in wrong(report))
    queries = {query for report in reports for _, query in asked(report)}
    yield from (f"no node has {name}" for name in sorted(unknown(queries, play.prometheus, play.began, play.crashed)))
    never = _never(shots, reports)
    reasons = {one: reason(one.query) for one in never}
    for board, title, query in sorted(one for one, why in reasons.items() if why is None):
        yield f"{board}: no data in any picture: {title}: {query}"
    for pattern, why in unneeded({why for why in reasons.values() if why is not None}):
        yield f"gallery/without.py: {pattern} ({why}) always has data, or nobody asks for it"


class _Asked(NamedTuple):
    board: str
    title: str
    query: str


def _never(shots: Sequence[Shot], reports: Sequence[Mapping[str, Any]]) -> set[_Asked]:
    """What had no data in all pictures in which it was asked; what is folded is asked in those with All only."""
    without, with_data = set(), set()
    for shot, report in zip(shots, reports, strict=True):
        nothing = {_Asked(shot.board, title, _timeless(query)) for title, query in empty(report)}
        without |= nothing
        with_data |= {_Asked(shot.board, title, _timeless(query)) for title, query in asked(report)} - nothing
    return without - with_data


def _timeless(query: str) -> str:
    """Without durations and choices of nodes, which differ from picture to picture."""
    return re.sub(r'node=~"[^"]*"', "", re.sub(r"\b\d+(ms|[smhdwy])\b", "", query))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
