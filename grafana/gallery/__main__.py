"""make dashboards: draws each with all well, and after the crash; fails on a panel without data or with an error."""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from gallery.draw import Shot, draw
from gallery.play import HURT, Played, played
from gallery.without import CALM, CRASHED

BOARDS = ("fleet", "node", "long-context", "forensics", "itself")
FOLDER = Path(__file__).parents[2] / "build" / "dashboards"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make dashboards", description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the pictures go (build/dashboards)")
    parser.add_argument("--keep", action="store_true", help="let Prometheus run on until Enter is pressed")
    arguments = parser.parse_args()
    _say("a fleet lives through the incident: two and a half minutes")
    with played() as play:
        began = time.monotonic()
        wrong = [
            *draw(list(_calm(play)), play.prometheus, arguments.folder, CALM),
            *draw(list(_crashed(play)), play.prometheus, arguments.folder, CRASHED),
        ]
        _say(f"drawn in {time.monotonic() - began:.0f} s into {arguments.folder}")
        for reason in wrong:
            _say(f"WRONG  {reason}")
        if arguments.keep:
            _say(f"{play}\nPrometheus runs until Enter is pressed")
            sys.stdin.readline()
    return int(bool(wrong))


def _calm(play: Played) -> Iterator[Shot]:
    for board in BOARDS:
        yield Shot(board, f"{board}-calm-1600", play.began, play.calm, 1600, variables=_variables(board))


def _crashed(play: Played) -> Iterator[Shot]:
    for board in BOARDS:
        for width, theme in ((1600, "dark"), (1200, "light")):
            name = f"{board}-crashed-{width}"
            yield Shot(board, name, play.began, play.crashed, width, theme, _variables(board))


def _variables(board: str) -> dict[str, str]:
    return {} if board in ("fleet", "itself") else {"node": HURT}


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
