"""make dashboards: each with all well, near the crash and after it; fails on errors, and on what never has data."""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gallery.draw import Shot, draw, empty, wrong
from gallery.play import HURT, Played, played
from gallery.without import why_empty

BOARDS = ("fleet", "node", "long-context", "forensics", "itself")
_LOOKS = ((1600, "dark"), (1200, "light"))
FOLDER = Path(__file__).parents[2] / "build" / "dashboards"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make dashboards", description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the pictures go (build/dashboards)")
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
        faults = [*_faults(shots, reports)]
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


def _faults(shots: Sequence[Shot], reports: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for shot, report in zip(shots, reports, strict=True):
        yield from (f"{shot.name}: {fault}" for fault in wrong(report))
    for board in BOARDS:
        # What was empty in every picture of the board.
        never = set.intersection(
            *(_without(report) for shot, report in zip(shots, reports, strict=True) if shot.board == board)
        )
        for title, number in sorted(never):
            yield f"{board}: no data ever: {title}, query {number}"


def _without(report: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Queries without data that no reason is known for, told apart as far as no time is in them."""
    return {(title, _timeless(query)) for title, query in empty(report) if not why_empty(title, query)}


def _timeless(query: str) -> str:
    """Without ranges, which differ from picture to picture."""
    return "[".join(part.partition("]")[2] if n else part for n, part in enumerate(query.split("[")))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
